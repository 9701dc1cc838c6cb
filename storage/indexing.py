"""Which batches of a segment get index entries (FORMAT.md, "Offset index" and "Time index").

One rule for the append path and for every rebuild, so that both write the same files.
"""

from tierd.storage.index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from tierd.storage.sparse import OffsetEntries, TimeEntries
from tierd.storage.timeindex import ENTRY_BYTES as TIME_ENTRY_BYTES

NO_TIMESTAMP = -1


class IndexBuilder:
    """Takes the batches of one segment in order and keeps its indexes."""

    __slots__ = ("first_timestamp_ms", "max_offset", "max_timestamp_ms", "offsets", "since_bytes", "times")

    def __init__(self, base: int) -> None:
        self.offsets = OffsetEntries(base)
        self.times = TimeEntries(base)
        self.since_bytes = 0
        """Bytes since the batch that got the last entry, that batch included."""
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_offset = base
        """Last offset of the batch that raised the maximum."""
        self.first_timestamp_ms: int | None = None
        """Largest timestamp of the segment's first batch; rolls by time count from it."""

    def note(self, position: int, size_bytes: int, last_offset: int, timestamp_ms: int, interval_bytes: int) -> None:
        """Take in the batch at *position* whose largest timestamp is *timestamp_ms*."""
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
            self.max_offset = last_offset
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = timestamp_ms
        if self.since_bytes > interval_bytes:
            self.offsets.add(last_offset, position)
            self.note_time()
            self.since_bytes = 0
        self.since_bytes += size_bytes

    def note_time(self) -> None:
        """Enter the running maximum unless it is there; also done when the segment is closed."""
        last = self.times.last
        if self.max_timestamp_ms > (NO_TIMESTAMP if last is None else last[0]):
            self.times.add(self.max_timestamp_ms, self.max_offset)

    def full(self, file_bytes: int) -> bool:
        """Whether one of two files of *file_bytes* has no room for the next entry and a closing time entry."""
        offset_room = file_bytes // OFFSET_ENTRY_BYTES
        time_room = file_bytes // TIME_ENTRY_BYTES
        return len(self.offsets) >= offset_room or len(self.times) >= time_room - 1


def room_bytes(file_bytes: int, entry_bytes: int) -> int:
    """Size of a preallocated index file: `segment.index.bytes` rounded down to whole entries."""
    return file_bytes - file_bytes % entry_bytes
