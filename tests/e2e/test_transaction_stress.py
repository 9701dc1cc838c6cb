"""Transactional writers, a reader, copies, evictions and kills at once: exactly what was committed is seen, once."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kit.daemon import Daemon, running
from kit.transactions import SMALL, WAIT_S, producer, read

pytestmark = [pytest.mark.e2e, pytest.mark.chaos, pytest.mark.timeout(0)]

WRITERS, PARTITIONS, LASTS_S = 4, 2, 60.0


@dataclass
class Writer:
    """Writes numbered records in transactions of any size and outcome until told to stop."""

    address: str
    number: int
    stop: threading.Event
    committed: list[bytes] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        try:
            self._run()
        except (confluent_kafka.KafkaException, AssertionError) as error:
            self.failed.append(error)

    def _run(self) -> None:
        dice, made = random.Random(self.number), producer(self.address, f"writer-{self.number}")
        numbers = iter(range(10**9))
        while not self.stop.is_set():
            made.begin_transaction()
            values = [b"%d %d" % (self.number, next(numbers)) for _ in range(dice.randrange(1, 20))]
            for value in values:
                made.produce("t", value.ljust(dice.randrange(16, 2000)), partition=dice.randrange(PARTITIONS))
            if self._end(made, commit=dice.random() < 0.6):
                self.committed += values

    def _end(self, made: confluent_kafka.Producer, *, commit: bool) -> bool:
        """Whether it is committed: a broker that is away is asked again, and may ask for an abort."""
        while True:
            try:
                (made.commit_transaction if commit else made.abort_transaction)(WAIT_S)
            except confluent_kafka.KafkaException as error:
                why = error.args[0]
                commit = commit and not why.txn_requires_abort()
                if not (why.retriable() or why.txn_requires_abort()):
                    raise
            else:
                return commit


@pytest.fixture
def tierd(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", "--set", "segment.bytes=1MiB", *SMALL) as daemon:
        admin = AdminClient({"bootstrap.servers": daemon.address})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(WAIT_S)
        yield daemon


def seen(address: str) -> list[bytes]:
    """In the order of each partition; checks that each writer's records are in theirs."""
    last: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    values = []
    for partition, _, value in read(address, "t", partitions=PARTITIONS):
        writer, number = map(int, value.split())
        assert last[writer, partition] < number, (writer, partition, number)
        last[writer, partition] = number
        values.append(value.rstrip())
    return values


@pytest.mark.parametrize("kills", [False, True])
def test_exactly_what_was_committed_is_seen(tierd: Daemon, kills: bool) -> None:
    stop = threading.Event()
    writers = [Writer(tierd.address, number, stop) for number in range(WRITERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    dice, ends = random.Random(1), time.monotonic() + LASTS_S
    while time.monotonic() < ends:
        tierd.verb("copy", "--wait", "--roll", expect=None)
        tierd.verb("evict", expect=None)
        if kills and dice.random() < 0.5:
            tierd.kill()
            tierd.start()
    stop.set()
    for thread in threads:
        thread.join()
    assert not [error for writer in writers for error in writer.failed]
    committed = sorted(value for writer in writers for value in writer.committed)
    assert len(committed) > 1000
    assert sorted(seen(tierd.address)) == committed
    tierd.verb("copy", "--wait", "--roll")
    tierd.verb("evict")
    assert tierd.partition("t")["local_start"] == tierd.partition("t")["log_end"]
    assert sorted(seen(tierd.address)) == committed
    assert tierd.stop() == 0
