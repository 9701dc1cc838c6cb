"""Partitions move between data directories: while they serve, over a restart, into a full disk."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import Client, batch, offsets_of
from broker.test_directories import ALTER_DIRS, Broker, broker, dirs, fail, started
from tierd.broker.registry import MoveRow
from tierd.wire.errors import ErrorCode

__all__ = ["broker"]


def alter(client: Client, path: Path, number: int = 0, *, topic: str = "t", version: int = 2) -> int:
    wish = [{"path": str(path), "topics": [{"name": topic, "partitions": (number,)}]}]
    return int(client.call(ALTER_DIRS, version, dirs=wish).results[0].partitions[0].error_code)


def other(broker: Broker, number: int = 0) -> Path:
    """The directory that does not have the partition."""
    here = broker.places()[f"t-{number}"]
    return broker.config.data_dirs[0].parent / ("b" if here == "a" else "a")


def moved(broker: Broker) -> None:
    broker.run(broker.broker.moves.idle.wait())


def test_a_partition_moves_while_it_is_written_and_read(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 1, **{"segment.bytes": "1048576"})
        for _ in range(30):
            assert client.produce("t", batch(20, size=5000)).error_code == 0
        stop = threading.Event()
        acked = [600]

        def produce() -> None:
            with Client(broker.address) as second:
                while not stop.is_set():
                    answer = second.produce("t", batch(20, size=200))
                    assert (answer.error_code, answer.base_offset) == (0, acked[0])
                    acked[0] += 20

        writer = threading.Thread(target=produce)
        writer.start()
        homes = []
        for _ in range(4):  # there and back again
            target = other(broker)
            assert alter(client, target) == 0
            moved(broker)
            homes.append(broker.places()["t-0"])
            assert homes[-1] == target.name
            assert offsets_of(client.fetch("t", 580).records)[:20] == list(range(580, 600))
        stop.set()
        writer.join()
        assert acked[0] > 600
        assert len(set(homes)) == 2
        end = broker.log("t").log_end
        assert end == acked[0]
        assert broker.registry.moves() == []
        place = broker.log("t").directory
    with started(tmp_path) as broker, Client(broker.address) as client:
        assert broker.log("t").directory == place
        found, offset = [], 0
        while offset < end:
            found += offsets_of(client.fetch("t", offset).records)
            offset = found[-1] + 1
        assert found == list(range(end))


@pytest.mark.parametrize("version", [1, 2])
def test_what_cannot_be_moved_is_refused(broker: Broker, client: Client, tmp_path: Path, version: int) -> None:
    client.create("t", 2)
    assert alter(client, tmp_path / "nowhere", version=version) == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(client, tmp_path / "a", 7, version=version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, tmp_path / "a", topic="none", version=version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, tmp_path / broker.places()["t-0"], version=version) == 0  # it is there
    assert not list(broker.broker.moves)
    (away,), (here,) = broker.in_directory("a"), broker.in_directory("b")
    fail(broker, "a")
    client.produce("t", batch(), away)
    broker.call(lambda: None)
    assert alter(client, tmp_path / "b", away, version=version) == ErrorCode.KAFKA_STORAGE_ERROR
    assert alter(client, tmp_path / "a", here, version=version) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_registry_that_stands_still_holds_up_the_move_alone(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("t", 1)
    note, begun, go, noted = broker.registry.note_move, threading.Event(), threading.Event(), []

    def still(row: MoveRow) -> None:
        begun.set()
        assert go.wait(60)
        noted.append(row)
        note(row)

    monkeypatch.setattr(broker.registry, "note_move", still)
    target = other(broker)
    wish = [{"path": str(target), "topics": [{"name": "t", "partitions": (0,)}]}]
    with Client(broker.address) as moving:
        moving.send(ALTER_DIRS, 2, dirs=wish)
        assert begun.wait(60)
        assert client.produce("t", batch(3)).error_code == ErrorCode.NONE
        assert noted == []
        go.set()
        assert moving.answer(ALTER_DIRS, 2).results[0].partitions[0].error_code == ErrorCode.NONE
        assert noted, "durable before the client hears of it"
    moved(broker)
    assert broker.places()["t-0"] == target.name


@pytest.fixture
def held(broker: Broker, client: Client) -> Iterator[threading.Event]:
    """The copying thread waits for this event; set at the end."""
    client.create("t", 1)
    client.produce("t", batch(3))
    event = threading.Event()
    broker.broker.moves._thread.submit(event.wait, 30)
    yield event
    event.set()


def test_describe_shows_the_copy_on_its_way(broker: Broker, client: Client, held: threading.Event) -> None:
    target = other(broker)
    assert alter(client, target) == 0
    rows = dirs(client, 5)
    (topic,) = rows[target.name].topics
    (row,) = topic.partitions
    assert (row.partition_index, row.partition_size, row.offset_lag, row.is_future_key) == (0, 0, 3, True)
    (source,) = (name for name in rows if name != target.name)
    (row,) = rows[source].topics[0].partitions
    assert (row.partition_size, row.offset_lag, row.is_future_key) == (broker.log("t").size_bytes, 0, False)
    assert rows[source].total_bytes > rows[source].usable_bytes > 0
    held.set()
    moved(broker)
    rows = dirs(client, 1)
    assert [row.is_future_key for row in rows[target.name].topics[0].partitions] == [False]
    assert rows[source].topics == ()
    (asked,) = client.call(35, 4, topics=[{"topic": "x", "partitions": (0,)}]).results[0].topics or ((),)
    assert asked == ()


def test_a_move_back_to_where_it_is_ends_the_move(broker: Broker, client: Client, held: threading.Event) -> None:
    target, here = other(broker), Path(broker.log("t").directory).parent
    assert alter(client, target) == 0
    assert alter(client, here) == 0
    client.create("next", 1)
    there = Path(broker.log("next").directory).parent
    assert alter(client, here if there == target else target, topic="next") == 0
    held.set()
    moved(broker)  # the next one's turn comes when the first one has left nothing behind
    assert not list(target.glob("t-0*-future"))
    assert broker.log("t").directory.parent == here
    assert broker.registry.moves() == []


def test_a_deleted_topic_takes_its_move_along(broker: Broker, client: Client, held: threading.Event) -> None:
    target = other(broker)
    assert alter(client, target) == 0
    client.call(20, 6, topics=[{"name": "t", "topic_id": None}], timeout=1000)
    held.set()
    moved(broker)
    assert not list(target.glob("t-0*-future"))
    assert broker.registry.moves() == []


def test_a_full_target_ends_the_move_and_nothing_else(broker: Broker, client: Client) -> None:
    client.create("t", 1)
    client.produce("t", batch(3))
    target = other(broker)
    broker.call(lambda: broker.faults.fail(errno.ENOSPC, "pwrite", below=target))
    assert alter(client, target) == 0
    moved(broker)
    assert broker.places()["t-0"] != target.name
    assert client.produce("t", batch(3)).base_offset == 3
    assert (broker.registry.moves(), dirs(client)[target.name].error_code) == ([], 0)
    broker.call(broker.faults.heal)
    assert alter(client, target) == 0
    moved(broker)
    assert broker.places()["t-0"] == target.name


@pytest.mark.parametrize("step", ["mkdir", "write_new", "pwrite", "fsync", "fsync_dir", "replace"])
def test_a_target_that_fails_leaves_the_source_at_work(broker: Broker, client: Client, step: str) -> None:
    client.create("t", 1)
    client.produce("t", batch(3))
    target = other(broker)
    fail(broker, target.name, step)
    assert alter(client, target) == 0
    moved(broker)
    assert client.produce("t", batch(3)).base_offset == 3
    assert dirs(client)[target.name].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.call(broker.faults.heal)


def test_a_source_that_fails_ends_the_move(broker: Broker, client: Client, held: threading.Event) -> None:
    target = other(broker)
    assert alter(client, target) == 0
    fail(broker, broker.places()["t-0"])
    assert client.produce("t", batch(3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    held.set()
    moved(broker)
    assert client.fetch("t", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.call(broker.faults.heal)


def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    with started(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 3)
        client.produce("t", batch(3))
        target = other(broker)
        event = threading.Event()
        broker.broker.moves._thread.submit(event.wait, 30)
        assert alter(client, target, 0) == 0
        assert alter(client, other(broker, 1), 1) == 0  # its turn does not come
        expected = {"t-0": target.name, "t-1": other(broker, 1).name}
        event.set()
    assert not list(tmp_path.glob("?/*-future")), "a Kafka would take a copy for whole"
    with started(tmp_path) as broker, Client(broker.address) as client:
        moved(broker)
        assert {name: broker.places()[name] for name in expected} == expected
        assert offsets_of(client.fetch("t", 0).records) == [0, 1, 2]


def test_reassignments_of_one_node(broker: Broker, client: Client) -> None:
    client.create("t", 2)
    wanted = [((1,), 0), ((2,), 39), (None, 85)]
    for replicas, code in wanted:
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": replicas}]}]
        answer = client.call(45, 1, timeout=1000, topics=topics, allow_replication_factor_change=True)
        assert answer.responses[0].partitions[0].error_code == code
    topics = [{"name": "x", "partitions": [{"partition_index": 0, "replicas": (1,)}]}]
    assert client.call(45, 0, timeout=1000, topics=topics).responses[0].partitions[0].error_code == 3
    assert client.call(46, 0, timeout=1000, topics=None).topics == ()
