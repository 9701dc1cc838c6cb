"""Kill rounds: SIGKILL of either process in the middle of produce, roll, copy, evict and delete, then the reckoning."""

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from os import kill
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from kit import bucket, traffic
from kit.daemon import Daemon

TOPIC = "chaos"
SIZE_BYTES = 2_000
WAIT_S = 90


@dataclass
class Ledger:
    """What the producers were told: record number -> offset."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    next_number: int = 0
    failed: list[str] = field(default_factory=list)


class Writer:
    """One idempotent producer that writes until told to stop; `reached` is set after *count* acknowledgements."""

    def __init__(self, address: str, ledger: Ledger, count: int) -> None:
        self.reached = threading.Event()
        self._enough = threading.Event()
        self._left = count
        self._ledger = ledger
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": 32_768,
                "message.timeout.ms": WAIT_S * 1000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._enough.is_set():
            m = traffic.message(TOPIC, self._ledger.next_number, SIZE_BYTES)
            try:
                self._producer.produce(TOPIC, m.value, m.key, partition=0, on_delivery=self._told(m.offset))
                self._ledger.next_number += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0)
            if len(self._producer) > 500:
                self._producer.poll(0.05)
        if left := self._producer.flush(WAIT_S):
            self._ledger.failed.append(f"{left} records without an answer")

    def _told(self, number: int) -> Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]:
        def report(error: confluent_kafka.KafkaError | None, m: confluent_kafka.Message) -> None:
            if error is not None:
                self._ledger.failed.append(f"{number}: {error}")
                return
            offset = m.offset()
            assert offset is not None
            self._ledger.acknowledged[number] = offset
            self._left -= 1
            if self._left == 0:
                self.reached.set()

        return report

    def finish(self) -> None:
        self._enough.set()
        self._thread.join(WAIT_S + 10)
        assert not self._thread.is_alive(), "the producer did not end"


def kill_rounds(place: Path, rounds: int, seed: int, say: Callable[[str], None]) -> Ledger:
    """Run *rounds* and check everything at the end; give what was acknowledged."""
    dice, ledger = random.Random(seed), Ledger()
    daemon = Daemon(
        place / "data",
        f"file:{place / 'bucket'}",
        None,
        ("--set", "segment.bytes=1MiB", "--set", "tierd.delete.delay.ms=0"),
    )
    try:
        daemon.start()
        for number in range(rounds):
            victim = dice.choice(["broker", "broker", "tierer"])
            deed = dice.choice(["produce", "copy", "evict", "delete"])
            one_round(daemon, ledger, number, victim, deed, dice.randint(50, 1500))
            say(f"round {number + 1}/{rounds}: {victim} killed during {deed}, {len(ledger.acknowledged)} acknowledged")
            assert not ledger.failed, ledger.failed[:3]
        reckon(daemon, ledger, place)
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    return ledger


def one_round(daemon: Daemon, ledger: Ledger, number: int, victim: str, deed: str, acknowledgements: int) -> None:
    writer = Writer(daemon.address, ledger, acknowledgements)
    verbs: list[subprocess.Popen[bytes]] = []
    try:
        if deed in ("copy", "evict"):
            verbs.append(verb(daemon, "copy", "--roll"))
        if deed == "evict":
            verbs.append(verb(daemon, "evict"))
        if deed == "delete":
            make_and_delete(daemon.address, f"gone-{number}")
        assert writer.reached.wait(WAIT_S), f"{acknowledgements} acknowledgements did not come"
        if victim == "tierer":
            for pid in daemon.tierer_pids():
                kill(pid, signal.SIGKILL)
        else:
            daemon.kill()
            daemon.start()
    finally:
        writer.finish()
        for v in verbs:
            v.wait(WAIT_S)


def verb(daemon: Daemon, *words: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tierd", *words, "--data", str(daemon.data)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_and_delete(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    traffic.produce_confluent(address, topic, traffic.stream(topic, 0, 2500, 1000))
    admin.delete_topics([topic])[topic].result(30)


def reckon(daemon: Daemon, ledger: Ledger, place: Path) -> None:
    """Every acknowledged record once, at the offset that was told, from either tier; no object without an owner."""
    daemon.verb("copy", "--wait", "--roll")
    daemon.verb("evict")
    row = daemon.partition(TOPIC)
    got = traffic.consume_confluent(daemon.address, TOPIC, 0, row["log_end"])
    numbers = [int(m.key.rsplit(b"-", 1)[1]) for m in got]
    assert len(set(numbers)) == len(numbers), "a record is there twice"
    assert numbers == sorted(numbers), "records changed their order"
    assert [m.offset for m in got] == list(range(row["log_end"])), "offsets are not contiguous"
    by_number = dict(zip(numbers, got, strict=True))
    for number, offset in ledger.acknowledged.items():
        assert by_number[number].offset == offset, f"record {number} was acknowledged at {offset}"
        assert by_number[number].value == traffic.message(TOPIC, number, SIZE_BYTES).value
    assert bucket.unowned(place / "bucket", place / "data.tierd") == []
