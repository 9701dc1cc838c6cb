"""The offset index `.index` (storage/FORMAT.md, "Offset index"): every few KiB one entry that leads to a batch.

An index may be sparser than a rebuild would make it and may be preallocated: zeros after the last entry are
room, not entries (the first batch of a segment never has one, so no real entry is all zero).
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

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


class OffsetIndex:
    """Look-ups in the bytes of an index without making objects of its entries.

    Nothing is checked here: `parse_index` does that. Looking up costs about 2 us in an index of 100,000 entries.
    """

    def __init__(self, raw: Raw, base: int) -> None:
        self.raw = raw
        self.base = base
        self.count = used_entries(raw, ENTRY_BYTES)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> IndexEntry:
        """The *i*-th entry, counted from the front; IndexError past either end."""
        if not 0 <= i < self.count:
            raise IndexError(i)
        relative, position = _ENTRY.unpack_from(self.raw, i * ENTRY_BYTES)
        return IndexEntry(self.base + relative, position)

    @property
    def entries(self) -> list[IndexEntry]:
        return list(self)

    def __iter__(self) -> Iterator[IndexEntry]:
        return (self[i] for i in range(self.count))

    @property
    def last(self) -> IndexEntry | None:
        return self[self.count - 1] if self.count else None

    def floor(self, offset: int) -> IndexEntry | None:
        """The last entry whose offset is <= *offset*: its batch or a later one holds *offset*. None: start at 0."""
        i = bisect_right(range(self.count), offset - self.base, key=self._relative)
        return self[i - 1] if i else None

    def ceil_position(self, position: int) -> IndexEntry | None:
        """The first entry at *position* or behind it; None when there is none."""
        i = bisect_left(range(self.count), position, key=self._position)
        return self[i] if i < self.count else None

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
    index = OffsetIndex(raw, base)
    check_room(raw, index.count, ENTRY_BYTES, where)
    entries = index.entries
    if entries and (entries[0].offset < base or entries[0].position <= 0):
        raise CorruptFile(where, 0, f"entry {entries[0]} cannot be in a segment that begins at {base}")
    for i, (before, after) in enumerate(pairwise(entries), 1):
        if after.offset <= before.offset or after.position <= before.position:
            raise CorruptFile(where, i * ENTRY_BYTES, f"entry {after} after {before}")
    return entries


def check_room(raw: Raw, count: int, entry_bytes: int, where: str) -> None:
    """Raise CorruptFile unless the file is whole entries, *count* of them used and zeros behind."""
    torn = len(raw) % entry_bytes
    if torn:
        raise CorruptFile(where, len(raw) - torn, f"{torn} stray bytes after the last whole entry")
    if any(bytes(raw[count * entry_bytes :])):
        raise CorruptFile(where, count * entry_bytes, "an empty entry before a used one")


def encode_entry(offset: int, position: int, base: int) -> bytes:
    return _ENTRY.pack(offset - base, position)


def encode_index(entries: list[IndexEntry], base: int) -> bytes:
    return b"".join(_ENTRY.pack(entry.offset - base, entry.position) for entry in entries)
