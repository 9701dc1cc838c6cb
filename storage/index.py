"""The offset index `.index` (storage/FORMAT.md, "Offset index"): every few KiB one entry that leads to a batch.

An index may be sparser than a rebuild would make it and may be preallocated: zeros after the last entry are
room, not entries (the first batch of a segment never has one, so no real entry is all zero).
"""

import struct
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from tierd.base.errors import CorruptFile

_ENTRY = struct.Struct(">ii")  # last offset of the batch - segment base, file position of its first byte
ENTRY_BYTES = 8
assert _ENTRY.size == ENTRY_BYTES

Raw = bytes | bytearray | memoryview
MAX_RELATIVE = 2**31 - 1
"""A segment must roll before an offset is further than this from its base, or its file larger."""


@dataclass(frozen=True, slots=True, order=True)
class IndexEntry:
    offset: int
    """The last offset of the batch."""
    position: int
    """Where the batch begins in the `.log`."""


Entry = TypeVar("Entry")


class IndexView(ABC, Generic[Entry]):
    """The entries in the bytes of an index, made into objects only where somebody asks for them."""

    entry_bytes: ClassVar[int]

    def __init__(self, raw: Raw, base: int) -> None:
        self.raw = raw
        self.base = base
        self.count = used_entries(raw, self.entry_bytes)

    @abstractmethod
    def _entry(self, i: int) -> Entry: ...

    @abstractmethod
    def _follows(self, entry: Entry, before: Entry | None) -> bool:
        """Whether *entry* can be the first one, or the one after *before*."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Entry:
        """The *i*-th entry, counted from the front; IndexError past either end."""
        if not 0 <= i < self.count:
            raise IndexError(i)
        return self._entry(i)

    def __iter__(self) -> Iterator[Entry]:
        return map(self._entry, range(self.count))

    @property
    def entries(self) -> list[Entry]:
        return list(self)

    @property
    def last(self) -> Entry | None:
        return self[self.count - 1] if self.count else None

    def good(self) -> Iterator[Entry]:
        """The entries before the first that cannot be one."""
        before: Entry | None = None
        for entry in self:
            if not self._follows(entry, before):
                return
            yield entry
            before = entry

    def checked(self, where: str) -> list[Entry]:
        """All entries. Raises CorruptFile unless they are whole, in order, and nothing but zeros behind the last."""
        found = list(self.good())
        if len(found) < self.count:
            why = f"after {found[-1]}" if found else f"cannot be in a segment that begins at {self.base}"
            raise CorruptFile(where, len(found) * self.entry_bytes, f"entry {self[len(found)]} {why}")
        torn = len(self.raw) % self.entry_bytes
        if torn:
            raise CorruptFile(where, len(self.raw) - torn, f"{torn} stray bytes after the last whole entry")
        if any(bytes(self.raw[self.count * self.entry_bytes :])):
            raise CorruptFile(where, self.count * self.entry_bytes, "an empty entry before a used one")
        return found


class OffsetIndex(IndexView[IndexEntry]):
    """Nothing is checked in a look-up: `parse_index` does that. It costs about 2 us in an index of 100,000 entries."""

    entry_bytes = ENTRY_BYTES

    def _entry(self, i: int) -> IndexEntry:
        relative, position = _ENTRY.unpack_from(self.raw, i * ENTRY_BYTES)
        return IndexEntry(self.base + relative, position)

    def _follows(self, entry: IndexEntry, before: IndexEntry | None) -> bool:
        if before is None:
            return entry.offset >= self.base and entry.position > 0
        return entry.offset > before.offset and entry.position > before.position

    def floor(self, offset: int) -> IndexEntry | None:
        """The last entry whose offset is <= *offset*: its batch or a later one holds *offset*. None: start at 0."""
        i = bisect_right(range(self.count), offset - self.base, key=self._relative)
        return self[i - 1] if i else None

    def floor_position(self, position: int) -> IndexEntry | None:
        """The last entry at *position* or before it; None when there is none."""
        i = bisect_right(range(self.count), position, key=self._position)
        return self[i - 1] if i else None

    def _relative(self, i: int) -> int:
        relative: int = _ENTRY.unpack_from(self.raw, i * ENTRY_BYTES)[0]
        return relative

    def _position(self, i: int) -> int:
        position: int = _ENTRY.unpack_from(self.raw, i * ENTRY_BYTES)[1]
        return position


def used_entries(raw: Raw, entry_bytes: int) -> int:
    """How many whole entries lie before the zeros at the end (entries are never all zero). 16 looks for 64 KiB."""
    whole = len(raw) // entry_bytes
    room = bytes(entry_bytes)
    return bisect_left(range(whole), True, key=lambda i: raw[i * entry_bytes : (i + 1) * entry_bytes] == room)


def parse_index(raw: Raw, base: int, where: str = "") -> list[IndexEntry]:
    """All entries, checked: whole, ascending in both numbers, nothing but zeros after the last.

    Raises CorruptFile; that a batch really begins at each position only the `.log` can tell.
    """
    return OffsetIndex(raw, base).checked(where)


def encode_entry(offset: int, position: int, base: int) -> bytes:
    return _ENTRY.pack(offset - base, position)


def encode_index(entries: list[IndexEntry], base: int) -> bytes:
    return b"".join(_ENTRY.pack(entry.offset - base, entry.position) for entry in entries)
