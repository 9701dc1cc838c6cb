"""Produce, offsets and markers of transactions, request by request: tierd answers what a real Kafka 4.3.1 does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from kit.daemon import running
from kit.kafka import running as kafka_running
from kit.transactions import AGAIN, SMALL
from tierd.storage.batch import walk
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(240)]

TOPIC = "t"


class Script:
    """Sends requests and writes down what came back, without ids and epochs that differ from broker to broker."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.said: list[tuple[str, Any]] = []
        self.producer_id = self.epoch = self.first_epoch = -1

    def note(self, what: str, answer: Any) -> None:
        self.said.append((what, answer))

    def patiently(self, ask: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        for _ in range(3000):
            told = ask()
            if told[0] not in AGAIN:
                return told
        pytest.fail(f"always {ErrorCode(told[0]).name}")

    # requests

    def init(self, name: str = "x") -> None:
        def ask() -> tuple[int, ...]:
            told = self._client.call(
                ApiKey.INIT_PRODUCER_ID, 5, transactional_id=name, transaction_timeout=60_000, producer_id=-1,
                producer_epoch=-1,
            )  # fmt: skip
            return int(told.error_code), told.producer_id, told.producer_epoch

        error, self.producer_id, self.epoch = self.patiently(ask)
        self.first_epoch = self.epoch
        self.note("init", error)

    def produce(
        self, what: str, sequence: int, *, version: int = 12, partition: int = 0, epoch: int = 0,
        name: str | None = "x", transactional: bool = True,
    ) -> None:  # fmt: skip
        """*epoch*: added to the producer's."""
        records = batch(
            2, producer_id=self.producer_id, producer_epoch=self.epoch + epoch, base_sequence=sequence,
            attributes=0x10 if transactional else 0,
        )  # fmt: skip

        def ask() -> tuple[int, ...]:
            row = self._client.produce(TOPIC, records, partition, version=version, transactional_id=name)
            return int(row.error_code), row.base_offset

        self.note(f"produce {what}", self.patiently(ask))

    def add(self, *, partition: int = 0) -> None:
        def ask() -> tuple[int, ...]:
            told = self._client.call(
                ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="x",
                v3_and_below_producer_id=self.producer_id, v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[{"name": TOPIC, "partitions": [partition]}],
            )  # fmt: skip
            return (int(told.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code),)

        self.note("add", self.patiently(ask))

    def add_offsets(self) -> None:
        def ask() -> tuple[int, ...]:
            told = self._client.call(
                ApiKey.ADD_OFFSETS_TO_TXN, 3, transactional_id="x", producer_id=self.producer_id,
                producer_epoch=self.epoch, group_id="g",
            )  # fmt: skip
            return (int(told.error_code),)

        self.note("add offsets", self.patiently(ask))

    def commit_offset(
        self, what: str, offset: int, *, version: int = 5, topic: str = TOPIC, epoch: int = 0, metadata: str = "",
        group: str = "g", generation: int = -1, member: str = "",
    ) -> None:  # fmt: skip
        part = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }  # fmt: skip

        def ask() -> tuple[int, ...]:
            told = self._client.call(
                ApiKey.TXN_OFFSET_COMMIT, version, transactional_id="x", group_id=group, producer_id=self.producer_id,
                producer_epoch=self.epoch + epoch, generation_id=generation, member_id=member,
                topics=[{"name": topic, "partitions": [part]}],
            )  # fmt: skip
            return (int(told.topics[0].partitions[0].error_code),)

        self.note(f"offset {what}", self.patiently(ask))

    def offset(self) -> None:
        for stable in (True, False):
            group = {"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
            told = self._client.call(ApiKey.OFFSET_FETCH, 9, groups=[group], require_stable=stable)
            row = told.groups[0].topics[0].partitions[0]
            self.note(f"stable={stable}", (int(row.error_code), row.committed_offset))

    def end(self, *, commit: bool, version: int = 5) -> None:
        """Ends and waits until the markers are there."""

        def ask() -> tuple[int, ...]:
            told = self._client.call(
                ApiKey.END_TXN, version, transactional_id="x", producer_id=self.producer_id,
                producer_epoch=self.epoch, committed=commit,
            )  # fmt: skip
            raised = (told.producer_id, told.producer_epoch) if version >= 5 else (self.producer_id, self.epoch)
            return int(told.error_code), *raised

        error, producer_id, epoch = self.patiently(ask)
        self.note("end", (error, epoch - self.epoch, producer_id == self.producer_id))
        self.producer_id, self.epoch = producer_id, epoch
        while any(stable != end for stable, end in map(self._ends, (0, 1))):
            pass
        self.log()

    def marker(self, what: str, *, epoch: int = 0, coordinator: int = 1 << 20, version: int = 1, **of: Any) -> None:
        topic = {"name": of.get("topic", TOPIC), "partition_indexes": [0]}
        written = {
            "producer_id": of.get("producer_id", self.producer_id), "producer_epoch": self.epoch + epoch,
            "transaction_result": False, "topics": [topic], "coordinator_epoch": coordinator,
            "transaction_version": of.get("transaction_version", 0),
        }  # fmt: skip
        told = self._client.call(ApiKey.WRITE_TXN_MARKERS, version, markers=[written])
        self.note(f"marker {what}", int(told.markers[0].topics[0].partitions[0].error_code))

    # what is there

    def _ends(self, partition: int) -> tuple[int, int]:
        asked = [{"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}]
        topics = [{"name": TOPIC, "partitions": asked}]
        both = [self._client.call(2, 8, replica_id=-1, isolation_level=n, topics=topics) for n in (1, 0)]
        stable, end = (told.topics[0].partitions[0].offset for told in both)
        return stable, end

    def log(self) -> None:
        """Ends, aborted transactions and producers of both partitions."""
        for partition in (0, 1):
            row = self._client.fetch(TOPIC, 0, partition, isolation_level=1)
            ends = (*self._ends(partition), row.high_watermark, row.last_stable_offset)
            self.note(f"log {partition}", (*ends, self._aborted(partition, row.last_stable_offset)))
            told = self._client.call(
                ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": TOPIC, "partition_indexes": [partition]}]
            )
            rows = sorted(told.topics[0].partitions[0].active_producers, key=lambda found: found.producer_id)
            self.note(f"producers {partition}", [self._shown(found) for found in rows])

    def _aborted(self, partition: int, stop: int) -> list[int]:
        """All of the log, read as Kafka lets it be read: segment by segment."""
        offset, aborted = 0, set()
        while offset < stop:
            row = self._client.fetch(TOPIC, offset, partition, isolation_level=1)
            aborted |= {found.first_offset for found in row.aborted_transactions or ()}
            offset = [header.next_offset for _, header in walk(row.records)][-1]
        return sorted(aborted)

    def _shown(self, found: Any) -> tuple[Any, ...]:
        epoch = found.producer_epoch - self.epoch if found.producer_id == self.producer_id else "other"
        return epoch, found.last_sequence, found.coordinator_epoch >= 0, found.current_txn_start_offset


def newest(script: Script) -> None:
    """A client of transaction version 2."""
    script.init()
    script.produce("not added", 0, version=9)
    script.produce("not added", 0, version=11)
    script.produce("no beginning", 5)
    script.produce("first", 0)
    script.produce("again", 0)
    script.produce("a gap", 9)
    script.produce("an older version goes on", 2, version=9)
    script.produce("outside of it", 4, name=None, transactional=False)
    script.produce("without an id", 4, name=None)
    script.produce("elsewhere", 0, partition=1)
    script.log()
    script.commit_offset("", 7)
    script.commit_offset("unknown topic", 7, topic="nope")
    script.commit_offset("too much metadata", 7, metadata="x" * 5000)
    script.commit_offset("of a member", 7, generation=3, member="m")
    script.commit_offset("of a nameless group", 7, group="")
    script.offset()
    script.end(commit=True)
    script.offset()
    script.produce("of the old epoch", 4, epoch=-1)
    script.commit_offset("of the old epoch", 9, epoch=-1)
    script.produce("not from 0", 3)
    script.produce("second", 0)
    script.commit_offset("", 11)
    script.end(commit=False)
    script.offset()


def older(script: Script) -> None:
    """A client that adds partitions itself and keeps its epoch."""
    script.add(partition=0)
    script.produce("added", 0, version=11)
    script.produce("not added", 0, version=11, partition=1)
    script.commit_offset("not added", 5, version=3)
    script.commit_offset("not added", 5, version=4)
    script.add_offsets()
    script.commit_offset("added", 5, version=3)
    script.offset()
    script.end(commit=True, version=3)
    script.offset()
    script.produce("after the end", 2, version=11)
    script.add(partition=0)
    script.produce("goes on", 2, version=11)
    script.end(commit=False, version=3)
    script.produce("plain, after the end", 4, version=9, name=None, transactional=False)


def tools(script: Script) -> None:
    """What kafka-transactions.sh asks for, and what it must not be given."""
    script.init()
    script.produce("first", 0)
    script.marker("of an older epoch", epoch=-1)
    script.marker("unknown topic", topic="nope")
    script.marker("that must have raised the epoch", version=2, transaction_version=2)
    script.log()
    script.marker("an abort", coordinator=3)
    script.log()
    script.marker("of an older coordinator", coordinator=2)
    script.produce("goes on", 2)
    script.marker("raised", epoch=1, coordinator=3, version=2, transaction_version=2)
    script.produce("fenced", 4)
    script.log()


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with kafka_running(tmp_path_factory.mktemp("kafka") / "kafka") as kafka:
        yield kafka.address


def told_by(address: str, *parts: Callable[[Script], None]) -> list[tuple[str, Any]]:
    host, port = address.rsplit(":", 1)
    with Client((host, int(port))) as client:
        client.create(TOPIC, 2)
        script = Script(client)
        for kind, key in enumerate("gx"):  # a group's and a transaction's: Kafka makes its topics now
            script.patiently(lambda kind=kind, key=key: (_found(client, kind, key),))
        for part in parts:
            script.note(part.__name__, None)
            part(script)
        return script.said


def _found(client: Client, kind: int, key: str) -> int:
    told = client.call(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key])
    return int(told.coordinators[0].error_code)


def test_the_same_requests_are_answered_alike(kafkas: str, tmp_path: Path) -> None:
    with running(tmp_path / "data", None, *SMALL) as tierd:
        ours = told_by(tierd.address, newest, older, tools)
        assert tierd.stop() == 0
    theirs = told_by(kafkas, newest, older, tools)
    differ = [f"tierd {mine}, Kafka {its}" for mine, its in zip(ours, theirs, strict=True) if mine != its]
    assert not differ, "\n".join(differ)
    assert len(ours) > 60
