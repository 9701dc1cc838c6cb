"""Reading the local log: which bytes answer a fetch (ENGINE.md, "Read"). Loop thread only.

Only batch headers are read here; the records go from the file to the socket. The usual read, one that goes on where
an earlier one stopped, needs no look at the disk at all.
"""

import os
import struct
from collections.abc import Callable, Iterator
from typing import TypeVar

from tierd.base.errors import CorruptFile, TierdError
from tierd.storage.errors import Repairing
from tierd.storage.fdcache import FileHandle
from tierd.storage.header import HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader, parse_header
from tierd.storage.indexcache import IndexCache
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments
from tierd.storage.sparse import OffsetEntries
from tierd.storage.view import EMPTY_SLICE, AbortedTxn, FileSpan, LogSlice

_HEAD = struct.Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_HEAD_BYTES = 27
assert _HEAD.size == _HEAD_BYTES
_WINDOW_BYTES = 4096
_MAX_SPANS = 64
"""A read goes no further than this many segments, so that its descriptors stay few."""

_Found = TypeVar("_Found")

Head = tuple[int, int, int, int]
"""Position, base offset, last offset, size in bytes of a batch."""


class SegmentsChanged(TierdError):
    """A segment was not what its name says and has been put right: begin the read again, from the local start on."""


class LogReader:
    """Finds batches in the segments of one partition."""

    def __init__(self, segments: Segments, indexes: IndexCache, settle: Callable[[int], bool]) -> None:
        """*settle* looks at a closed segment, given its number, before its first use; whether all is as it was."""
        self._segments = segments
        self._indexes = indexes
        self._settle = settle

    def read(self, offset: int, max_bytes: int, stop: int, log_end: int, *, committed: bool) -> LogSlice:
        """Whole batches below *stop* from the first whose last offset is at or above *offset*.

        The first one comes even above *max_bytes*. With *committed* the aborted transactions among them are named.
        Raises SegmentsChanged, Repairing, CorruptFile, DiskFull, OSError.
        """
        if offset >= stop:
            return EMPTY_SLICE
        at = self._segments.find(offset)
        segment = self._segments[at]
        start = segment.hints.get(offset)
        if start is not None and segment.checked and start + max_bytes < segment.size_bytes:
            next_base = self._segments.next_base(at)
            if stop >= (log_end if next_base is None else next_base):
                return self._onwards(segment, at, offset, start, max_bytes, log_end, committed=committed)
        return self._anywhere(offset, max_bytes, stop, log_end, committed=committed)

    def _onwards(
        self, segment: Segment, at: int, offset: int, start: int, max_bytes: int, log_end: int, *, committed: bool
    ) -> LogSlice:
        """The usual read: from where an earlier one stopped, within one segment all of which may be read."""
        handle = segment.handle
        fd = handle.acquire()
        try:
            end = self._cut(segment, fd, start, start + max_bytes, segment.size_bytes, first=True)
            aborted = self.aborted(offset, self._bound(at, end, log_end)) if committed else ()
        except BaseException:
            handle.release()
            raise
        return LogSlice(
            (tuple.__new__(FileSpan, (fd, start, end - start)),), end - start, aborted, None, handle.release
        )

    def _anywhere(self, offset: int, max_bytes: int, stop: int, log_end: int, *, committed: bool) -> LogSlice:
        handles: list[FileHandle] = []
        try:
            spans, at = self._spans(offset, max_bytes, stop, log_end, handles)
            aborted: tuple[AbortedTxn, ...] = ()
            if committed and spans:
                last = spans[-1]
                aborted = self.aborted(offset, self._bound(at, last.position + last.length, log_end))
        except BaseException:
            _release(handles)
            raise
        if len(spans) == 1:
            return LogSlice((spans[0],), spans[0].length, aborted, None, handles[0].release)
        if not spans:
            return EMPTY_SLICE
        length = sum(span.length for span in spans)
        return LogSlice(tuple(spans), length, aborted, None, lambda: _release(handles))

    def _spans(
        self, offset: int, max_bytes: int, stop: int, log_end: int, handles: list[FileHandle]
    ) -> tuple[list[FileSpan], int]:
        """Spans with their handles acquired into *handles*, and the number of the segment that the last one is in."""
        segments = self._segments
        spans: list[FileSpan] = []
        at = last = segments.find(offset)
        while True:
            segment, next_base = segments[at], segments.next_base(at)
            if not segment.checked and not self._is_ready(at, must=not spans):
                return spans, last
            whole = stop >= (log_end if next_base is None else next_base)
            if segment.size_bytes:
                fd = segment.handle.acquire()
                handles.append(segment.handle)
                start = self.locate(segment, fd, offset)
                end = full = segment.size_bytes if whole else self.locate(segment, fd, stop)
                if end - start > max_bytes:
                    end = self._cut(segment, fd, start, start + max_bytes, full, first=not spans)
                elif next_base is None and whole:
                    segment.hint(stop, end)
                if end > start:
                    spans.append(FileSpan(fd, start, end - start))
                    last = at
                    max_bytes -= end - start
                else:
                    handles.pop().release()
                if end < full:
                    return spans, last
            if next_base is None or next_base >= stop or len(spans) >= _MAX_SPANS or (spans and max_bytes <= 0):
                return spans, last
            offset = next_base
            at += 1

    def _is_ready(self, at: int, *, must: bool) -> bool:
        """Whether segment number *at* may be read. False: not yet, and no matter unless it *must* be; else it raises
        Repairing then, and SegmentsChanged."""
        try:
            settled = self.is_settled(at)
        except Repairing:
            if must:
                raise
            return False
        if not settled:
            raise SegmentsChanged(f"{self._segments[at].where} has been put right")
        return True

    def is_settled(self, at: int) -> bool:
        """Whether segment number *at* may be used as it is; else the segments have changed."""
        return self._segments[at].checked or self._segments.next_base(at) is None or self._settle(at)

    def locate(self, segment: Segment, fd: int, offset: int) -> int:
        """Position of the first batch of *segment* whose last offset is at or above *offset*; its size when none is.

        An index entry that does not lead to the batch it names makes the index be rebuilt.
        """
        if offset <= segment.base:
            return 0
        position = segment.hints.get(offset)
        if position is not None:
            return position
        position = self._mended(segment, lambda entries: _seek(segment, fd, entries, offset))
        segment.hint(offset, position)
        return position

    def _mended(self, segment: Segment, look: Callable[[OffsetEntries], _Found]) -> _Found:
        """What *look* finds; once more when an entry leads astray, with the index made again. Raises CorruptFile."""
        entries = self._entries(segment)
        try:
            return look(entries)
        except CorruptFile:
            if entries.from_log:
                raise
            return look(self._indexes.renew(segment).offsets)

    def _cut(self, segment: Segment, fd: int, start: int, limit: int, end: int, *, first: bool) -> int:
        """The last end of a batch at or before *limit*; with *first* after one batch at least."""
        begin = max(start, self._entries(segment).floor_position(limit))
        if begin > start or not first:
            # What the index leads to nearly always goes beyond the limit: its head alone says so.
            head = os.pread(fd, _HEAD_BYTES, begin)
            if len(head) == _HEAD_BYTES:
                base, length, magic, delta = _HEAD.unpack(head)
                size = length + LENGTH_END
                if magic == MAGIC and delta >= 0 and size >= HEADER_BYTES and limit < begin + size <= end:
                    segment.hint(base, begin)
                    return begin

        def look(entries: OffsetEntries) -> int:
            begin = max(start, entries.floor_position(limit))
            for position, base, _, size in heads(fd, begin, end, segment.where):
                if position + size > limit and not (first and position == start):
                    segment.hint(base, position)
                    return position
            return end

        return self._mended(segment, look)

    def has_time(self, segment: Segment, time: tuple[int, int]) -> bool:
        """Whether the log says what an entry of the time index does. Raises CorruptFile, OSError."""
        fd = segment.handle.acquire()
        try:
            return self._mended(segment, lambda entries: has_time(segment, fd, entries, time))
        finally:
            segment.handle.release()

    def _entries(self, segment: Segment) -> OffsetEntries:
        return segment.builder.offsets if segment.builder is not None else self._indexes.of(segment).offsets

    def _bound(self, at: int, end_position: int, log_end: int) -> int:
        """An offset above all that lies before *end_position* of segment *at*, as near as the index tells."""
        segment = self._segments[at]
        fd = segment.handle.acquire()
        try:
            found = self._mended(segment, lambda entries: _first_from(segment, fd, entries, end_position))
        finally:
            segment.handle.release()
        if found is not None:
            return found
        next_base = self._segments.next_base(at)
        return log_end if next_base is None else next_base

    def aborted(self, start: int, stop: int) -> tuple[AbortedTxn, ...]:
        """Aborted transactions that begin below *stop* and whose marker is at or above *start*, in marker order.
        Raises CorruptFile, OSError."""
        found: list[AbortedTxn] = []
        first = self._segments.find(start)
        # Of a log with very many segments this is what a read costs: no call for each.
        for at, segment in enumerate(self._segments.since(first), first):
            if segment.has_txn_index:
                entries = self._indexes.aborted(segment, self._segments.next_base(at))
                if entries.find(start, stop, found):
                    break
        return tuple(found)

    def batches(self, offset: int, stop: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every batch from *offset* on that begins below *stop*, whole. Raises CorruptFile, OSError."""
        following: int | None = offset
        while following is not None:
            offset, at = following, self._segments.find(following)
            segment = self._segments[at]
            if segment.base >= stop:
                return
            if not self.is_settled(at):
                continue
            following = self._segments.next_base(at)
            if not segment.size_bytes:
                continue
            fd = segment.handle.acquire()
            try:
                begin = self.locate(segment, fd, offset)
                for position, base, _, size in heads(fd, begin, segment.size_bytes, segment.where):
                    if base >= stop:
                        return
                    batch = os.pread(fd, size, position)
                    yield parse_header(batch, 0, segment.where), batch
            finally:
                segment.handle.release()


def _seek(segment: Segment, fd: int, entries: OffsetEntries, offset: int) -> int:
    at = entries.floor_at(offset)
    begin = entries.positions[at] if at >= 0 else 0
    expected = entries.relatives[at] + entries.base if at >= 0 else None
    for position, _, last, _ in heads(fd, begin, segment.size_bytes, segment.where):
        if expected is not None and last != expected:
            raise CorruptFile(segment.where, position, f"the index says {expected} where the batch ends at {last}")
        if last >= offset:
            return position
        expected = None
    return segment.size_bytes


def _first_from(segment: Segment, fd: int, entries: OffsetEntries, position: int) -> int | None:
    """Last offset of the first indexed batch from *position* on. Raises CorruptFile when it is not there."""
    found = entries.first_from(position)
    if found is None or entries.from_log:
        return found if found is None else found[0]
    offset, begin = found
    _, _, last, _ = next(heads(fd, begin, segment.size_bytes, segment.where))
    if last != offset:
        raise CorruptFile(segment.where, begin, f"the index says {offset} where the batch ends at {last}")
    return offset


def is_latest(segment: Segment, fd: int, entries: OffsetEntries, time: tuple[int, int] | None) -> bool:
    """Whether the last entry of the time index, if there is one, names the largest timestamp, as far as the batch that
    it leads to and those at the segment's end tell. Raises CorruptFile."""
    if time is None:
        return True
    begin = entries.positions[-1] if len(entries) else 0
    return has_time(segment, fd, entries, time) and all(
        parse_header(os.pread(fd, HEADER_BYTES, position), 0, segment.where).max_timestamp_ms <= time[0]
        for position, *_ in heads(fd, begin, segment.size_bytes, segment.where)
    )


def has_time(segment: Segment, fd: int, entries: OffsetEntries, time: tuple[int, int]) -> bool:
    """Whether an entry of the time index names a batch's largest timestamp. Raises CorruptFile."""
    timestamp_ms, offset = time
    at = entries.floor_at(offset)
    for position, base, last, _ in heads(
        fd, entries.positions[at] if at >= 0 else 0, segment.size_bytes, segment.where
    ):
        if last >= offset:
            header = parse_header(os.pread(fd, HEADER_BYTES, position), 0, segment.where)
            return base <= offset and header.max_timestamp_ms == timestamp_ms
    return False


def heads(fd: int, position: int, end: int, where: str) -> Iterator[Head]:
    """The batches from *position*, where one must begin, to *end*. Raises CorruptFile."""
    window, start = b"", position
    while position < end:
        if position + _HEAD_BYTES > start + len(window):
            window, start = os.pread(fd, min(_WINDOW_BYTES, end - position), position), position
            if len(window) < _HEAD_BYTES:
                raise CorruptFile(where, position, f"no room for a batch header of {HEADER_BYTES} bytes")
        base, length, magic, delta = _HEAD.unpack_from(window, position - start)
        size = length + LENGTH_END
        if magic != MAGIC or size < HEADER_BYTES or delta < 0 or position + size > end:
            raise CorruptFile(where, position, f"no batch begins here (magic {magic}, {size} bytes)")
        yield position, base, base + delta, size
        position += size


def _release(handles: list[FileHandle]) -> None:
    for handle in handles:
        handle.release()
