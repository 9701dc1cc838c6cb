"""Where each batch of an extent lies: found once when the extent's bytes are checked, looked up at every read. Pure."""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from tierd.base.errors import CorruptFile
from tierd.storage.header import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC

_FRONT = struct.Struct(">qiibIhi")
"""Base offset to last offset delta of a batch header (storage/FORMAT.md). Alone, because a walk over small batches
spends its time here: `parse_header` on each would cost five times as much."""


class Cut(NamedTuple):
    """Whole batches in the middle of an extent."""

    position: int
    """Of the first byte, from the extent's start."""
    length: int
    next_offset: int
    """The offset after the last batch."""


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The batches of an extent, all of which passed their CRC; at least one."""

    bases: "array[int]"
    nexts: "array[int]"
    """The offset after each batch."""
    stops: "array[int]"
    """Where each batch ends, from the extent's start."""

    @property
    def first_offset(self) -> int:
        return self.bases[0]

    @property
    def next_offset(self) -> int:
        return self.nexts[-1]

    @property
    def length(self) -> int:
        return self.stops[-1]

    @property
    def memory_bytes(self) -> int:
        """What this object itself takes up."""
        return sys.getsizeof(self.bases) + sys.getsizeof(self.nexts) + sys.getsizeof(self.stops) + 128

    def __len__(self) -> int:
        return len(self.bases)

    def position(self, number: int) -> int:
        """Where batch *number* begins, from the extent's start."""
        return self.stops[number - 1] if number else 0

    def batch(self, number: int) -> Cut:
        position = self.position(number)
        return Cut(position, self.stops[number] - position, self.nexts[number])

    def base_offset(self, number: int) -> int:
        return self.bases[number]

    def find(self, offset: int) -> int | None:
        """The number of the first batch whose last offset is at or above *offset*; None when all lie below."""
        number = bisect_right(self.nexts, offset)
        return number if number < len(self.nexts) else None

    def cut(self, number: int, max_bytes: int, stop: int, *, whole_first: bool) -> Cut | None:
        """Batches from *number* on, as many as fit into *max_bytes* and begin below offset *stop*.

        The first one comes whatever its size when *whole_first*. None when no batch qualifies.
        """
        position = self.position(number)
        end = bisect_right(self.stops, position + max_bytes)
        if whole_first:
            end = max(end, number + 1)
        end = min(end, bisect_left(self.bases, stop))
        if end <= number:
            return None
        return Cut(position, self.stops[end - 1] - position, self.nexts[end - 1])


class Walker:
    """Checks batches in bytes that come piece by piece: the bytes of object *where* from position *at* on."""

    def __init__(self, where: str, at: int, *, floor: int, ceiling: int) -> None:
        """Offsets must ascend within [floor, ceiling); no CRC covers them."""
        self._where = where
        self._at = at
        self._floor = floor
        self._ceiling = ceiling
        self._bases, self._nexts, self._stops = array("q"), array("q"), array("q")
        self._stop = 0
        """Where the whole batches so far end."""
        self._front = bytearray()
        """Of a header that is not whole yet."""
        self._left = 0
        """Bytes that the batch under way lacks."""
        self._sum = self._crc = 0
        """Of the batch under way: over what has come, and what it should be in the end."""

    def feed(self, piece: memoryview) -> None:
        """Raises CorruptFile for a wrong CRC, anything that is no batch, and offsets that are out of order."""
        at = self._go_on(piece) if self._left or self._front else 0
        at = self._whole(piece, at)
        if at < len(piece):
            self._begin(piece[at:])

    def passed(self, piece: bytes) -> bytes:
        """*piece*, once it is fed."""
        self.feed(memoryview(piece))
        return piece

    def table(self) -> BatchTable | None:
        """The batches that are whole so far; what is missing of one at the end is the caller's to judge."""
        return BatchTable(self._bases, self._nexts, self._stops) if self._bases else None

    def _whole(self, piece: memoryview, at: int) -> int:
        """Take in the batches that lie whole in *piece* from *at* on; where they end."""
        size, floor, ceiling, here = len(piece), self._floor, self._ceiling, self._stop - at
        bases, nexts, stops = self._bases, self._nexts, self._stops
        while at + HEADER_BYTES <= size:
            base, length, _, magic, crc, _, delta = _FRONT.unpack_from(piece, at)
            stop, after = at + LENGTH_END + length, base + delta + 1
            if magic != MAGIC or not floor <= base < after <= ceiling or length < HEADER_BYTES - LENGTH_END:
                raise self._no_batch(floor, here + at)
            if stop > size:
                break
            if crc32c(piece[at + CRC_START : stop]) != crc:
                raise self._wrong(here + at)
            floor = after
            bases.append(base)
            nexts.append(after)
            stops.append(here + stop)
            at = stop
        self._floor, self._stop = floor, here + at
        return at

    def _begin(self, rest: memoryview) -> None:
        """*rest* is the beginning of a batch, or of its header."""
        self._front += rest[:HEADER_BYTES]
        if len(self._front) < HEADER_BYTES:
            return
        _, length, _, _, self._crc, _, _ = _FRONT.unpack_from(self._front)
        self._sum = crc32c(rest[CRC_START:])
        self._left = LENGTH_END + length - len(rest)

    def _go_on(self, piece: memoryview) -> int:
        """The batch under way goes on with *piece*; where it ends there."""
        at = 0
        if not self._left:
            at = HEADER_BYTES - len(self._front)
            self._front += piece[:at]
            if len(self._front) < HEADER_BYTES:
                return len(piece)
            self._check_front()
        taken = piece[at : at + self._left]
        self._sum = crc32c(taken, self._sum)
        self._left -= len(taken)
        if not self._left:
            self._end()
        return at + len(taken)

    def _check_front(self) -> None:
        base, length, _, magic, self._crc, _, delta = _FRONT.unpack_from(self._front)
        good = magic == MAGIC and self._floor <= base <= base + delta < self._ceiling
        if not good or length < HEADER_BYTES - LENGTH_END:
            raise self._no_batch(self._floor, self._stop)
        self._sum = crc32c(self._front[CRC_START:])
        self._left = LENGTH_END + length - HEADER_BYTES

    def _end(self) -> None:
        if self._sum != self._crc:
            raise self._wrong(self._stop)
        base, length, _, _, _, _, delta = _FRONT.unpack_from(self._front)
        self._front.clear()
        self._floor = base + delta + 1
        self._stop += LENGTH_END + length
        self._bases.append(base)
        self._nexts.append(self._floor)
        self._stops.append(self._stop)

    def _no_batch(self, floor: int, position: int) -> CorruptFile:
        why = f"no batch over offsets in [{floor}, {self._ceiling}) begins here"
        return CorruptFile(self._where, self._at + position, why)

    def _wrong(self, position: int) -> CorruptFile:
        return CorruptFile(self._where, self._at + position, "the CRC-32C of the batch does not match")


def walk(data: memoryview, where: str, at: int, *, floor: int, ceiling: int) -> BatchTable | None:
    """Check every batch that lies whole in *data*, the bytes of object *where* from position *at* on.

    None when not even the first lies whole there; what a batch at the end lacks is the caller's to judge: see
    `length`. Raises as `Walker.feed`.
    """
    walker = Walker(where, at, floor=floor, ceiling=ceiling)
    walker.feed(data)
    return walker.table()
