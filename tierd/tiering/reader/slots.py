"""The extents of the segments in use: under way, or landed in a cache file. Event loop only."""

import asyncio
from bisect import bisect_right, insort
from dataclasses import dataclass, field
from operator import attrgetter

from tierd.base.ids import ID_CHARS, Uuid
from tierd.tiering.reader.cache import CacheFile
from tierd.tiering.reader.extents import Extent, ExtentMap
from tierd.tiering.reader.permits import Ticket
from tierd.tiering.reader.table import BatchTable


@dataclass(frozen=True, slots=True)
class ExtentName:
    """A cache file's name: which bytes of which segment it holds, and which offsets."""

    segment_id: Uuid
    start: int
    stop: int
    first_offset: int
    next_offset: int

    def __str__(self) -> str:
        return f"{self.segment_id}.{self.start}.{self.stop}.{self.first_offset}.{self.next_offset}"

    @classmethod
    def parse(cls, text: str) -> "ExtentName | None":
        """None when *text* is no such name."""
        head, *numbers = text[ID_CHARS:].split(".")
        if head or len(numbers) != 4 or not all(n.isascii() and n.isdigit() for n in numbers):
            return None
        start, stop, first, after = map(int, numbers)
        if start >= stop or first >= after:
            return None
        try:
            name = cls(Uuid.parse(text[:ID_CHARS]), start, stop, first, after)
        except ValueError:
            return None
        return name if str(name) == text else None


@dataclass(slots=True, eq=False)
class Slot:
    """One extent. Under way: `landing` is set and nothing else is known. Landed: `file` is. Neither: it is gone."""

    segment_id: Uuid
    start: int
    landing: asyncio.Task[None] | None = None
    ticket: Ticket | None = None
    file: CacheFile | None = None
    table: BatchTable | None = None
    """None after landing: it was let go to save memory, or the file is from an earlier run; walk the file again."""
    first_offset: int = 0
    next_offset: int = 0
    stop: int = 0
    """While the end is open: what was asked for."""


_FIRST = attrgetter("first_offset")


@dataclass(slots=True)
class SegmentSlots:
    """The slots of one segment."""

    segment_id: Uuid
    map: ExtentMap = field(default_factory=ExtentMap)
    _slots: dict[int, Slot] = field(default_factory=dict)
    _landed: list[Slot] = field(default_factory=list)
    """By offset, which is also by position."""

    def __len__(self) -> int:
        return len(self._slots)

    def begin(self, extent: Extent) -> Slot:
        self.map.add(extent)
        slot = Slot(self.segment_id, extent.range.start, stop=extent.range.stop)
        self._slots[slot.start] = slot
        return slot

    def land(self, slot: Slot, file: CacheFile, name: ExtentName) -> None:
        """The extent is in *file*."""
        self.map.settle(slot.start, name.stop)
        slot.stop, slot.first_offset, slot.next_offset = name.stop, name.first_offset, name.next_offset
        slot.file = file
        insort(self._landed, slot, key=_FIRST)

    def remove(self, slot: Slot) -> None:
        """It did not come, or its file left the cache."""
        self.map.remove(slot.start)
        del self._slots[slot.start]
        if slot.file is not None:
            self._landed.remove(slot)
        slot.file = slot.table = None

    def all(self) -> list[Slot]:
        return list(self._slots.values())

    def at(self, position: int) -> Slot | None:
        """The slot that holds the byte at *position*."""
        start = self.map.containing(position)
        return None if start is None else self._slots[start]

    def holding(self, offset: int) -> Slot | None:
        """The landed slot with a batch at or above *offset* and one at or below it."""
        at = bisect_right(self._landed, offset, key=_FIRST) - 1
        return self._landed[at] if at >= 0 and offset < self._landed[at].next_offset else None

    def known_below(self, offset: int) -> int:
        """Up to which position the landed slots show nothing but offsets below *offset*."""
        at = bisect_right(self._landed, offset, key=_FIRST) - 1
        return self._landed[at].stop if at >= 0 and self._landed[at].next_offset <= offset else 0
