"""The time index `.timeindex` (storage/FORMAT.md, "Time index"): the largest timestamp so far and where it came.

An entry (t, o) says: no record up to offset o is later than t. Zeros after the last entry are room.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tierd.base.errors import CorruptFile
from tierd.storage.index import Raw, check_room, used_entries

_ENTRY = struct.Struct(">qi")  # timestamp, last offset of the batch that brought it - segment base
ENTRY_BYTES = 12
assert _ENTRY.size == ENTRY_BYTES


@dataclass(frozen=True, slots=True, order=True)
class TimeEntry:
    timestamp_ms: int
    offset: int
    """The last offset of the batch that holds the timestamp, not the record's own."""


class TimeIndex:
    """Look-ups in the bytes of a time index. Nothing is checked here: `parse_time_index` does that."""

    def __init__(self, raw: Raw, base: int) -> None:
        self.raw = raw
        self.base = base
        self.count = used_entries(raw, ENTRY_BYTES)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> TimeEntry:
        """The *i*-th entry, counted from the front; IndexError past either end."""
        if not 0 <= i < self.count:
            raise IndexError(i)
        timestamp_ms, relative = _ENTRY.unpack_from(self.raw, i * ENTRY_BYTES)
        return TimeEntry(timestamp_ms, self.base + relative)

    @property
    def entries(self) -> list[TimeEntry]:
        return list(self)

    def __iter__(self) -> Iterator[TimeEntry]:
        return (self[i] for i in range(self.count))

    @property
    def last(self) -> TimeEntry | None:
        """In a closed segment: its largest timestamp."""
        return self[self.count - 1] if self.count else None

    def floor(self, timestamp_ms: int) -> TimeEntry | None:
        """The last entry at *timestamp_ms* or before it; None: search from the segment's base.

        The first record that late is in the batch which ends at the entry's offset, or behind it: the search must
        begin with that batch, not after it.
        """
        i = bisect_right(range(self.count), timestamp_ms, key=self._timestamp)
        return self[i - 1] if i else None

    def _timestamp(self, i: int) -> int:
        timestamp_ms: int = _ENTRY.unpack_from(self.raw, i * ENTRY_BYTES)[0]
        return timestamp_ms


def parse_time_index(raw: Raw, base: int, where: str = "") -> list[TimeEntry]:
    """All entries, checked: whole, ascending in time, not descending in offset. Raises CorruptFile."""
    index = TimeIndex(raw, base)
    check_room(raw, index.count, ENTRY_BYTES, where)
    entries = index.entries
    if entries and (entries[0].offset < base or entries[0].timestamp_ms < 0):
        raise CorruptFile(where, 0, f"entry {entries[0]} cannot be in a segment that begins at {base}")
    for i, (before, after) in enumerate(pairwise(entries), 1):
        if after.timestamp_ms <= before.timestamp_ms or after.offset <= before.offset:
            raise CorruptFile(where, i * ENTRY_BYTES, f"entry {after} after {before}")
    return entries


def encode_time_entry(timestamp_ms: int, offset: int, base: int) -> bytes:
    return _ENTRY.pack(timestamp_ms, offset - base)


def encode_time_index(entries: list[TimeEntry], base: int) -> bytes:
    return b"".join(_ENTRY.pack(entry.timestamp_ms, entry.offset - base) for entry in entries)
