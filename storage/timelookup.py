"""Finding records by time in the local log (ENGINE.md, "Read").

The loop knows the segments and where in them to look; reading through batches and records may take long, so it is cut
out as Scans that any thread may run. Unlike Kafka the search goes on when the first segment that might have the record
has none: compaction empties segments.
"""

import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tierd.storage.header import HEADER_BYTES, BatchHeader, parse_header
from tierd.storage.indexcache import IndexCache
from tierd.storage.indexing import NO_TIMESTAMP
from tierd.storage.log_read import LogReader, heads
from tierd.storage.records import Record, iter_records
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments

Result = TypeVar("Result")
Found = tuple[int, int]
"""Offset and timestamp of a record."""
Batches = Iterator[tuple[BatchHeader, Callable[[], Iterator[Record]]]]
"""Each with a way to read its records there and then."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A part of a `.log` to read through. It has a descriptor of its own: close it, whether it was run or not."""

    fd: int
    begin: int
    end: int
    where: str
    look: Callable[[Batches], Found | None]

    def run(self) -> Found | None:
        """Any thread. Raises CorruptFile, OSError."""
        return self.look(self._batches())

    def close(self) -> None:
        os.close(self.fd)

    def _batches(self) -> Batches:
        for position, _, _, size in heads(self.fd, self.begin, self.end, self.where):
            header = parse_header(os.pread(self.fd, HEADER_BYTES, position), 0, self.where)
            yield header, partial(_decode, self.fd, position, size, header, self.where)


Search = Generator[Scan, Found | None, Result]
"""Gives scans, takes what they have found, returns the result. Loop thread only. Raises CorruptFile, OSError."""


class TimeLookup:
    """Loop thread only."""

    def __init__(self, segments: Segments, indexes: IndexCache, reader: LogReader) -> None:
        self._segments = segments
        self._indexes = indexes
        self._reader = reader

    def first_at(self, timestamp_ms: int, start: int, stop: int) -> Search[Found | None]:
        """The first record in [start, stop) with a timestamp >= *timestamp_ms*."""
        for segment in self._from(start, stop):
            largest = segment.largest_timestamp()
            if largest is None or largest[0] < timestamp_ms:
                continue
            begin = max(self._floor(segment, timestamp_ms), start)
            found = yield self._scan(segment, begin, partial(_first_at, timestamp_ms, start, stop))
            if found is not None:
                return found
        return None

    def largest(self, start: int, stop: int) -> Search[Found | None]:
        """The earliest record in [start, stop) that has the largest timestamp of the local log, if any."""
        best: Found | None = None
        for segment in self._from(start, None):
            if start <= segment.base:
                largest = segment.largest_timestamp()
            elif segment.size_bytes:
                largest = yield self._scan(segment, start, partial(_largest_from, start))
            else:
                largest = None
            if largest is not None and (best is None or largest[0] > best[0]):
                best = largest
        if best is None:
            return None
        timestamp_ms, last_offset = best
        begin = max(last_offset, start)
        segment = self._segments[self._segments.find(begin)]
        found = yield self._scan(segment, begin, partial(_first_at, timestamp_ms, start, stop))
        return found

    def _from(self, start: int, stop: int | None) -> Iterator[Segment]:
        """Segments from the one that holds *start* on, below *stop*. While a scan runs others may come and go."""
        at: int | None = start
        while at is not None and (stop is None or at < stop):
            number = self._segments.find(at)
            if not self._reader.is_settled(number):
                continue
            at = self._segments.next_base(number)
            yield self._segments[number]

    def _floor(self, segment: Segment, timestamp_ms: int) -> int:
        """An offset below which no record of *segment* is as late as *timestamp_ms*, but for the batch it ends."""
        found = self._entry(segment, timestamp_ms)
        if found is not None and not self._reader.has_time(segment, found):
            self._indexes.renew(segment)
            found = self._entry(segment, timestamp_ms)
        return segment.base if found is None else found[1]

    def _entry(self, segment: Segment, timestamp_ms: int) -> tuple[int, int] | None:
        times = segment.builder.times if segment.builder is not None else self._indexes.of(segment).times
        return times.entry_at(timestamp_ms)

    def _scan(self, segment: Segment, offset: int, look: Callable[[Batches], Found | None]) -> Scan:
        """From the batch that holds *offset* on to the segment's end."""
        fd = segment.handle.acquire()
        try:
            begin = self._reader.locate(segment, fd, offset) if segment.size_bytes else 0
            return Scan(os.dup(fd), begin, segment.size_bytes, segment.where, look)
        finally:
            segment.handle.release()


def _first_at(timestamp_ms: int, start: int, stop: int, batches: Batches) -> Found | None:
    for header, read in batches:
        if header.base_offset >= stop:
            return None
        if header.max_timestamp_ms < timestamp_ms:
            continue
        for record in read():
            if record.timestamp_ms >= timestamp_ms and start <= record.offset < stop:
                return record.offset, record.timestamp_ms
    return None


def _largest_from(start: int, batches: Batches) -> Found | None:
    """(largest timestamp at or above offset *start*, last offset of the first batch that has it)."""
    best: Found | None = None
    for header, read in batches:
        timestamp_ms = header.max_timestamp_ms
        if header.base_offset < start:
            times = [record.timestamp_ms for record in read() if record.offset >= start]
            timestamp_ms = max(times, default=NO_TIMESTAMP)
        if timestamp_ms > (NO_TIMESTAMP if best is None else best[0]):
            best = timestamp_ms, header.last_offset
    return best


def _decode(fd: int, position: int, size: int, header: BatchHeader, where: str) -> Iterator[Record]:
    return iter_records(os.pread(fd, size, position), header, where)
