"""Look-ups by time over remote segments (storage/ENGINE.md, "Read")."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

from tierd.base.ids import PartitionId
from tierd.storage.header import HEADER_BYTES, BatchHeader, parse_header
from tierd.storage.records import Record, iter_records
from tierd.storage.view import TimestampOffset
from tierd.tiering.reader.cache import DiskCache
from tierd.tiering.reader.indexes import RemoteIndexes
from tierd.tiering.reader.pool import ExtentPool
from tierd.tiering.reader.table import BatchTable, Cut
from tierd.tiering.segments import RemoteSegment, SegmentSource

T = TypeVar("T")

Scan = Callable[[int, str, BatchTable, int], T | None]
"""(descriptor, name, table, number of the first batch) of an extent -> what was found there. Runs in a thread."""


class TimeLookups:
    """Event loop only; catalog rows and records are gone through in threads."""

    def __init__(
        self,
        source: SegmentSource,
        pool: ExtentPool,
        indexes: RemoteIndexes,
        cache: DiskCache,
        threads: Executor,
        want_bytes: int,
    ) -> None:
        self._source = source
        self._pool = pool
        self._indexes = indexes
        self._cache = cache
        self._threads = threads
        self._want_bytes = want_bytes

    async def first_at(self, part: PartitionId, timestamp_ms: int, start: int, stop: int) -> TimestampOffset | None:
        """The first record with offset in [start, stop) and timestamp >= *timestamp_ms*; control records count."""
        for segment in await self._segments(part, start, stop):
            if segment.largest_timestamp_ms is not None and segment.largest_timestamp_ms >= timestamp_ms:
                found = await self._first_in(segment, timestamp_ms, start, stop)
                if found is not None:
                    return found
        return None

    async def largest(self, part: PartitionId, start: int, stop: int) -> TimestampOffset | None:
        """The earliest record with offset in [start, stop) that has the largest timestamp there."""
        dated = [s for s in await self._segments(part, start, stop) if s.largest_timestamp_ms is not None]
        best: TimestampOffset | None = None
        for segment in sorted(dated, key=lambda s: (-(s.largest_timestamp_ms or 0), s.base)):
            if best is None or _may_beat(segment, best):
                best = _better(best, await self._largest_in(segment, start, stop))
        return best

    async def _segments(self, part: PartitionId, start: int, stop: int) -> list[RemoteSegment]:
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(self._threads, self._source.in_range, part, start, stop)
        return [segment for segment in rows if segment.size_bytes]

    async def _first_in(
        self, segment: RemoteSegment, timestamp_ms: int, start: int, stop: int
    ) -> TimestampOffset | None:
        times = await self._indexes.times(segment)
        earlier = times.floor(timestamp_ms - 1)
        begin = max(start, segment.base) if earlier is None else max(start, earlier + 1)
        return await self._scan(
            segment, begin, stop, lambda fd, name, table, n: first_at(fd, name, table, n, timestamp_ms, start, stop)
        )

    async def _largest_in(self, segment: RemoteSegment, start: int, stop: int) -> TimestampOffset | None:
        largest, at = segment.largest_timestamp_ms, segment.largest_timestamp_offset
        if largest is not None and at is not None and start <= at < stop:
            return TimestampOffset(at, largest, _epoch_at(segment, at))
        if largest is not None and start <= segment.base and segment.next_base <= stop:
            return await self._first_in(segment, largest, start, stop)
        best: TimestampOffset | None = None

        def scan(fd: int, name: str, table: BatchTable, number: int) -> TimestampOffset | None:
            nonlocal best
            best = _better(best, largest_in(fd, name, table, number, start, stop))
            return None

        await self._scan(segment, max(start, segment.base), stop, scan)
        return best

    async def _scan(self, segment: RemoteSegment, begin: int, stop: int, scan: Scan[T]) -> T | None:
        """Run *scan* over the extents of *segment* from offset *begin* to *stop*, until it finds something."""
        loop = asyncio.get_running_loop()
        while begin < min(stop, segment.next_base):
            located = await self._pool.locate(segment, begin, self._want_bytes)
            if located is None or located[0].file is None:
                return None
            slot, table, number = located
            file = located[0].file
            if (fd := self._cache.pin_if_there(file)) is None:
                continue
            try:
                found = await loop.run_in_executor(self._threads, scan, fd, segment.log_key, table, number)
            finally:
                self._cache.unpin(file)
            if found is not None:
                return found
            begin = slot.next_offset
        return None


def first_at(
    fd: int, name: str, table: BatchTable, number: int, timestamp_ms: int, start: int, stop: int
) -> TimestampOffset | None:
    """Of an extent file, from batch *number* on: the first record in [start, stop) at *timestamp_ms* or later."""
    for header, at in _batches(fd, table, number, stop, name):
        if header.max_timestamp_ms >= timestamp_ms:
            for record in _records(fd, header, at, name):
                if start <= record.offset < stop and record.timestamp_ms >= timestamp_ms:
                    return TimestampOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def largest_in(fd: int, name: str, table: BatchTable, number: int, start: int, stop: int) -> TimestampOffset | None:
    """Of an extent file, from batch *number* on: the earliest record in [start, stop) with the largest time."""
    best: TimestampOffset | None = None
    for header, at in _batches(fd, table, number, stop, name):
        if best is None or header.max_timestamp_ms > best.timestamp_ms:
            for record in _records(fd, header, at, name):
                if start <= record.offset < stop and record.timestamp_ms >= 0:
                    found = TimestampOffset(record.offset, record.timestamp_ms, header.leader_epoch)
                    best = _better(best, found)
    return best


def _batches(fd: int, table: BatchTable, number: int, stop: int, name: str) -> Iterator[tuple[BatchHeader, Cut]]:
    for n in range(number, len(table)):
        if table.bases[n] >= stop:
            return
        at = table.batch(n)
        yield parse_header(os.pread(fd, HEADER_BYTES, at.position), 0, name), at


def _records(fd: int, header: BatchHeader, at: Cut, name: str) -> Iterator[Record]:
    return iter_records(os.pread(fd, at.length, at.position), header, name)


def _better(best: TimestampOffset | None, found: TimestampOffset | None) -> TimestampOffset | None:
    """The later of the two, of equal ones the earlier offset."""
    if best is None or found is None:
        return best or found
    return max(best, found, key=lambda at: (at.timestamp_ms, -at.offset))


def _may_beat(segment: RemoteSegment, best: TimestampOffset) -> bool:
    largest = segment.largest_timestamp_ms or 0
    return largest > best.timestamp_ms or (largest == best.timestamp_ms and segment.base < best.offset)


def _epoch_at(segment: RemoteSegment, offset: int) -> int | None:
    epochs = [entry.epoch for entry in segment.epochs if entry.start <= offset]
    return epochs[-1] if epochs else None
