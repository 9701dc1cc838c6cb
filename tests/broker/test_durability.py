"""acks=all that waits for the disk: when it is answered, what others see meanwhile, how many share an fsync."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client import T0, Client, batch, offsets_of
from broker.running import Running, settings
from kit.clock import FakeClock
from kit.failing_disk import FailingDisk
from kit.tiers import until
from tierd.broker import housekeeping
from tierd.broker.homes import NoDirectoryLeft
from tierd.storage.disk import PosixDisk
from tierd.wire.errors import ErrorCode

DISK = {"tierd_acks_durability": "disk"}


class SlowDisk(PosixDisk):
    """Each fsync of a `.log` waits until it is let through; closed at first only when asked."""

    def __init__(self) -> None:
        self.open_door = threading.Event()
        self.open_door.set()
        self.syncing = threading.Semaphore(0)
        self.syncs: list[Path] = []
        self.without_descriptors = 0
        """So many of them find that the process may open no more files."""

    def fsync_file(self, path: Path) -> None:
        if path.suffix == ".log":
            self.syncs.append(path)
            self.syncing.release()
            assert self.open_door.wait(60)
            if self.without_descriptors:
                self.without_descriptors -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        super().fsync_file(path)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def broker(tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Housekeeping is asleep: only who waits makes anything durable."""
    monkeypatch.setattr(housekeeping, "BUSY_TICK_S", 3600)
    started = Running(settings(tmp_path), None, FakeClock())
    started.disk = disk
    started.start()
    yield started
    disk.open_door.set()
    started.stop()


def begun(broker: Running, client: Client, disk: SlowDisk, **config: str) -> None:
    """Topic `t` with three records that are on the disk; from now on fsync hangs."""
    client.create("t", **config)
    assert client.produce("t", batch()).error_code == 0
    disk.open_door.clear()
    while disk.syncing.acquire(blocking=False):
        pass


def test_disk_is_answered_after_fsync_and_nobody_sees_more(broker: Running, client: Client, disk: SlowDisk) -> None:
    begun(broker, client, disk, **DISK)
    assert broker.log("t").recovery_point == 3
    with Client(broker.address) as producer, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(producer.produce, "t", batch(t0=T0 + 100))
        assert disk.syncing.acquire(timeout=60)
        assert broker.log("t").log_end == 6
        assert not answer.done()
        for isolation in (0, 1):
            got = client.fetch("t", 0, isolation_level=isolation)
            assert (offsets_of(got.records), got.high_watermark, got.last_stable_offset) == ([0, 1, 2], 3, 3)
            ahead = client.fetch("t", 4, isolation_level=isolation)
            assert (ahead.error_code, ahead.records or b"") == (0, b"")
            assert client.list_offsets("t", -1, isolation_level=isolation).offset == 3
        assert client.list_offsets("t", T0 + 100).offset == -1
        disk.open_door.set()
        assert answer.result(60).base_offset == 3
    assert broker.log("t").recovery_point == 6
    assert client.list_offsets("t", -1).offset == 6
    assert offsets_of(client.fetch("t", 3).records) == [3, 4, 5]


def test_a_flush_without_descriptors_is_tried_again(broker: Running, client: Client, disk: SlowDisk) -> None:
    client.create("t", **DISK)
    disk.without_descriptors = 2
    assert client.produce("t", batch()).error_code == 0
    assert disk.without_descriptors == 0
    assert broker.log("t").failed is None
    assert broker.log("t").recovery_point == 3


def test_cache_is_answered_at_once(broker: Running, client: Client, disk: SlowDisk) -> None:
    client.create("t")
    disk.open_door.clear()
    assert client.produce("t", batch()).error_code == 0
    assert client.list_offsets("t", -1).offset == 3
    assert disk.syncs == []


def test_a_waiting_fetch_hears_of_the_disk(broker: Running, client: Client, disk: SlowDisk) -> None:
    begun(broker, client, disk, **DISK)
    with Client(broker.address) as producer, Client(broker.address) as consumer, ThreadPoolExecutor(1) as threads:
        consumer.send_fetch([("t", 0, 3, 1000)], max_wait=20_000)
        answer = threads.submit(producer.produce, "t", batch())
        assert disk.syncing.acquire(timeout=60)
        disk.open_door.set()
        assert offsets_of(consumer.fetched()[0].records) == [3, 4, 5]
        assert answer.result(60).error_code == 0


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_do_not_wait_but_are_seen_no_earlier(
    acks: int, broker: Running, client: Client, disk: SlowDisk
) -> None:
    begun(broker, client, disk, **DISK)
    if acks:
        assert client.produce("t", batch(), acks=1).base_offset == 3
    else:
        client.send(0, 9, acks=0, topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": batch()}]}])
        assert disk.syncing.acquire(timeout=60)
    assert client.list_offsets("t", -1).offset == 3
    client.send_fetch([("t", 0, 3, 1000)], max_wait=20_000)
    disk.open_door.set()
    assert offsets_of(client.fetched()[0].records) == [3, 4, 5]


def test_one_fsync_answers_all_who_wait(broker: Running, client: Client, disk: SlowDisk) -> None:
    """While the first is being synced the others come: they share the second."""
    begun(broker, client, disk, **DISK)
    before = len(disk.syncs)
    with ThreadPoolExecutor(20) as threads:
        clients = [Client(broker.address) for _ in range(20)]
        first = threads.submit(clients[0].produce, "t", batch())
        assert disk.syncing.acquire(timeout=60)
        others = [threads.submit(one.produce, "t", batch()) for one in clients[1:]]
        until("what is waited for", lambda: broker.log("t").log_end == 3 + 20 * 3)
        disk.open_door.set()
        firsts = {done.result(60).base_offset for done in (first, *others)}
        for one in clients:
            one.__exit__()
    assert firsts == set(range(3, 63, 3))
    assert len(disk.syncs) - before == 2
    counters = broker.broker.counters
    print(f"{counters.committed_requests / counters.commits:.1f} appends per fsync")
    assert (counters.committed_requests, counters.commits) == (21, 3)


def test_several_partitions_share_a_round(broker: Running, client: Client, disk: SlowDisk) -> None:
    client.create("t", partitions=3, **DISK)
    data = [{"name": "t", "partition_data": [{"index": index, "records": batch()} for index in range(3)]}]
    rows = client.call(0, 9, acks=-1, topic_data=data).responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert sorted(path.parent.name for path in disk.syncs) == ["t-0", "t-1", "t-2"]


@pytest.mark.parametrize("version", [9, 12])
def test_a_duplicate_waits_for_what_it_repeats(version: int, broker: Running, client: Client, disk: SlowDisk) -> None:
    begun(broker, client, disk, **DISK)
    raw = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    with Client(broker.address) as one, Client(broker.address) as two, ThreadPoolExecutor(2) as threads:
        first = threads.submit(one.produce, "t", raw, version=version)
        assert disk.syncing.acquire(timeout=60)
        again = threads.submit(two.produce, "t", raw, version=version)
        until("what is waited for", lambda: broker.broker.counters.requests[0] >= 3)
        assert not again.done()
        disk.open_door.set()
        assert first.result(60).base_offset == again.result(20).base_offset == 3
    assert broker.log("t").log_end == 6


@pytest.mark.parametrize(("messages", "waits"), [(1, [True, True, True]), (6, [False, True, False])])
def test_flush_messages_is_kept_before_the_answer(
    messages: int, waits: list[bool], broker: Running, client: Client, disk: SlowDisk
) -> None:
    """As in Kafka: the append that makes so many unflushed records flushes them first."""
    client.create("t", flush_messages=str(messages))
    for waited in waits:
        before = len(disk.syncs)
        assert client.produce("t", batch(), acks=1).error_code == 0
        assert (len(disk.syncs) > before) is waited
        assert (broker.log("t").recovery_point == broker.log("t").log_end) is waited


def test_the_setting_may_change_at_any_time(broker: Running, client: Client, disk: SlowDisk) -> None:
    begun(broker, client, disk)
    log = broker.log("t")
    assert client.produce("t", batch()).error_code == 0
    assert log.high_watermark == 6, "seen, and never taken back"
    plain = log.settings
    broker.call(lambda: setattr(log, "settings", replace(plain, tierd_acks_durability="disk")))
    assert log.high_watermark == 6
    client.produce("t", batch(), acks=1)
    assert (log.high_watermark, log.log_end) == (6, 9)
    broker.call(lambda: setattr(log, "settings", plain))
    assert log.high_watermark == 9
    disk.open_door.set()


@pytest.mark.parametrize(("name", "value"), [("flush.ms", "5000"), ("tierd.acks.durability", "disk")])
def test_what_settings_come_to_ask_for_is_flushed_without_an_append(
    broker: Running, client: Client, name: str, value: str
) -> None:
    client.create("t")
    client.produce("t", batch(3))
    tidy, clock, log, topic = broker.broker.housekeeping, broker.clock, broker.log("t"), broker.partitions.topic("t")
    assert isinstance(clock, FakeClock)
    assert topic is not None
    broker.run(tidy.step())
    assert log.recovery_point < log.log_end
    broker.run(broker.broker.topics.reconfigure(topic, {name: value}))
    clock.advance(20_000)
    broker.run(tidy.step())
    assert log.recovery_point == log.log_end


def test_a_failing_disk_refuses_what_it_has_not(tmp_path: Path) -> None:
    broker = Running(settings(tmp_path), None, FakeClock())
    broker.disk = disk = FailingDisk()
    broker.start()
    with Client(broker.address) as client:
        client.create("t", **DISK)
        assert client.produce("t", batch()).error_code == 0
        log = broker.log("t")
        disk.fail(errno.EIO, "fsync_file", below=tmp_path / "data" / "t-0")
        assert client.produce("t", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (log.high_watermark, log.log_end) == (3, 6)
        assert client.produce("t", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.heal()
    with pytest.raises(NoDirectoryLeft):
        broker.run(broker.broker.stop())
    broker.call(lambda: broker.directories[0].close(clean=False))
    broker.registry.close()
    broker.end()


def test_a_client_that_goes_while_it_waits_takes_nothing_along(broker: Running, client: Client, disk: SlowDisk) -> None:
    begun(broker, client, disk, **DISK)
    gone = Client(broker.address)
    gone.send(0, 9, acks=-1, topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": batch()}]}])
    assert disk.syncing.acquire(timeout=60)
    gone.__exit__()
    until("what is waited for", lambda: broker.broker.server.connections == 1)
    disk.open_door.set()
    assert client.produce("t", batch()).base_offset == 6
    assert offsets_of(client.fetch("t", 3).records) == [3, 4, 5, 6, 7, 8]


def test_after_a_kill_nothing_is_seen_that_is_not_on_the_disk(tmp_path: Path, disk: SlowDisk) -> None:
    broker = Running(settings(tmp_path), None, FakeClock())
    broker.start()
    with Client(broker.address) as client:
        client.create("t", **DISK)
        client.produce("t", batch())
    broker.stop(clean=False)
    again = Running(settings(tmp_path), None, FakeClock())
    again.disk = disk
    again.start()
    assert [path.parent.name for path in disk.syncs] == ["t-0"]
    assert again.log("t").high_watermark == again.log("t").recovery_point == 3
    again.stop()


def test_the_loop_is_free_while_the_disk_works(broker: Running, client: Client, disk: SlowDisk) -> None:
    begun(broker, client, disk, **DISK)
    with Client(broker.address) as producer, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(producer.produce, "t", batch())
        assert disk.syncing.acquire(timeout=60)
        broker.run(asyncio.sleep(0))
        assert client.call(3, 12, topics=None).brokers
        disk.open_door.set()
        answer.result(60)


def test_committed_offsets_wait_too_where_their_topic_asks_for_it(tmp_path: Path, disk: SlowDisk) -> None:
    durable = {"__consumer_offsets": {"tierd.acks.durability": "disk"}}
    broker = Running(settings(tmp_path, topics=durable, offsets_topic_partitions=1), None, FakeClock())
    broker.disk = disk
    broker.start()
    with Client(broker.address) as client, ThreadPoolExecutor(1) as threads:
        client.create("t")
        rows = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": None}]
        asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [{"name": "t", "partitions": rows}]}
        assert client.call(8, 8, **asked).topics[0].partitions[0].error_code == 0
        disk.open_door.clear()
        while disk.syncing.acquire(blocking=False):
            pass
        answer = threads.submit(client.call, 8, 8, **asked)
        assert disk.syncing.acquire(timeout=60)
        assert not answer.done()
        disk.open_door.set()
        assert answer.result(60).topics[0].partitions[0].error_code == 0
    broker.stop()


def test_who_leaves_while_the_disk_is_waited_for_takes_no_answer_from_others(tmp_path: Path, disk: SlowDisk) -> None:
    """All groups wait for the same: one client's end gave up what the others waited for, and none was answered."""
    durable = {"__consumer_offsets": {"tierd.acks.durability": "disk"}}
    broker = Running(settings(tmp_path, topics=durable, offsets_topic_partitions=1), None, FakeClock())
    broker.disk = disk
    broker.start()
    rows = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": None}]
    asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [{"name": "t", "partitions": rows}]}
    waiting = broker.broker.parts.offsets._unsettled
    with Client(broker.address) as stays:
        stays.create("t")
        assert stays.call(8, 8, **asked).topics[0].partitions[0].error_code == 0
        disk.open_door.clear()
        with Client(broker.address) as leaves:
            stays.send(8, 8, **asked)
            until("what is waited for", lambda: len(waiting) == 1)
            leaves.send(8, 8, **asked)
            until("what is waited for", lambda: len(waiting) == 2)
        until("what is waited for", lambda: broker.broker.server.connections == 1)
        disk.open_door.set()
        assert stays.answer(8, 8).topics[0].partitions[0].error_code == 0
    broker.stop()


def test_what_is_not_on_the_disk_yet_is_read_all_the_same_once_it_is(tmp_path: Path, disk: SlowDisk) -> None:
    """Groups and transactions are made of all that is in the log, not of what clients may see of it."""
    durable = {"__consumer_offsets": {"tierd.acks.durability": "disk"}}
    broker = Running(settings(tmp_path, topics=durable, offsets_topic_partitions=1), None, FakeClock())
    broker.disk = disk
    broker.start()
    topic = broker.broker.parts.offsets
    broker.run(topic.ensure())
    disk.open_door.clear()
    broker.call(lambda: topic.append(0, batch()))

    async def read() -> list[bytes]:
        return [piece async for piece in topic.replay(0)]

    reading = asyncio.run_coroutine_threadsafe(read(), broker._loop)
    disk.open_door.set()
    assert len(reading.result(60)) == 1
    broker.stop()
