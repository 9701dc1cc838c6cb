"""The time index `.timeindex` (storage/FORMAT.md, "Time index"): the largest timestamp so far and where it came.

An entry (t, o) says: no record up to offset o is later than t. Zeros after the last entry are room.
"""

import struct
from bisect import bisect_right
from dataclasses import dataclass

from tierd.storage.index import IndexView, Raw

_ENTRY = struct.Struct(">qi")  # timestamp, last offset of the batch that brought it - segment base
ENTRY_BYTES = 12
assert _ENTRY.size == ENTRY_BYTES


@dataclass(frozen=True, slots=True, order=True)
class TimeEntry:
    timestamp_ms: int
    offset: int
    """The last offset of the batch that holds the timestamp, not the record's own."""


class TimeIndex(IndexView[TimeEntry]):
    """Nothing is checked in a look-up: `parse_time_index` does that. `last` of a closed segment is its largest
    timestamp."""

    entry_bytes = ENTRY_BYTES

    def _entry(self, i: int) -> TimeEntry:
        timestamp_ms, relative = _ENTRY.unpack_from(self.raw, i * ENTRY_BYTES)
        return TimeEntry(timestamp_ms, self.base + relative)

    def _follows(self, entry: TimeEntry, before: TimeEntry | None) -> bool:
        if before is None:
            return entry.offset >= self.base and entry.timestamp_ms >= 0
        return entry.timestamp_ms > before.timestamp_ms and entry.offset > before.offset

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
    """All entries, checked: whole, ascending in time and offset. Raises CorruptFile."""
    return TimeIndex(raw, base).checked(where)


def encode_time_entry(timestamp_ms: int, offset: int, base: int) -> bytes:
    return _ENTRY.pack(timestamp_ms, offset - base)


def encode_time_index(entries: list[TimeEntry], base: int) -> bytes:
    return b"".join(_ENTRY.pack(entry.timestamp_ms, entry.offset - base) for entry in entries)
