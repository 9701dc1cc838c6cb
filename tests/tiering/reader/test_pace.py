"""How much is read ahead of whom: the decision alone, then what a reader's requests show of it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.clock import FakeClock
from kit.remote_log import FAR, PART, SMALL, RemoteLog, content, run, synthetic
from tierd.tiering.reader.options import ReaderOptions
from tierd.tiering.reader.pace import Habit, pace, smallest_range
from tierd.tiering.reader.reader import RemoteReader

MIB = 1024 * 1024
LARGEST = ReaderOptions().range_bytes
SHARE = ReaderOptions().read_ahead * LARGEST


def reads(count: int, size_bytes: int, thought_ms: int) -> Habit:
    """Of a reader that took *size_bytes* at a time and came again after *thought_ms*."""
    habit = Habit().took(size_bytes)
    for _ in range(count - 1):
        habit = habit.came_again(thought_ms).took(size_bytes)
    return habit


def test_ranges_are_4_to_16_mib() -> None:
    assert smallest_range(LARGEST) == 4 * MIB
    assert LARGEST == 16 * MIB


def test_a_reader_that_just_began_gets_little_and_a_long_fast_one_much() -> None:
    begun = pace(reads(2, MIB, 5), SHARE, LARGEST)
    assert (begun.window_bytes, begun.range_bytes) == (8 * MIB, 4 * MIB)
    middle = pace(reads(6, MIB, 5), SHARE, LARGEST)
    assert (middle.window_bytes, middle.range_bytes) == (24 * MIB, 8 * MIB)
    long = pace(reads(100, 8 * MIB, 5), SHARE, LARGEST)
    assert (long.window_bytes, long.range_bytes) == (112 * MIB, 16 * MIB)


def test_a_slow_reader_gets_what_it_reads_in_a_few_seconds_in_small_ranges() -> None:
    slow = pace(reads(1000, 100_000, 1000), SHARE, LARGEST)
    assert 300_000 < slow.window_bytes < 500_000
    assert slow.range_bytes == 4 * MIB
    steady = pace(reads(1000, MIB, 100), SHARE, LARGEST)
    assert 38 * MIB < steady.window_bytes < 42 * MIB


def test_a_reader_that_becomes_slow_or_fast_is_soon_known_as_such() -> None:
    habit = reads(1000, 8 * MIB, 5)
    for _ in range(30):
        habit = habit.came_again(2000).took(100_000)
    assert pace(habit, SHARE, LARGEST).window_bytes < MIB
    for _ in range(30):
        habit = habit.came_again(10).took(8 * MIB)
    assert pace(habit, SHARE, LARGEST).window_bytes == 112 * MIB


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 1 << 36))
def test_never_more_than_the_share_and_ranges_within_their_limits(run: int, taken: int, ms: int, share: int) -> None:
    found = pace(Habit(run, taken, ms), share, LARGEST)
    assert found.window_bytes >= 0
    assert found.window_bytes == 0 or found.window_bytes + found.range_bytes <= share
    assert smallest_range(LARGEST) <= found.range_bytes <= LARGEST
    assert 0 <= found.step_bytes <= found.window_bytes


async def settled(reader: RemoteReader) -> None:
    """Nothing is under way any more."""
    while reader._indexes_ahead or any(
        slot.landing for slots in reader._pool._segments.values() for slot in slots.all()
    ):
        await asyncio.sleep(0)


async def ahead_after(log: RemoteLog, place: Path, pause_ms: int, options: ReaderOptions, total_bytes: int) -> int:
    """Bytes that were fetched beyond what a reader has read that pauses between its reads of 1 KiB."""
    clock = FakeClock()
    reader = RemoteReader(log.store, log.rows, place, clock, options)
    offset = done = 0
    while done < total_bytes:
        slice = await reader.read(PART, offset, max_bytes=1024, stop=FAR, committed=False)
        assert slice.stop is not None
        offset, done = slice.stop, done + len(content(slice))
        await settled(reader)
        clock.advance(pause_ms)
    there = sum(slot.stop - slot.start for slots in reader._pool._segments.values() for slot in slots.all())
    await reader.close()
    return there - done


def test_the_depth_follows_the_reader(tmp_path: Path) -> None:
    log = synthetic(3, 100)
    options = replace(SMALL, range_bytes=16_384, read_ahead=6, memory_bytes=1 << 20)

    async def work() -> None:
        fast = await ahead_after(log, tmp_path / "fast", 0, options, 40_000)
        slow = await ahead_after(log, tmp_path / "slow", 8_000, options, 40_000)
        assert fast > 80_000
        assert slow < 10_000, "the rest of its range, or the next one of a quarter of the largest"

    run(work)


@pytest.mark.parametrize("max_bytes", [2000, 1 << 20])
def test_a_slow_bucket_does_not_make_a_reader_slow(tmp_path: Path, max_bytes: int) -> None:
    log = synthetic(2, 100)
    clock = FakeClock()
    log.store.before = lambda operation, key: clock.advance(5_000)  # each answer takes that long

    async def work() -> None:
        reader = RemoteReader(log.store, log.rows, tmp_path, clock, replace(SMALL, read_ahead=0))
        offset = 0
        for _ in range(12):
            slice = await reader.read(PART, offset, max_bytes=max_bytes, stop=FAR, committed=False)
            assert slice.stop is not None
            content(slice)
            offset, (stream,) = slice.stop, reader._streams._streams.values()
            assert stream.habit.thought_ms == 0
        await reader.close()

    run(work)


def test_a_reader_that_has_come_to_the_end_leaves_its_share_to_others(tmp_path: Path) -> None:
    log = synthetic(2, 40)

    async def work() -> None:
        reader = RemoteReader(log.store, log.rows, tmp_path, FakeClock(), SMALL)
        offset = 0
        while offset < log.end:
            slice = await reader.read(PART, offset, max_bytes=3000, stop=log.end, committed=False)
            assert slice.stop is not None
            content(slice)
            offset = slice.stop
            assert reader._streams.active(now_ms=0) <= 1
        assert reader._streams.active(now_ms=0) == 0
        await reader.close()

    run(work)
