"""A large closed segment that is damaged: a thread repairs it on a slow disk, and the loop serves all others."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import Client, batch, offsets_of
from broker.file_tier import FileTier
from broker.running import Running, running, settings
from kit.clock import FakeClock
from kit.slow_disk import SlowDisk
from kit.tiers import until
from tierd.base.clock import SystemClock
from tierd.broker import housekeeping
from tierd.tiering.plan import log_start_target
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

_MIB = 1024 * 1024
BATCHES = 24
"""Of a MiB each; a segment has sixteen. The first one loses its last batch."""


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk("repairs", open_files=True)


@pytest.fixture
def broker(tmp_path: Path, disk: SlowDisk) -> Iterator[Running]:
    with_disk = begun(tmp_path, SlowDisk())
    with Client(with_disk.address) as client:
        client.create("t", segment_bytes=str(16 * _MIB + 1000))
        client.create("other")
        for _ in range(BATCHES):
            assert client.produce("t", batch(16, size=_MIB // 16 - 100)).error_code == ErrorCode.NONE
    with_disk.stop()
    log = first_log(tmp_path)
    os.truncate(log, log.stat().st_size - 100)
    damaged = begun(tmp_path, disk)
    try:
        yield damaged
    finally:
        disk.go.set()
        damaged.stop()


def begun(root: Path, disk: SlowDisk) -> Running:
    running = Running(settings(root, data_dirs=(root / "data", root / "data2")), None, SystemClock())
    running.disk = disk
    running.start()
    return running


def first_log(root: Path) -> Path:
    return root / "data" / "t-0" / f"{0:020d}.log"


def met(client: Client, disk: SlowDisk) -> None:
    """A read has met the damage, and the disk stands still."""
    disk.threads.clear()
    disk.go.clear()
    client.send_fetch([("t", 0, 0, _MIB)], max_wait=60_000)
    assert disk.stands.wait(60)


def read(client: Client, offset: int, end: int) -> list[int]:
    found: list[int] = []
    while offset < end:
        answer = client.fetch("t", offset, max_wait=60_000, partition_max_bytes=4 * _MIB)
        assert answer.error_code == ErrorCode.NONE
        found += offsets_of(answer.records)
        offset = found[-1] + 1
    return found


def kept(end: int) -> list[int]:
    return [offset for offset in range(end) if not 240 <= offset < 256]


def test_others_are_served_meanwhile(broker: Running, disk: SlowDisk, tmp_path: Path) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        met(one, disk)
        assert other.produce("other", batch(3)).error_code == ErrorCode.NONE
        assert offsets_of(other.fetch("other", 0).records) == [0, 1, 2]
        assert other.produce("t", batch(3)).base_offset == BATCHES * 16, "appends go on"
        assert offsets_of(other.fetch("t", 256).records)[0] == 256
        waits = other.fetch("t", 0)
        assert (waits.error_code, waits.records or b"") == (ErrorCode.NONE, b"")
        other.call(int(ApiKey.METADATA), 9, topics=[{"name": "t"}], allow_auto_topic_creation=False)
        assert not one.has_answer()
        assert broker._thread.ident not in disk.threads
        disk.go.set()
        [answer] = one.fetched()
        assert offsets_of(answer.records)[0] == 0
        assert read(other, 0, BATCHES * 16 + 3) == kept(BATCHES * 16 + 3)
    assert broker.log("t").gaps == ((240, 256),)
    assert first_log(tmp_path).stat().st_size == broker.log("t").closed()[0].size_bytes


def test_offsets_by_time_wait_for_it(broker: Running, disk: SlowDisk) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        met(one, disk)
        asked = {"partition_index": 0, "timestamp": 1, "current_leader_epoch": -1}
        other.send(2, 8, replica_id=-1, topics=[{"name": "t", "partitions": [asked]}])
        with Client(broker.address) as third:
            assert third.list_offsets("t", -1).offset == BATCHES * 16
        disk.go.set()
        [row] = other.answer(2, 8).topics[0].partitions
        assert (row.error_code, row.offset) == (ErrorCode.NONE, 0)
        one.fetched()


def test_a_topic_that_is_deleted_meanwhile(broker: Running, disk: SlowDisk, tmp_path: Path) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        met(one, disk)
        other.send(int(ApiKey.DELETE_TOPICS), 5, topic_names=["t"], timeout=60_000)
        assert one.fetched()[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        disk.go.set()
        assert other.answer(int(ApiKey.DELETE_TOPICS), 5).responses[0].error_code == ErrorCode.NONE
        other.create("t")
        assert other.produce("t", batch(3)).base_offset == 0
        broker.run(broker.broker.parts.repair_thread.close())
        assert read(other, 0, 3) == [0, 1, 2]
    assert not list((tmp_path / "data" / "t-0").glob("*.tmp"))


def test_a_partition_that_moves_meanwhile(broker: Running, disk: SlowDisk, tmp_path: Path) -> None:
    target = tmp_path / "data2"
    wish = [{"path": str(target), "topics": [{"name": "t", "partitions": (0,)}]}]
    with Client(broker.address) as one, Client(broker.address) as other:
        met(one, disk)
        answer = other.call(int(ApiKey.ALTER_REPLICA_LOG_DIRS), 2, dirs=wish).results[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        disk.go.set()
        broker.run(broker.broker.moves.idle.wait())
        assert one.fetched()[0].error_code == ErrorCode.NONE
        assert broker.log("t").directory.parent == target
        assert read(other, 0, BATCHES * 16) == kept(BATCHES * 16)
        assert len(list(target.glob("t-0/*.log"))) == 2
    assert broker.log("t").gaps == ((240, 256),)


def test_a_stop_waits_until_the_files_change_no_more(broker: Running, disk: SlowDisk, tmp_path: Path) -> None:
    with Client(broker.address) as one:
        met(one, disk)
        stopping = asyncio.run_coroutine_threadsafe(broker.broker.stop(quick=True), broker._loop)
        disk.go.set()
        stopping.result(60)
    assert not broker.log("t").repairing
    broker.call(broker.log("t").close)
    assert not list((tmp_path / "data" / "t-0").glob("*.tmp"))


def test_a_wrong_time_index_lets_nothing_go_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention looks at what it takes: the log knows how late its records are."""
    monkeypatch.setattr(housekeeping, "BUSY_TICK_S", 3600.0)
    monkeypatch.setattr(housekeeping, "IDLE_TICK_S", 3600.0)
    clock = FakeClock()
    with running(tmp_path, clock=clock) as broker, Client(broker.address) as client:
        client.create("t", internal_segment_bytes="1000", index_interval_bytes="100", retention_ms="3600000")
        for n in range(20):
            client.produce("t", batch(t0=clock.now_ms() + n))
        folder = broker.log("t").directory
    path = min(folder.glob("*.timeindex"))
    raw = bytearray(path.read_bytes())
    raw[-10] ^= 0x01  # its largest timestamp is decades earlier
    path.write_bytes(raw)
    with running(tmp_path, clock=clock) as broker:
        for due_ms, gone in ((0, False), (60_000, False), (3_600_000, True)):
            clock.advance(due_ms)
            broker.run(broker.broker.housekeeping.step())
            until("no repair", lambda: not broker.call(lambda: broker.log("t").repairing))
            assert (broker.log("t").log_start > 0) is gone, due_ms


def test_nor_does_the_bucket_planner_by_what_only_the_disk_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tierer decides by what it was told; the broker looks at it first, tells it anew, and moves nothing then."""
    monkeypatch.setattr(housekeeping, "BUSY_TICK_S", 3600.0)
    monkeypatch.setattr(housekeeping, "IDLE_TICK_S", 3600.0)
    clock = FakeClock()
    with running(tmp_path, FileTier(tmp_path / "held"), clock=clock) as broker, Client(broker.address) as client:
        client.create("t", internal_segment_bytes="1000", index_interval_bytes="100", retention_ms="3600000")
        for n in range(20):
            client.produce("t", batch(t0=clock.now_ms() + n))
        folder = broker.log("t").directory
    path = min(folder.glob("*.timeindex"))
    raw = bytearray(path.read_bytes())
    raw[-10] ^= 0x01
    path.write_bytes(raw)
    with running(tmp_path, FileTier(tmp_path / "held"), clock=clock) as broker:
        partition = broker.partitions.get("t", 0)
        assert partition is not None

        def asked() -> int:
            return broker.call(lambda: log_start_target(partition.view(), (), now_ms=clock.now_ms()))

        assert asked() > 0, "what it is told first lets records go"
        for _ in range(3):
            if target := asked():
                assert broker.run(broker.local.move_log_start(partition.id, target)) == 0
                until("no repair", lambda: not broker.call(lambda: broker.log("t").repairing))
        assert asked() == 0
