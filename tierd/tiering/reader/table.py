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


def walk(data: memoryview, where: str, at: int, *, floor: int, ceiling: int) -> BatchTable | None:
    """Check every batch that lies whole in *data*, the bytes of object *where* from position *at* on.

    None when not even the first lies whole there. Raises CorruptFile for a wrong CRC, anything that is no batch, and
    offsets (which no CRC covers) that do not ascend within [floor, ceiling). What a batch at the end lacks is the
    caller's to judge: see `length`.
    """
    bases, nexts, stops = array("q"), array("q"), array("q")
    position, size = 0, len(data)
    while position + HEADER_BYTES <= size:
        base, length, _, magic, crc, _, delta = _FRONT.unpack_from(data, position)
        stop = position + LENGTH_END + length
        after = base + delta + 1
        if magic != MAGIC or not floor <= base < after <= ceiling or length < HEADER_BYTES - LENGTH_END:
            raise CorruptFile(where, at + position, f"no batch over offsets in [{floor}, {ceiling}) begins here")
        if stop > size:
            break
        if crc32c(data[position + CRC_START : stop]) != crc:
            raise CorruptFile(where, at + position, "the CRC-32C of the batch does not match")
        floor = after
        bases.append(base)
        nexts.append(floor)
        stops.append(stop)
        position = stop
    return BatchTable(bases, nexts, stops) if bases else None
