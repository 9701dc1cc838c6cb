"""Appending, rolling, reading, and what is found by time: one log in one directory."""

import os
from dataclasses import replace

import pytest

from kit.logs import SMALL, T0, Opened, batch, by_time, fill, largest_timestamp, log_bytes, slice_bytes
from tierd.storage.batch import parse_header
from tierd.storage.errors import InvalidTimestamp, OffsetOutOfRange
from tierd.storage.log import Log


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


@pytest.mark.parametrize("stops", [True, False])
def test_a_preallocated_log_is_trimmed_whatever_the_settings_say_when_it_is_closed(stops: bool, opened: Opened) -> None:
    log = opened.log
    log.settings = replace(SMALL, preallocate=True)
    log.roll()
    fill(log, 20)
    written, base = log_bytes(log), log.view().active_base
    log.settings = opened.place.settings = SMALL
    if stops:
        opened.directory.close(clean=True)
    else:
        log.roll()
    path = log.directory / f"{base:020d}.log"
    assert written.endswith(path.read_bytes())


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
