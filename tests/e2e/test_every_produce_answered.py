"""Requests sent one behind the other while the broker is killed: each is answered, or its broker died."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.client import Client, batch
from e2e.disks import connect
from kit.daemon import Daemon, running
from kit.transactions import SMALL
from tierd.storage.header import TRANSACTIONAL
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

pytestmark = pytest.mark.e2e

IN_FLIGHT = 5
RECORDS = 3
WRITERS = 2
ROUNDS = 30
"""Of each writer between two kills."""


class Unanswered(AssertionError):
    """A client waited a minute, or lost its connection to a broker that lives."""


@dataclass
class Kills:
    begun: int = 0
    over: int = 0


@dataclass
class Writer:
    """*name*: of its transactional id; None writes to a topic that is answered for once it is on the disk."""

    daemon: Daemon
    kills: Kills
    stop: threading.Event
    name: str | None
    rounds: int = 0
    moved: threading.Condition = field(default_factory=threading.Condition)
    failed: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self._connected()
        except (AssertionError, OSError) as error:
            self.failed.append(error)
        with self.moved:
            self.moved.notify_all()

    def _connected(self) -> None:
        """Until the broker is killed, or the writer is told to stop."""
        seen = self.kills.over
        try:
            with connect(self.daemon) as client:
                while not self.stop.is_set():
                    self._round(client)
                    with self.moved:
                        self.rounds += 1
                        self.moved.notify_all()
        except TimeoutError as error:
            raise Unanswered(f"{self.name} has no answer after {self.rounds} rounds") from error
        except ConnectionError as error:
            if self.kills.begun == seen:
                raise Unanswered(f"{self.name} lost its connection: {error}") from error

    def _round(self, client: Client) -> None:
        if self.name is None:
            self._pipelined(client, "disk", {})
            return
        told = client.call(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id=self.name, transaction_timeout=60_000, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        if told.error_code == ErrorCode.NONE:  # else the last transaction is still being ended
            who = {"producer_id": told.producer_id, "producer_epoch": told.producer_epoch}
            self._pipelined(client, "t", {**who, "attributes": TRANSACTIONAL}, self.name)
            client.call(ApiKey.END_TXN, 5, transactional_id=self.name, committed=True, **who)

    def _pipelined(self, client: Client, topic: str, producer: dict[str, int], name: str | None = None) -> None:
        """IN_FLIGHT requests at once, then their answers, in order; what they say is not the question here."""
        first = client._number + 1
        for number in range(IN_FLIGHT):
            given = {**producer, "base_sequence": RECORDS * number} if producer else {}
            rows = [{"name": topic, "partition_data": [{"index": 0, "records": batch(RECORDS, **given)}]}]
            client.send(ApiKey.PRODUCE, 12, transactional_id=name, acks=-1, timeout=5000, topic_data=rows)
        for number in range(first, first + IN_FLIGHT):
            assert int.from_bytes(client.frame()[:4], "big") == number


@contextmanager
def writing(daemon: Daemon, kills: Kills) -> Iterator[list[Writer]]:
    stop = threading.Event()
    names = [*(f"x{number}" for number in range(WRITERS)), None]
    writers = [Writer(daemon, kills, stop, name) for name in names]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def written(writers: list[Writer]) -> None:
    """Return when each has got on by ROUNDS."""
    for writer in writers:
        to = writer.rounds + ROUNDS
        with writer.moved:
            assert writer.moved.wait_for(lambda: bool(writer.failed) or writer.rounds >= to, 120), writer.name  # noqa: B023
        assert not writer.failed, writer.failed


def write_through_kills(root: Path, times: int) -> None:
    with running(root / "data", f"file:{root / 'bucket'}", "--set", "segment.bytes=1MiB", *SMALL) as daemon:
        with connect(daemon) as client:
            client.create("t")
            client.create("disk", tierd_acks_durability="disk")
        kills = Kills()
        with writing(daemon, kills) as writers:
            for _ in range(times):
                written(writers)
                kills.begun += 1
                daemon.kill()
                daemon.start()
                kills.over += 1
            written(writers)
        assert [failed for writer in writers for failed in writer.failed] == []
        daemon.stop()


def test_every_produce_is_answered_or_its_broker_died(tmp_path: Path) -> None:
    write_through_kills(tmp_path, 1)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_every_produce_is_answered_through_many_kills(tmp_path: Path) -> None:
    write_through_kills(tmp_path, 20)
