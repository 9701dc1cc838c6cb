"""Finding records by time in the local log (ENGINE.md, "Read"). Loop thread only.

Unlike Kafka the search goes on when the first segment that might have the record has none: compaction empties segments.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial

from tierd.storage.header import HEADER_BYTES, BatchHeader, parse_header
from tierd.storage.indexcache import IndexCache
from tierd.storage.indexing import NO_TIMESTAMP
from tierd.storage.log_read import LogReader, heads
from tierd.storage.records import Record, iter_records
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments

Found = tuple[int, int]
"""Offset and timestamp of a record."""


class TimeLookup:
    def __init__(self, segments: Segments, indexes: IndexCache, reader: LogReader) -> None:
        self._segments = segments
        self._indexes = indexes
        self._reader = reader

    def first_at(self, timestamp_ms: int, start: int, stop: int) -> Found | None:
        """The first record in [start, stop) with a timestamp >= *timestamp_ms*. Raises CorruptFile, OSError."""
        for at in range(self._segments.find(start), len(self._segments)):
            segment = self._segments[at]
            if segment.base >= stop:
                return None
            largest = segment.largest_timestamp()
            if largest is None or largest[0] < timestamp_ms:
                continue
            begin = max(self._floor(segment, timestamp_ms), start)
            for record in self._records(segment, begin, timestamp_ms):
                if record.offset >= stop:
                    return None
                if record.offset >= start and record.timestamp_ms >= timestamp_ms:
                    return record.offset, record.timestamp_ms
        return None

    def largest(self, start: int, stop: int) -> Found | None:
        """The earliest record in [start, stop) that has the largest timestamp of the local log, if any."""
        best: tuple[int, Segment, int] | None = None
        for at in range(self._segments.find(start), len(self._segments)):
            segment = self._segments[at]
            largest = self._largest_from(segment, start)
            if largest is not None and (best is None or largest[0] > best[0]):
                best = largest[0], segment, largest[1]
        if best is None:
            return None
        timestamp_ms, segment, last_offset = best
        for record in self._records(segment, max(last_offset, start), timestamp_ms):
            if record.timestamp_ms >= timestamp_ms and start <= record.offset < stop:
                return record.offset, record.timestamp_ms
        return None

    def _largest_from(self, segment: Segment, start: int) -> Found | None:
        """(largest timestamp at or above offset *start*, last offset of the first batch that has it)."""
        if start <= segment.base:
            found = segment.largest_timestamp()
            return None if found is None else (found[0], found[1])
        best: Found | None = None
        for header, read in self._batches(segment, start):
            timestamp_ms = header.max_timestamp_ms
            if header.base_offset < start:
                times = [record.timestamp_ms for record in read() if record.offset >= start]
                timestamp_ms = max(times, default=NO_TIMESTAMP)
            if timestamp_ms > (NO_TIMESTAMP if best is None else best[0]):
                best = timestamp_ms, header.last_offset
        return best

    def _floor(self, segment: Segment, timestamp_ms: int) -> int:
        """An offset below which no record of *segment* is as late as *timestamp_ms*, but for the batch it ends."""
        times = segment.builder.times if segment.builder is not None else self._indexes.of(segment).times
        found = times.floor(timestamp_ms)
        return segment.base if found is None else found

    def _records(self, segment: Segment, offset: int, timestamp_ms: int) -> Iterator[Record]:
        """Records of the batches from the one that holds *offset* on which may be as late as *timestamp_ms*."""
        for header, read in self._batches(segment, offset):
            if header.max_timestamp_ms >= timestamp_ms:
                yield from read()

    def _batches(self, segment: Segment, offset: int) -> Iterator[tuple[BatchHeader, Callable[[], Iterator[Record]]]]:
        """The batches from the one that holds *offset* on, each with a way to read its records there and then."""
        if not segment.size_bytes:
            return
        fd = segment.handle.acquire()
        try:
            begin = self._reader.locate(segment, fd, offset)
            for position, _, _, size in heads(fd, begin, segment.size_bytes, segment.where):
                header = parse_header(os.pread(fd, HEADER_BYTES, position), 0, segment.where)
                yield header, partial(_decode, fd, position, size, header, segment.where)
        finally:
            segment.handle.release()


def _decode(fd: int, position: int, size: int, header: BatchHeader, where: str) -> Iterator[Record]:
    return iter_records(os.pread(fd, size, position), header, where)
