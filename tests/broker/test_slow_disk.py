"""Topics come and go on a disk that is slow or stands still, and others are answered meanwhile. Real sockets."""

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch, offsets_of
from broker.running import Running, settings
from kit.slow_disk import SlowDisk
from tierd.base.clock import SystemClock
from tierd.base.errors import DiskFull
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk("topics")


@pytest.fixture
def broker(tmp_path: Path, disk: SlowDisk) -> Iterator[Running]:
    with_disk = Running(settings(tmp_path), None, SystemClock())
    with_disk.disk = disk
    with_disk.start()
    try:
        yield with_disk
    finally:
        disk.go.set()
        with_disk.stop()


def ask(client: Client) -> None:
    client.call(int(ApiKey.API_VERSIONS), 3, client_software_name="t", client_software_version="1")


def send_create(client: Client, topic: str, partitions: int) -> None:
    row = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
    client.send(int(ApiKey.CREATE_TOPICS), 7, topics=[row], timeout=5000, validate_only=False)


def created(client: Client) -> Any:
    return client.answer(int(ApiKey.CREATE_TOPICS), 7).topics[0]


def send_delete(client: Client, topic: str) -> None:
    client.send(int(ApiKey.DELETE_TOPICS), 5, topic_names=[topic], timeout=5000)


def stand_still(disk: SlowDisk, whose: str = "topics") -> None:
    disk.whose = whose
    disk.stands.clear()
    disk.go.clear()


def test_others_are_served_while_a_thousand_partitions_are_made_and_deleted(broker: Running, disk: SlowDisk) -> None:
    disk.delay_s = 0.004
    with Client(broker.address) as one, Client(broker.address) as other:
        other.create("t")
        disk.threads.clear()
        for send, done in ((lambda: send_create(one, "many", 1000), created), (lambda: send_delete(one, "many"), gone)):
            slowest, asked, busy, begun = 0.0, 0, True, time.monotonic()
            send()
            while busy:
                at = time.monotonic()
                ask(other)
                assert other.produce("t", batch(1)).error_code == ErrorCode.NONE
                busy = broker.call(broker.partitions.changes.turn.locked)
                slowest, asked = max(slowest, time.monotonic() - at), asked + 1
            assert done(one).error_code == ErrorCode.NONE
            assert asked > 4
            assert slowest < max((time.monotonic() - begun) / 2, 1), "1000 fsyncs are 4 s"
    assert len(list((broker.directories[0].path).glob("many*-delete"))) == 1000
    assert broker._thread.ident not in disk.threads


def gone(client: Client) -> Any:
    return client.answer(int(ApiKey.DELETE_TOPICS), 5).responses[0]


def test_nobody_else_waits_for_the_disk_while_records_are_deleted(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        one.create("t", partitions=50)
        for number in range(50):
            assert one.produce("t", batch(3), partition=number).error_code == ErrorCode.NONE
        disk.threads.clear()
        stand_still(disk, "asyncio")
        send_delete_records(one, range(50), 2)
        assert disk.stands.wait(60)
        ask(other)
        assert other.produce("t", batch(1)).base_offset == 3
        assert other.list_offsets("t", -2).offset == 0, "not durable yet"
        disk.go.set()
        assert deleted_records(one) == [(ErrorCode.NONE, 2)] * 50
        assert other.list_offsets("t", -2).offset == 2
        assert broker._thread.ident not in disk.threads
    listed = (broker.directories[0].path / "log-start-offset-checkpoint").read_text()
    assert sorted(listed.splitlines()[2:]) == sorted(f"t {number} 2" for number in range(50))


WAYS = ("total retention", "total retention of a tiered partition", "local retention")


@pytest.mark.parametrize("way", WAYS)
def test_nobody_waits_for_the_disk_while_retention_is_at_work(broker: Running, disk: SlowDisk, way: str) -> None:
    with Client(broker.address) as client:
        client.create("t", internal_segment_bytes="1000", retention_bytes="0")
        for _ in range(20):
            client.produce("t", batch(3))
        partition = broker.partitions.get("t", 0)
        assert partition is not None
        broker.run(broker.broker.housekeeping.flush([partition]))
        target = broker.call(partition.view).active_base
        works = {
            WAYS[0]: broker.broker.housekeeping._retain,
            WAYS[1]: lambda: broker.local.move_log_start(partition.id, target),
            WAYS[2]: lambda: broker.local.evict(partition.id, target),
        }
        disk.threads.clear()
        stand_still(disk, "asyncio")
        working = asyncio.run_coroutine_threadsafe(works[way](), broker._loop)
        assert disk.stands.wait(60)
        ask(client)
        assert offsets_of(client.fetch("t", 0).records)[0] == 0
        assert client.produce("t", batch(1)).base_offset == 60
        disk.go.set()
        working.result(60)
        assert partition.log.local_start == target
        assert client.list_offsets("t", -2).offset == (0 if way == WAYS[2] else target)
        assert broker._thread.ident not in disk.threads


def test_records_of_a_topic_that_is_deleted_meanwhile(broker: Running, disk: SlowDisk) -> None:
    """The one that takes its name has all its records."""
    with Client(broker.address) as one, Client(broker.address) as other:
        one.create("t")
        one.produce("t", batch(3))
        stand_still(disk, "asyncio")
        send_delete_records(one, [0], 2)
        assert disk.stands.wait(60)
        send_delete(other, "t")
        while broker.partitions.get("t", 0) is not None:
            pass
        disk.go.set()
        assert deleted_records(one) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
        assert gone(other).error_code == ErrorCode.NONE
        one.create("t")
        one.produce("t", batch(3))
        assert one.list_offsets("t", -2).offset == 0
    assert "t 0" not in (broker.directories[0].path / "log-start-offset-checkpoint").read_text()


def test_a_checkpoint_that_comes_in_between_takes_nothing_back(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one:
        one.create("t")
        one.produce("t", batch(3))
        stand_still(disk, "asyncio")
        send_delete_records(one, [0], 2)
        assert disk.stands.wait(60)
        write = broker.call(broker.directories[0].checkpoint_job)
        disk.go.set()
        assert deleted_records(one) == [(ErrorCode.NONE, 2)]
        write()
    assert "t 0 2" in (broker.directories[0].path / "log-start-offset-checkpoint").read_text()


def registry_stands_still(broker: Running, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Set once it is to note settings; to be set when it may."""
    set_config, begun, go = broker.registry.set_config, threading.Event(), threading.Event()

    def still(topic_id: Any, config: Any) -> None:
        begun.set()
        assert go.wait(60)
        set_config(topic_id, config)

    monkeypatch.setattr(broker.registry, "set_config", still)
    return begun, go


def test_settings_change_on_a_registry_that_stands_still(broker: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = registry_stands_still(broker, monkeypatch)
    with Client(broker.address) as one, Client(broker.address) as other:
        one.create("t")
        change = {"name": "retention.ms", "config_operation": 0, "value": "86400000"}
        asked = {"resource_type": 2, "resource_name": "t", "configs": [change]}
        one.send(int(ApiKey.INCREMENTAL_ALTER_CONFIGS), 1, resources=[asked], validate_only=False)
        assert begun.wait(60)
        assert other.produce("t", batch(1)).error_code == ErrorCode.NONE
        assert broker.log("t").settings.retention_ms != 86_400_000, "the registry does not have it yet"
        go.set()
        answer = one.answer(int(ApiKey.INCREMENTAL_ALTER_CONFIGS), 1)
        assert answer.responses[0].error_code == ErrorCode.NONE
    assert broker.log("t").settings.retention_ms == 86_400_000


def test_what_the_bucket_says_of_topics_on_a_registry_that_stands_still(
    broker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = registry_stands_still(broker, monkeypatch)
    with Client(broker.address) as one, Client(broker.address) as other:
        one.create("t")
        topic = broker.partitions.topic("t")
        assert topic is not None
        broker.call(lambda: broker.local.topic_is_newer(topic.id, {"retention.ms": "1000"}))
        broker.call(lambda: broker.local.tombstone_written(topic.id))
        assert begun.wait(60)
        assert other.produce("t", batch(1)).error_code == ErrorCode.NONE
        assert topic.settings.retention_ms == 1000, "at once: what older limits release is gone"
        assert broker.local.unnoted == {topic.id}
        assert broker.partitions.topic("t") is topic, "in the order in which it was told"
        go.set()
        broker.run(broker.partitions.changes.settle())
        assert not broker.local.unnoted
        assert broker.partitions.topic("t") is None
        assert [row.id for row in broker.registry.deleted()] == [topic.id]


def test_newer_settings_for_which_the_registry_has_no_room_hold_and_are_asked_for_again(
    broker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(topic_id: Any, config: Any) -> None:
        raise DiskFull("no room")

    with Client(broker.address) as client:
        client.create("t")
    topic = broker.partitions.topic("t")
    assert topic is not None
    monkeypatch.setattr(broker.registry, "set_config", full)
    broker.call(lambda: broker.local.topic_is_newer(topic.id, {"retention.ms": "1000"}))
    broker.run(broker.partitions.changes.settle())
    assert topic.settings.retention_ms == 1000
    assert broker.local.unnoted == {topic.id}, "the epoch of this run is not remembered then"


def test_producer_ids_of_a_registry_that_stands_still(broker: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    put, begun, go = broker.registry.put, threading.Event(), threading.Event()

    def still(key: str, value: str) -> None:
        begun.set()
        assert go.wait(60)
        put(key, value)

    monkeypatch.setattr(broker.registry, "put", still)
    init = int(ApiKey.INIT_PRODUCER_ID)
    with Client(broker.address) as one, Client(broker.address) as two, Client(broker.address) as other:
        other.create("t")
        for client in (one, two):
            client.send(init, 4, transactional_id=None, transaction_timeout=1000, producer_id=-1, producer_epoch=-1)
        assert begun.wait(60)
        assert other.produce("t", batch(1)).error_code == ErrorCode.NONE
        go.set()
        given = [client.answer(init, 4) for client in (one, two)]
        assert [answer.error_code for answer in given] == [ErrorCode.NONE] * 2
        assert abs(given[0].producer_id - given[1].producer_id) == 1, "of one block"


def send_delete_records(client: Client, numbers: Iterable[int], offset: int) -> None:
    rows = [{"partition_index": number, "offset": offset} for number in numbers]
    client.send(int(ApiKey.DELETE_RECORDS), 2, topics=[{"name": "t", "partitions": rows}], timeout=5000)


def deleted_records(client: Client) -> list[tuple[int, int]]:
    rows = client.answer(int(ApiKey.DELETE_RECORDS), 2).topics[0].partitions
    return [(row.error_code, row.low_watermark) for row in rows]


def test_a_disk_that_stands_still_stops_nobody_else(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as two, Client(broker.address) as other:
        other.create("t")
        stand_still(disk)
        send_create(one, "new", 3)
        assert disk.stands.wait(60)
        ask(other)
        assert other.produce("t", batch(1)).base_offset == 0
        assert other.fetch("t", 0).error_code == ErrorCode.NONE
        metadata = other.call(int(ApiKey.METADATA), 9, topics=[{"name": "new"}], allow_auto_topic_creation=False)
        assert [row.error_code for row in metadata.topics[0].partitions] == [ErrorCode.LEADER_NOT_AVAILABLE] * 3
        disk.go.set()
        assert created(one).error_code == ErrorCode.NONE
        stand_still(disk)
        send_delete(two, "new")
        while broker.partitions.topic("new") is not None:
            pass
        ask(other)
        assert other.produce("new", batch(1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        disk.go.set()
        assert gone(two).error_code == ErrorCode.NONE
        assert other.create("new").error_code == ErrorCode.NONE


def test_topics_that_metadata_makes_stop_nobody_else(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        stand_still(disk)
        names = [{"name": f"t{n}"} for n in range(150)]
        one.send(int(ApiKey.METADATA), 9, topics=names, allow_auto_topic_creation=True)
        assert disk.stands.wait(60)
        ask(other)
        disk.go.set()
        errors = [row.error_code for row in one.answer(int(ApiKey.METADATA), 9).topics]
        assert errors == [ErrorCode.NONE] * 100 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 50
        again = one.call(int(ApiKey.METADATA), 9, topics=names, allow_auto_topic_creation=True)
        assert {row.error_code for row in again.topics} == {ErrorCode.NONE}


def test_a_client_that_goes_away_leaves_no_half_topic(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        stand_still(disk)
        send_create(one, "new", 200)
        assert disk.stands.wait(60)
    with Client(broker.address) as other:
        disk.go.set()
        assert other.create("new").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert other.produce("new", batch(1), partition=199).base_offset == 0


def test_a_topic_that_is_there_is_found_while_another_is_made(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        other.create("t")
        stand_still(disk)
        send_create(one, "new", 1)
        assert disk.stands.wait(60)
        shown = other.call(int(ApiKey.METADATA), 9, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        assert shown.topics[0].error_code == ErrorCode.NONE
        assert broker.run(broker.broker.topics.ensure("t", 1)).name == "t"
        disk.go.set()
        assert created(one).error_code == ErrorCode.NONE


def test_a_stop_waits_for_what_has_begun(tmp_path: Path, disk: SlowDisk) -> None:
    broker = Running(settings(tmp_path), None, SystemClock())
    broker.disk = disk
    broker.start()
    with Client(broker.address) as one:
        stand_still(disk)
        send_create(one, "new", 100)
        assert disk.stands.wait(60)
        stopping = asyncio.run_coroutine_threadsafe(broker.broker.stop(quick=True), broker._loop)
        disk.go.set()
        stopping.result(60)
    topic = broker.partitions.topic("new")
    assert topic is not None
    assert len(topic.partitions) == 100
    broker.stop()
