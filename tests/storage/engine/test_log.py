"""Appending, rolling, reading, evicting: one log in one directory."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, by_time, largest_timestamp, log_bytes, slice_bytes
from kit.model_disk import ModelDisk
from tierd.base.errors import DiskFull
from tierd.storage.batch import ControlType, encode_control_batch, parse_header
from tierd.storage.directory import LogDirectory
from tierd.storage.errors import EpochRefused, InvalidTimestamp, OffsetOutOfRange, StorageFailed
from tierd.storage.log import Log
from tierd.storage.snapshot import encode_snapshot
from tierd.storage.view import AbortedTxn


@dataclass
class Opened:
    place: Place
    directory: LogDirectory
    log: Log

    def again(self, *, clean: bool = True) -> Log:
        self.directory.close(clean=clean)
        self.directory = self.place.open()
        self.log = self.directory.logs[TP]
        return self.log


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    place = Place(tmp_path)
    directory = place.open()
    opened = Opened(place, directory, place.new_log(directory))
    yield opened
    opened.directory.close(clean=False)


@pytest.fixture
def log(opened: Opened) -> Log:
    return opened.log


def fill(log: Log, batches: int, *, size: int = 100) -> None:
    for i in range(batches):
        log.append(batch(2, size=size), now_ms=T0 + i)


def test_what_goes_in_comes_out(log: Log) -> None:
    sent = []
    for i in range(60):
        raw = batch(1 + i % 3, size=i * 7, codec=i % 5)
        before = log.log_end
        done = log.append(raw, now_ms=T0)
        assert (done.first_offset, done.next_offset) == (before, before + 1 + i % 3)
        sent.append(bytes(raw))
    assert len(log.closed()) > 1
    assert log_bytes(log) == b"".join(sent)
    assert parse_header(slice_bytes(log, 5)).leader_epoch == 0


def test_a_read_begins_with_the_batch_that_holds_the_offset(log: Log) -> None:
    fill(log, 40)
    for offset in range(log.log_end):
        assert parse_header(slice_bytes(log, offset, 1)).base_offset == offset - offset % 2
    assert slice_bytes(log, log.log_end) == b""


def test_a_read_crosses_segments_and_stops_at_whole_batches(log: Log) -> None:
    fill(log, 60)
    size = len(slice_bytes(log, 0, 1))
    for limit in (size, size * 3, 4096, 9999, 1 << 20):
        raw = slice_bytes(log, 0, limit)
        assert len(raw) == min(limit // size, 60) * size
    found = log.read(0, 1 << 20, committed=False)
    assert len(found.spans) == len(log.closed()) + 1
    found.release()


def test_reads_outside_are_refused(log: Log) -> None:
    fill(log, 40)
    log.move_log_start(9)
    for offset in (-1, 0, 8, 81):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, committed=False)
    assert parse_header(slice_bytes(log, 9, 1)).base_offset == 8


def test_a_reader_keeps_its_bytes_when_the_segment_leaves(opened: Opened) -> None:
    fill(opened.log, 60)
    want = slice_bytes(opened.log, 0, 1)
    found = opened.log.read(0, 1, committed=False)
    opened.log.move_log_start(opened.log.closed()[1].base)
    opened.place.clock.advance(opened.log.settings.file_delete_delay_ms + 1)
    assert opened.directory.purge() >= 3
    span = found.spans[0]
    assert os.pread(span.fd, span.length, span.position) == want
    found.release()


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ({"segment_ms": 1000}, True),
        ({"segment_ms": 5000}, False),
        ({"segment_ms": None}, False),
        ({"segment_ms": 2500, "segment_jitter_ms": 1500}, True),
    ],
)
def test_a_roll_by_time_counts_from_the_first_record(change: dict[str, int | None], rolls: bool, log: Log) -> None:
    log.settings = replace(SMALL, **change)  # type: ignore[arg-type]
    log.append(batch(at_ms=T0), now_ms=T0)
    log.append(batch(at_ms=T0 + 2000), now_ms=T0 + 2000)
    assert bool(log.closed()) == rolls


def test_a_full_index_rolls(log: Log) -> None:
    log.settings = replace(SMALL, internal_segment_bytes=1 << 20, segment_index_bytes=48, index_interval_bytes=1)
    for i in range(12):
        log.append(batch(at_ms=T0 + i), now_ms=T0)
    # 48 bytes are 4 time entries, the last of them kept for closing: batches 1 to 3 get one, batch 4 needs a segment.
    assert [view.next_base - view.base for view in log.closed()] == [4, 4]


def test_housekeeping_rolls_by_the_wall_clock(log: Log) -> None:
    log.settings = replace(SMALL, segment_ms=1000)
    log.append(batch(), now_ms=T0)
    assert not log.maybe_roll(T0 + 1000)
    assert log.maybe_roll(T0 + 1001)
    assert not log.maybe_roll(T0 + 9999)  # the new one is empty
    assert not log.roll()


def test_a_roll_leaves_trimmed_files_and_a_snapshot(log: Log) -> None:
    fill(log, 30)
    view = log.closed()[0]
    names = {path.name: path.stat().st_size for path in log.directory.iterdir()}
    stem = f"{view.base:020d}"
    assert names[f"{stem}.log"] == view.size_bytes
    assert names[f"{stem}.index"] % 8 == 0
    assert 0 < names[f"{stem}.index"] < 2048
    assert 0 < names[f"{stem}.timeindex"] < 2040
    assert f"{view.next_base:020d}.snapshot" in names
    active = log.view().active_base
    assert names[f"{active:020d}.index"] == 2048
    assert names[f"{active:020d}.timeindex"] == 2040


def test_the_last_append_is_the_mtime_and_survives(opened: Opened) -> None:
    for i in range(30):
        opened.log.append(batch(2, size=100), now_ms=T0 + 1000 * i)
    before = opened.log.closed()
    assert before[0].append_ms > T0
    path = opened.log.directory / f"{before[0].base:020d}.log"
    assert path.stat().st_mtime_ns == before[0].append_ms * 1_000_000
    assert opened.again().closed() == before


def test_append_time_never_runs_backwards(log: Log) -> None:
    log.append(batch(), now_ms=T0 + 5000)
    log.append(batch(), now_ms=T0)
    log.roll()
    log.append(batch(), now_ms=T0)
    log.roll()
    assert [view.append_ms for view in log.closed()] == [T0 + 5000, T0 + 5000]


def test_log_append_time(log: Log) -> None:
    log.settings = replace(SMALL, message_timestamp_type="LogAppendTime")
    done = log.append(batch(3, at_ms=5), now_ms=T0)
    assert done.log_append_time_ms == T0
    header = parse_header(slice_bytes(log, 0))
    assert header.log_append_time
    assert header.max_timestamp_ms == T0
    found = by_time(log, T0)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (0, T0)


def test_a_bit_of_the_brokers_is_taken_back(log: Log) -> None:
    log.append(batch(attributes=0x08), now_ms=T0)
    assert not parse_header(slice_bytes(log, 0)).log_append_time


def test_times_out_of_range(log: Log) -> None:
    log.settings = replace(SMALL, message_timestamp_before_max_ms=1000)
    with pytest.raises(InvalidTimestamp) as refused:
        log.append(batch(3, at_ms=T0), now_ms=T0 + 1001)
    assert [error.batch_index for error in refused.value.record_errors] == [0]
    log.append(batch(3, at_ms=T0), now_ms=T0 + 1000)
    with pytest.raises(InvalidTimestamp):
        log.append(batch(3, at_ms=T0 + 3_600_000), now_ms=T0)


def marker(offset: int, kind: ControlType, *, producer_epoch: int = 1) -> memoryview:
    raw = encode_control_batch(
        offset, kind, producer_id=7, producer_epoch=producer_epoch, timestamp_ms=T0, coordinator_epoch=0
    )
    return memoryview(bytearray(raw))


def transactional(sequence: int, epoch: int) -> memoryview:
    return batch(2, producer=(7, epoch, sequence), attributes=0x10)


def test_transactions_hold_back_the_stable_offset(opened: Opened) -> None:
    log = opened.log
    log.append(batch(2), now_ms=T0)
    log.append(transactional(0, 0), now_ms=T0, internal=True)
    log.append(batch(2), now_ms=T0)
    assert (log.last_stable, log.log_end) == (2, 6)
    assert log.view().pinned_by == "producer 7 has had a transaction open since offset 2"
    assert slice_bytes(log, 2, committed=True) == b""
    assert by_time(log, T0, committed=True) is not None
    log.append(marker(6, ControlType.ABORT), now_ms=T0, internal=True)
    assert (log.last_stable, log.view().pinned_by) == (7, None)
    assert log.aborted(0, 7) == (AbortedTxn(7, 2),)
    found = log.read(0, 1 << 20, committed=True)
    assert found.aborted == (AbortedTxn(7, 2),)
    found.release()
    log.append(transactional(0, 1), now_ms=T0, internal=True)
    log.append(marker(9, ControlType.COMMIT, producer_epoch=2), now_ms=T0, internal=True)
    for clean in (True, False):
        log = opened.again(clean=clean)
        assert log.aborted(0, log.log_end) == (AbortedTxn(7, 2),)
        assert log.last_stable == log.log_end


def test_an_aborted_transaction_is_kept_across_restarts_and_rolls(opened: Opened) -> None:
    log = opened.log
    log.append(transactional(0, 0), now_ms=T0, internal=True)
    log.append(marker(2, ControlType.ABORT), now_ms=T0, internal=True)
    log = opened.again()
    log.begin(1, 0)
    log.append(transactional(0, 1), now_ms=T0, internal=True)
    log.append(marker(5, ControlType.ABORT, producer_epoch=2), now_ms=T0, internal=True)
    log.roll()
    assert log.aborted(0, 6) == (AbortedTxn(7, 0), AbortedTxn(7, 3))
    assert opened.again().aborted(0, 6) == (AbortedTxn(7, 0), AbortedTxn(7, 3))


def test_a_hanging_transaction_survives_a_restart(opened: Opened) -> None:
    opened.log.append(transactional(0, 0), now_ms=T0, internal=True)
    fill(opened.log, 30)
    for clean in (True, False):
        assert opened.again(clean=clean).last_stable == 0


def test_epochs_only_rise(log: Log) -> None:
    fill(log, 1)
    log.begin(3, 0)
    log.begin(3, 0)
    with pytest.raises(EpochRefused):
        log.begin(2, 0)
    fill(log, 1)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs] == [(0, 0), (3, 2)]
    assert (log.epoch_at(1), log.epoch_at(2), log.epoch_at(-1)) == (0, 3, None)
    assert (log.epoch_end(0), log.epoch_end(2), log.epoch_end(3)) == ((0, 2), (0, 2), (3, 4))
    assert parse_header(slice_bytes(log, 2)).leader_epoch == 3


def test_nothing_is_appended_before_an_epoch_begins(opened: Opened) -> None:
    log = opened.again()
    with pytest.raises(StorageFailed):
        log.append(batch(), now_ms=T0)


@dataclass
class Seed:
    snapshot: bytes
    leader_epochs: bytes


def test_a_disk_behind_the_bucket_goes_on_above_it(opened: Opened) -> None:
    fill(opened.log, 30)
    producers = encode_snapshot([])
    opened.log.begin(6, 100, Seed(producers, b"0\n2\n0 0\n5 70\n"))
    log = opened.log
    assert (log.log_start, log.local_start, log.log_end, log.recovery_point) == (0, 100, 100, 100)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs] == [(0, 0), (5, 70), (6, 100)]
    assert f"{0:020d}.log" in opened.place.set_aside_files()
    fill(log, 3)
    written = log_bytes(log)
    log = opened.again(clean=False)
    assert (log.local_start, log.log_end) == (100, 106)
    assert log_bytes(log) == written


TIERED = replace(SMALL, remote_storage_enable=True, file_delete_delay_ms=0)


def flush(log: Log) -> None:
    job = log.unflushed()
    assert job is not None
    job.run()
    log.flushed(job)


def test_eviction_moves_local_start_only(opened: Opened) -> None:
    opened.place.settings = opened.log.settings = TIERED
    fill(opened.log, 60)
    third = opened.log.closed()[2]
    assert opened.log.evict(third.next_base) == 0  # nothing is flushed yet
    flush(opened.log)
    assert opened.log.evict(third.next_base - 1) == third.base
    assert opened.log.evict(third.next_base) == third.next_base
    assert opened.log.evict(0) == third.next_base
    assert opened.log.log_start == 0
    listed = (opened.place.data / "log-start-offset-checkpoint").read_text()
    assert listed == f"0\n1\n{TP.topic} {TP.partition} 0\n"
    marked = [path for path in opened.log.directory.iterdir() if path.suffix == ".deleted"]
    assert len(marked) >= 9
    assert opened.directory.purge() == len(marked)
    log = opened.again(clean=False)
    assert (log.log_start, log.local_start) == (0, third.next_base)


def test_an_open_transaction_is_never_evicted(opened: Opened) -> None:
    opened.log.settings = TIERED
    opened.log.append(transactional(0, 0), now_ms=T0, internal=True)
    fill(opened.log, 60)
    flush(opened.log)
    assert opened.log.evict(opened.log.log_end) == 0


def test_log_start_survives_and_takes_segments_along(opened: Opened) -> None:
    fill(opened.log, 60)
    second = opened.log.closed()[1]
    assert opened.log.move_log_start(second.base + 3) == second.base + 3
    assert opened.log.closed()[0].base == second.base
    assert opened.log.move_log_start(1) == second.base + 3
    for clean in (False, True):
        log = opened.again(clean=clean)
        assert (log.log_start, log.local_start) == (second.base + 3, second.base + 3)
        assert log.epochs[0].start_offset == second.base + 3
    assert log.move_log_start(10**9) == log.log_end


def test_flushing_moves_the_recovery_point(opened: Opened) -> None:
    log = opened.log
    assert log.unflushed() is None
    fill(log, 60)
    flush(log)
    assert log.recovery_point == log.view().active_base
    assert log.unflushed() is None
    log.settings = replace(SMALL, flush_messages=1, internal_segment_bytes=1 << 20)
    log.append(batch(), now_ms=T0)
    assert log.flush_due(0)
    job = log.unflushed(active=True)
    assert job is not None
    job.run()
    log.flushed(job)
    assert log.recovery_point == log.log_end
    assert not log.flush_due(0)
    log.roll()
    job = log.unflushed()  # its indexes are not durable yet
    assert job is not None
    assert job.upto == log.log_end


def test_flush_ms(opened: Opened) -> None:
    opened.log.settings = replace(SMALL, flush_ms=1000)
    fill(opened.log, 1)
    assert not opened.log.flush_due(999)
    assert opened.log.flush_due(1000)


def test_a_failed_flush_ends_appends(opened: Opened) -> None:
    fill(opened.log, 60)
    job = opened.log.unflushed()
    assert job is not None
    opened.log.directory.rename(opened.place.root / "gone")
    opened.log.directory.write_bytes(b"no folder")
    with pytest.raises(StorageFailed):
        job.run()
    opened.log.flushed(job)
    opened.log.directory.unlink()
    (opened.place.root / "gone").rename(opened.log.directory)
    with pytest.raises(StorageFailed):
        fill(opened.log, 1)
    assert opened.log.unflushed() is None
    opened.log.failed = None


def test_a_flush_of_a_partition_that_goes_meanwhile(opened: Opened) -> None:
    fill(opened.log, 60)
    job = opened.log.unflushed()
    assert job is not None
    opened.directory.remove(TP)
    job.run()
    assert not job.failed


def test_a_full_disk_tears_nothing_and_service_resumes(tmp_path: Path) -> None:
    disk = ModelDisk(tmp_path)
    place = Place(tmp_path, disk=disk)
    log = place.new_log(place.open())
    fill(log, 5)
    before = log_bytes(log)
    for room in (0, 10, 200, 300):
        disk.room_bytes = room
        with pytest.raises(DiskFull):
            fill(log, 40)
        assert log_bytes(log)[: len(before)] == before
        assert len(log_bytes(log)) == log.size_bytes
    disk.room_bytes = None
    fill(log, 40)
    assert log.failed is None
    assert log_bytes(log)[: len(before)] == before


def test_the_reserve_is_kept(opened: Opened, tmp_path: Path) -> None:
    place = Place(tmp_path / "other", reserve_bytes=1 << 60)
    log = place.new_log(place.open())
    with pytest.raises(DiskFull, match="reserve"):
        fill(log, 1)


def test_preallocated_logs(opened: Opened) -> None:
    opened.place.settings = opened.log.settings = replace(SMALL, preallocate=True)
    fill(opened.log, 30)
    active = opened.log.directory / f"{opened.log.view().active_base:020d}.log"
    assert active.stat().st_size == 4096
    written = log_bytes(opened.log)
    for clean in (False, True):
        log = opened.again(clean=clean)
        assert log_bytes(log) == written
        assert log.cuts == []
    assert opened.place.set_aside_files() == []


def test_times_across_segments(log: Log) -> None:
    for i in range(40):
        log.append(batch(3, size=90, at_ms=T0 + i * 100), now_ms=T0 + i * 100)
    for i in range(40):
        found = by_time(log, T0 + i * 100 + 1)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (i * 3 + 1, T0 + i * 100 + 1)
    assert by_time(log, T0 + 39 * 100 + 3) is None
    first = by_time(log, 0)
    assert first is not None
    assert first.offset == 0
    largest = largest_timestamp(log)
    assert largest is not None
    assert (largest.offset, largest.timestamp_ms) == (119, T0 + 39 * 100 + 2)


def test_times_of_nothing(log: Log) -> None:
    assert by_time(log, 0) is None
    assert largest_timestamp(log) is None


def test_batches_in_a_range(log: Log) -> None:
    fill(log, 40)
    assert [header.base_offset for header, _ in log.batches(5, 13)] == [4, 6, 8, 10, 12]
    assert b"".join(raw for _, raw in log.batches()) == log_bytes(log)
