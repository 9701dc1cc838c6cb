"""Topics come and go on a disk that is slow or stands still, and others are answered meanwhile. Real sockets."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running, settings
from kit.slow_disk import SlowDisk
from tierd.base.clock import SystemClock
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

PROMPT_S = 0.5
"""Generous: an answer takes a millisecond."""


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


def stand_still(disk: SlowDisk) -> None:
    disk.stands.clear()
    disk.go.clear()


def test_others_are_served_while_a_thousand_partitions_are_made_and_deleted(broker: Running, disk: SlowDisk) -> None:
    disk.delay_s = 0.004
    with Client(broker.address) as one, Client(broker.address) as other:
        other.create("t")
        disk.threads.clear()
        for send, done in ((lambda: send_create(one, "many", 1000), created), (lambda: send_delete(one, "many"), gone)):
            slowest, busy = 0.0, True
            send()
            while busy:
                at = time.monotonic()
                ask(other)
                assert other.produce("t", batch(1)).error_code == ErrorCode.NONE
                busy = broker.call(broker.broker.topics._changing.locked)
                slowest = max(slowest, time.monotonic() - at)
            assert done(one).error_code == ErrorCode.NONE
        assert slowest < PROMPT_S
    assert len(list((broker.directories[0].path).glob("many*-delete"))) == 1000
    assert broker._thread.ident not in disk.threads


def gone(client: Client) -> Any:
    return client.answer(int(ApiKey.DELETE_TOPICS), 5).responses[0]


def test_others_get_their_turn_while_records_of_many_partitions_are_deleted(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        one.create("t", partitions=50)
        for number in range(50):
            assert one.produce("t", batch(3), partition=number).error_code == ErrorCode.NONE
        disk.delay_s = 0.01
        rows = [{"partition_index": number, "offset": 2} for number in range(50)]
        one.send(int(ApiKey.DELETE_RECORDS), 2, topics=[{"name": "t", "partitions": rows}], timeout=5000)
        answered = 0
        while broker.call(lambda: broker.log("t", 49).log_start) == 0:
            ask(other)
            answered += 1
        answer = one.answer(int(ApiKey.DELETE_RECORDS), 2)
        assert {row.low_watermark for row in answer.topics[0].partitions} == {2}
        assert answered > 2


def test_a_disk_that_stands_still_stops_nobody_else(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as two, Client(broker.address) as other:
        other.create("t")
        stand_still(disk)
        send_create(one, "new", 3)
        assert disk.stands.wait(20)
        ask(other)
        assert other.produce("t", batch(1)).base_offset == 0
        assert other.fetch("t", 0).error_code == ErrorCode.NONE
        metadata = other.call(int(ApiKey.METADATA), 9, topics=[{"name": "new"}], allow_auto_topic_creation=False)
        assert [row.error_code for row in metadata.topics[0].partitions] == [ErrorCode.LEADER_NOT_AVAILABLE] * 3
        disk.go.set()
        assert created(one).error_code == ErrorCode.NONE
        stand_still(disk)
        send_delete(two, "new")
        assert disk.stands.wait(20)
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
        assert disk.stands.wait(20)
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
        assert disk.stands.wait(20)
    with Client(broker.address) as other:
        disk.go.set()
        assert other.create("new").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert other.produce("new", batch(1), partition=199).base_offset == 0


def test_a_topic_that_is_there_is_found_while_another_is_made(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        other.create("t")
        stand_still(disk)
        send_create(one, "new", 1)
        assert disk.stands.wait(20)
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
        assert disk.stands.wait(20)
        stopping = asyncio.run_coroutine_threadsafe(broker.broker.stop(quick=True), broker._loop)
        disk.go.set()
        stopping.result(30)
    topic = broker.partitions.topic("new")
    assert topic is not None
    assert len(topic.partitions) == 100
    broker.stop()
