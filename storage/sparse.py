"""The sparse indexes of one segment in memory, as arrays that bisect searches in C (FORMAT.md, "Offset index").

Readers keep them for the segments in use; the writer appends to those of the active segment and writes them out in
one go. `index.py` and `timeindex.py` have the same formats entry by entry, for whoever looks at files.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right

from tierd.base.errors import CorruptFile
from tierd.storage.index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from tierd.storage.timeindex import ENTRY_BYTES as TIME_ENTRY_BYTES

_U32 = "I"
_I64 = "q"
assert array(_U32).itemsize == 4
_SWAP = sys.byteorder == "little"


class OffsetEntries:
    """(relative last offset of a batch, file position of that batch), both strictly ascending."""

    __slots__ = ("base", "from_log", "positions", "relatives", "written")

    def __init__(self, base: int) -> None:
        self.base = base
        self.from_log = True
        """Made in this run from the batches themselves: where one leads nowhere, the log is broken, not the index."""
        self.relatives = array(_U32)
        self.positions = array(_U32)
        self.written = 0
        """How many entries the file has already."""

    def __len__(self) -> int:
        return len(self.relatives)

    @property
    def size_bytes(self) -> int:
        return len(self.relatives) * OFFSET_ENTRY_BYTES

    def add(self, last_offset: int, position: int) -> None:
        self.relatives.append(last_offset - self.base)
        self.positions.append(position)

    def floor_at(self, offset: int) -> int:
        """Number of the last entry whose offset is <= *offset*; -1 when there is none."""
        return bisect_right(self.relatives, offset - self.base) - 1

    def floor_position(self, position: int) -> int:
        """Position of the last indexed batch that starts at or before *position*; 0 when there is none."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def first_from(self, position: int) -> tuple[int, int] | None:
        """(last offset, position) of the first indexed batch that starts at or after *position*; None without one."""
        at = bisect_left(self.positions, position)
        return (self.relatives[at] + self.base, self.positions[at]) if at < len(self.positions) else None

    def go_on_with(self, other: "OffsetEntries", position: int) -> None:
        """Take what *other* has of batches from *position* on."""
        at = bisect_left(other.positions, position)
        self.relatives.extend(other.relatives[at:])
        self.positions.extend(other.positions[at:])

    def to_bytes(self, start: int = 0) -> bytes:
        """The entries from number *start* on, as the file has them."""
        both = array(_U32, bytes((len(self.relatives) - start) * OFFSET_ENTRY_BYTES))
        both[0::2] = self.relatives[start:]
        both[1::2] = self.positions[start:]
        if _SWAP:
            both.byteswap()
        return both.tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes, base: int, where: str, log_bytes: int) -> "OffsetEntries":
        """Parse a file that may end in zero padding. Raises CorruptFile unless it fits a log of *log_bytes*."""
        both = _words(raw, OFFSET_ENTRY_BYTES, where)
        entries = cls(base)
        entries.from_log = False
        entries.relatives = both[0::2]
        entries.positions = both[1::2]
        entries.written = len(entries)
        for name, column in (("offsets", entries.relatives), ("positions", entries.positions)):
            if not _strictly_ascending(column):
                raise CorruptFile(where, 0, f"the {name} of its entries do not ascend")
        if entries.positions and entries.positions[-1] >= log_bytes:
            raise CorruptFile(where, 0, f"an entry points at byte {entries.positions[-1]} of a log of {log_bytes}")
        return entries


class TimeEntries:
    """(timestamp, last offset of the batch that raised the segment's maximum to it), timestamps strictly ascending."""

    __slots__ = ("base", "offsets", "timestamps", "written")

    def __init__(self, base: int) -> None:
        self.base = base
        self.timestamps = array(_I64)
        self.offsets = array(_I64)
        self.written = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def size_bytes(self) -> int:
        return len(self.timestamps) * TIME_ENTRY_BYTES

    def add(self, timestamp_ms: int, last_offset: int) -> None:
        self.timestamps.append(timestamp_ms)
        self.offsets.append(last_offset)

    @property
    def last(self) -> tuple[int, int] | None:
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else None

    def go_on_with(self, other: "TimeEntries", offset: int) -> None:
        """Take what *other* has of batches from *offset* on."""
        for timestamp_ms, last_offset in zip(other.timestamps, other.offsets, strict=True):
            if last_offset >= offset and (self.last is None or timestamp_ms > self.last[0]):
                self.add(timestamp_ms, last_offset)

    def floor(self, timestamp_ms: int) -> int | None:
        """Offset of the last entry whose timestamp is <= *timestamp_ms*; None when there is none."""
        found = self.entry_at(timestamp_ms)
        return None if found is None else found[1]

    def entry_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """All of that entry."""
        at = bisect_right(self.timestamps, timestamp_ms)
        return (self.timestamps[at - 1], self.offsets[at - 1]) if at else None

    def to_bytes(self, start: int = 0) -> bytes:
        base = self.base
        return b"".join(
            timestamp.to_bytes(8, "big", signed=True) + (offset - base).to_bytes(4, "big")
            for timestamp, offset in zip(self.timestamps[start:], self.offsets[start:], strict=True)
        )

    @classmethod
    def from_bytes(cls, raw: bytes, base: int, where: str, next_base: int | None) -> "TimeEntries":
        """Parse a file that may end in zero padding. Raises CorruptFile unless its offsets lie below *next_base*."""
        words = _words(raw, TIME_ENTRY_BYTES, where)
        entries = cls(base)
        entries.timestamps = array(
            _I64, [_signed(high << 32 | low) for high, low in zip(words[0::3], words[1::3], strict=True)]
        )
        entries.offsets = array(_I64, [base + relative for relative in words[2::3]])
        entries.written = len(entries)
        if not (_strictly_ascending(entries.timestamps) and _ascending(entries.offsets)):
            raise CorruptFile(where, 0, "its entries do not ascend")
        if next_base is not None and entries.offsets and entries.offsets[-1] >= next_base:
            raise CorruptFile(where, 0, f"an entry names offset {entries.offsets[-1]}, the segment ends at {next_base}")
        return entries


def _words(raw: bytes, entry_bytes: int, where: str) -> "array[int]":
    """The file as 32-bit words without its zero padding (no entry is all zeros: the first batch never gets one)."""
    torn = len(raw) % entry_bytes
    if torn:
        raise CorruptFile(where, len(raw) - torn, f"{torn} stray bytes after the last whole entry")
    used = len(raw.rstrip(b"\0"))
    used += -used % entry_bytes
    words = array(_U32, raw[:used])
    if _SWAP:
        words.byteswap()
    return words


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _strictly_ascending(column: "array[int]") -> bool:
    return _ascending(column) and len(set(column)) == len(column)


def _ascending(column: "array[int]") -> bool:
    values = column.tolist()
    return values == sorted(values)
