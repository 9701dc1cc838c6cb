"""Walk a `.log` of any size batch by batch in bounded memory, and say how far it is good.

Nobody trusts a segment further than such a walk: recovery cuts at its end, the dump shows what lies behind.
"""

import os
from collections.abc import Callable, Iterator

from crc32c import crc32c
from typing_extensions import Buffer

from tierd.base.errors import CorruptFile
from tierd.storage.header import CRC_START, HEADER_BYTES, BatchHeader, parse_header
from tierd.storage.index import MAX_RELATIVE

WINDOW_BYTES = 1024 * 1024
"""Most bytes held at once; a larger batch is checked piece by piece."""

Read = Callable[[int, int], Buffer]
"""(position, length) -> the bytes there, all of them unless the file ends."""


class SegmentScan:
    """Iterate for (position, header) of the good batches; then `good_bytes`, `next_offset`, `problem` tell the rest.

    A batch is good when it is whole, its CRC matches and its offsets go on from those before it. The scan ends at
    the first that is not: what follows cannot be trusted to begin where it seems to.
    """

    def __init__(self, read: Read, size_bytes: int, base: int, where: str = "", *, start: int = 0) -> None:
        """Scan [start, size_bytes) of a segment that begins at offset *base*; *start* must be where a batch begins."""
        self._read = read
        self._size_bytes = size_bytes
        self._base = base
        self._where = where
        self._window: memoryview = memoryview(b"")
        self._window_at = start
        self.good_bytes = start
        """Position after the last good batch so far."""
        self.next_offset = base
        """The offset after the last good batch so far."""
        self.problem: CorruptFile | None = None
        """What ended the scan before `size_bytes`; its position is `good_bytes`."""

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while self.problem is None and self.good_bytes < self._size_bytes:
            position = self.good_bytes
            try:
                header = self._next(position)
            except CorruptFile as error:
                self.problem = CorruptFile(self._where, position, error.reason)
                return
            self.good_bytes = position + header.size_bytes
            self.next_offset = header.next_offset
            yield position, header

    def require_whole(self) -> None:
        """Raise the problem if there was one."""
        if self.problem is not None:
            raise self.problem

    def batch(self, header: BatchHeader) -> memoryview:
        """The bytes of the batch that iterating gave last, read again only where they are more than a window."""
        position = self.good_bytes - header.size_bytes
        at = position - self._window_at
        if at >= 0 and at + header.size_bytes <= self._window.nbytes:
            return self._window[at : at + header.size_bytes]
        return memoryview(self._read(position, header.size_bytes))

    def _next(self, position: int) -> BatchHeader:
        """The batch at *position*, all of it checked. Raises CorruptFile."""
        self._need(position, HEADER_BYTES)
        header = parse_header(self._window, position - self._window_at)
        if position + header.size_bytes > self._size_bytes:
            left = self._size_bytes - position
            raise self._bad(f"batch of {header.size_bytes} bytes, only {left} are there")
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            last = header.last_offset
            raise self._bad(f"offsets {header.base_offset} to {last} where {self.next_offset} or later must follow")
        if header.last_offset - self._base > MAX_RELATIVE:
            raise self._bad(f"offset {header.last_offset} is too far from the segment's base {self._base}")
        if self._crc(position, header.size_bytes) != header.crc:
            raise self._bad("the CRC does not match")
        return header

    def _crc(self, position: int, size_bytes: int) -> int:
        crc, at, stop = 0, position + CRC_START, position + size_bytes
        self._need(position, min(size_bytes, WINDOW_BYTES))
        while at < stop:
            self._need(at, 1)
            piece = self._window[at - self._window_at : stop - self._window_at]
            crc = crc32c(piece, crc)
            at += piece.nbytes
        return crc

    def _need(self, position: int, length: int) -> None:
        """Have [position, position + length) in the window, with as much behind it as fits."""
        if self._window_at <= position and position + length <= self._window_at + self._window.nbytes:
            return
        most = min(WINDOW_BYTES, self._size_bytes - position)
        self._window_at = position
        self._window = memoryview(self._read(position, most))
        if self._window.nbytes < min(length, most):
            raise self._bad(f"the file ends {position + self._window.nbytes} bytes from its start")

    def _bad(self, reason: str) -> CorruptFile:
        return CorruptFile(self._where, self.good_bytes, reason)


def scan_segment(source: Read | int, size_bytes: int, base: int, where: str = "", *, start: int = 0) -> SegmentScan:
    """Scan a descriptor (read with pread) or whatever *source* reads from; see SegmentScan."""
    return SegmentScan(pread(source) if isinstance(source, int) else source, size_bytes, base, where, start=start)


def pread(fd: int) -> Read:
    """Read a descriptor as a scan wants it."""

    def read(position: int, length: int) -> bytes:
        found = os.pread(fd, length, position)
        while len(found) < length and (more := os.pread(fd, length - len(found), position + len(found))):
            found += more
        return found

    return read
