"""Several data directories: where partitions go, and what a failing disk takes with it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch, offsets_of
from broker.running import Running, settings
from kit.clock import FakeClock
from kit.failing_disk import FailingDisk
from tierd.base.clock import SystemClock
from tierd.base.errors import StartRefused
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker.homes import NoDirectoryLeft, unusable
from tierd.broker.partitions import Partitions
from tierd.broker.registry import Registry, settings_for
from tierd.config.resolve import TopicDefaults
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.wire.errors import ErrorCode

METADATA, DELETE, ALTER_DIRS, DESCRIBE_DIRS = 3, 20, 34, 35


class Broker(Running):
    """Over the directories a and b of *root*, on a disk that can be made to fail."""

    def __init__(self, root: Path, *, without: Path | None = None) -> None:
        super().__init__(settings(root, data_dirs=(root / "a", root / "b")), None, SystemClock())
        self.faults = self.disk = FailingDisk()
        if without is not None:
            self.unusable = [unusable(without, None, "no such disk")]

    def places(self) -> dict[str, str]:
        """Partition -> name of its directory."""
        return self.call(
            lambda: {str(p): self.partitions.homes.of(p.log).path.name for p in sorted(self.partitions, key=str)}
        )

    def in_directory(self, name: str) -> list[int]:
        """Numbers of the partitions of the topic t there."""
        return [int(p.rpartition("-")[2]) for p, place in self.places().items() if place == name and p[:2] == "t-"]


@contextmanager
def started(root: Path, **how: Any) -> Iterator[Broker]:
    broker = Broker(root, **how)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with started(tmp_path) as running:
        yield running


def leaders(client: Client, topic: str) -> dict[int, tuple[int, int]]:
    """Partition -> (error, leader)."""
    answer = client.call(METADATA, 12, topics=[{"name": topic, "topic_id": None}], allow_auto_topic_creation=False)
    return {p.partition_index: (p.error_code, p.leader_id) for p in answer.topics[0].partitions}


def list_offsets(client: Client, number: int) -> int:
    asked = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1}]
    topics = [{"name": "t", "partitions": asked}]
    return int(client.call(2, 8, replica_id=-1, topics=topics).topics[0].partitions[0].error_code)


def dirs(client: Client, version: int = 4) -> dict[str, Any]:
    return {Path(row.log_dir).name: row for row in client.call(DESCRIBE_DIRS, version, topics=None).results}


def fail(broker: Broker, name: str, *steps: str) -> None:
    path = broker.config.data_dirs[0].parent / name
    broker.call(lambda: broker.faults.fail(errno.EIO, *steps, below=path))


def test_each_partition_goes_where_the_fewest_are(broker: Broker, client: Client) -> None:
    client.create("one")
    client.create("t", 5)
    counts = list(broker.places().values())
    assert (counts.count("a"), counts.count("b")) == (3, 3)


def test_a_failing_disk_takes_only_its_own_partitions_offline(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 4)
        for number in range(4):
            assert client.produce("t", batch(3), number).error_code == 0
        ours, others = broker.in_directory("a"), broker.in_directory("b")
        fail(broker, "a")
        assert client.produce("t", batch(3), ours[0]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.call(lambda: None)
        for number in ours:
            assert client.produce("t", batch(3), number).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert client.fetch("t", 0, number).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert list_offsets(client, number) == ErrorCode.KAFKA_STORAGE_ERROR
            assert leaders(client, "t")[number] == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        for number in others:
            assert client.produce("t", batch(3), number).base_offset == 3
            assert offsets_of(client.fetch("t", 0, number).records) == list(range(6))
            assert leaders(client, "t")[number] == (0, 1)
        assert (dirs(client)["a"].error_code, dirs(client)["b"].error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
        client.create("later", 2)
        assert {place for name, place in broker.places().items() if "later" in name} == {"b"}
        shown = broker.run(broker.broker.status())
        (a, b) = shown["directories"]
        assert (a["state"], b["state"]) == ("offline", "online")
        assert "Input/output error" in a["reason"]
        assert (a["free_bytes"], a["partitions"], b["partitions"]) == (None, 2, 4)
        rows = {(row["topic"], row["partition"]): row for row in shown["partitions"]}
        assert {number for (topic, number), row in rows.items() if topic == "t" and row["offline"]} == set(ours)
        assert rows["t", ours[0]]["directory"] == str(tmp_path / "a")
        assert rows["t", ours[0]]["log_end"] == 3
        assert rows["t", others[0]]["offline"] is None
    with started(tmp_path) as broker, Client(broker.address) as client:
        assert leaders(client, "t") == dict.fromkeys(range(4), (0, 1))
        for number in ours:
            assert offsets_of(client.fetch("t", 0, number).records) == [0, 1, 2]
            assert client.produce("t", batch(3), number).base_offset == 3


def test_metadata_names_the_replicas_of_an_offline_partition(broker: Broker, client: Client) -> None:
    client.create("t", 2)
    (ours,) = broker.in_directory("a")
    fail(broker, "a")
    client.produce("t", batch(), ours)
    broker.call(lambda: None)
    answer = client.call(METADATA, 12, topics=None)
    row = next(p for p in answer.topics[0].partitions if p.partition_index == ours)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ((1,), (1,), (1,))
    assert row.leader_epoch == 0


def test_a_long_poll_hears_of_the_outage(broker: Broker, client: Client) -> None:
    client.create("t", 2)
    (ours,) = broker.in_directory("a")
    client.send_fetch([("t", ours, 0, 1 << 20)], max_wait=20_000)
    with Client(broker.address) as other:
        fail(broker, "a")
        other.produce("t", batch(), ours)
    assert client.fetched()[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_read_that_fails_counts(broker: Broker, client: Client) -> None:
    client.create("t", 2)
    (ours,) = broker.in_directory("a")
    partition = broker.partitions.get("t", ours)
    assert partition is not None
    error = OSError(errno.EIO, "Input/output error")
    broker.call(lambda: broker.partitions.note(partition, error))
    broker.call(lambda: None)
    assert client.fetch("t", 0, ours).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_when_the_last_directory_fails_the_daemon_ends(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    with Client(broker.address) as client:
        client.create("t", 2)
        fail(broker, "a")
        fail(broker, "b")
        for number in range(2):
            assert client.produce("t", batch(), number).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    task = broker.broker.housekeeping_task
    assert task is not None
    with pytest.raises(NoDirectoryLeft, match=r"a is offline.*b is offline"):
        broker.run(task)
    for directory in broker.directories:
        broker.call(lambda directory=directory: directory.close(clean=True))  # type: ignore[misc]
    broker.run(broker.broker.server.stop(0))
    broker.run(broker.broker.stop_moves())
    broker.registry.close()
    broker.end()


# A start without one of them.


def test_a_start_without_a_directory_makes_nothing_of_it_anew(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 4)
        for number in range(4):
            client.produce("t", batch(3), number)
        ours = broker.in_directory("a")
    with started(tmp_path, without=tmp_path / "a") as broker, Client(broker.address) as client:
        for number in range(4):
            code = ErrorCode.KAFKA_STORAGE_ERROR if number in ours else 0
            assert client.produce("t", batch(3), number).error_code == code
            assert leaders(client, "t")[number] == ((5, -1) if number in ours else (0, 1))
        client.create("new", 2)
        shown = broker.run(broker.broker.status())
        row = next(r for r in shown["partitions"] if r["topic"] == "t" and r["partition"] == ours[0])
        assert (row["log_end"], row["offline"]) == (None, f"{tmp_path / 'a'} is offline: no such disk")
        assert shown["directories"][-1] == {
            "path": str(tmp_path / "a"),
            "id": None,
            "state": "offline",
            "reason": "no such disk",
            "free_bytes": None,
            "partitions": 2,
        }
    with started(tmp_path) as broker, Client(broker.address) as client:
        for number in range(4):
            expected = list(range(3 if number in ours else 6))
            assert offsets_of(client.fetch("t", 0, number).records) == expected


def test_a_topic_deleted_while_its_directory_is_away_does_not_come_back(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 2)
    with started(tmp_path, without=tmp_path / "a") as broker, Client(broker.address) as client:
        asked = [{"name": "t", "topic_id": None}]
        assert client.call(DELETE, 6, topics=asked, timeout=1000).responses[0].error_code == 0
        assert client.create("t", 2).error_code == 0
        assert broker.places() == {"t-0": "b", "t-1": "b"}
        client.produce("t", batch(3))
    with started(tmp_path) as broker, Client(broker.address) as client:
        assert broker.places() == {"t-0": "b", "t-1": "b"}
        assert offsets_of(client.fetch("t", 0).records) == [0, 1, 2]
        assert broker.registry.deleted() == []
    assert not list((tmp_path / "a").glob("t-?"))


def test_an_adopted_topic_is_not_forgotten_with_its_directory(tmp_path: Path) -> None:
    """Kafka may have spread its partitions unevenly; the registry knows which of them were there."""
    with started(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 2)
    (tmp_path / "state" / "registry.sqlite").unlink()
    with started(tmp_path) as broker, Client(broker.address) as client:
        (ours,) = broker.in_directory("a")
    with started(tmp_path, without=tmp_path / "a") as broker, Client(broker.address) as client:
        assert client.produce("t", batch(), ours).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def opened(root: Path, name: str, registry: Registry) -> LogDirectory:
    return LogDirectory.open(
        root / name,
        PosixDisk(),
        FakeClock(),
        settings_for=settings_for(registry, TopicDefaults(tiering=False)),
        node_id=1,
        cluster_id=None,
        set_aside=root / "aside",
    )


def test_a_partition_in_two_directories_is_refused_with_both_named(tmp_path: Path) -> None:
    registry = Registry.open(tmp_path / "registry.sqlite")
    topic, layers = Uuid(b"t" * 16), TopicDefaults(tiering=False)
    both = [opened(tmp_path, name, registry) for name in "ab"]
    for directory in both:
        directory.create(TopicPartition("t", 0), topic, layers.resolve("t"))
    with pytest.raises(StartRefused, match=r"t-0 is in .*/a and in .*/b"):
        Partitions(registry, both, layers, FakeClock()).load()
    for directory in both:
        directory.close(clean=False)
    registry.close()


def test_a_partition_moved_by_hand_is_found(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 2)
        (number,) = broker.in_directory("a")
        client.produce("t", batch(3), number)
        part = PartitionId(broker.log("t", number).topic_id, number)
    (tmp_path / "a" / f"t-{number}").rename(tmp_path / "b" / f"t-{number}")
    with started(tmp_path) as broker, Client(broker.address) as client:
        assert broker.in_directory("b") == [0, 1]
        assert offsets_of(client.fetch("t", 0, number).records) == [0, 1, 2]
        assert broker.registry.placements()[part] == str(broker.directories[1].directory_id)
