"""Which ranges of a segment's `.log` are fetched, and which are there already. Pure: no clock, no file, no bucket.

An extent is a range of the object that begins and ends where batches do. The offset index names some of those places;
the ends of extents that were fetched and checked are others. Extents of one segment never overlap.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from tierd.remote.ranges import ByteRange


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Places in a segment where batches begin, from its offset index; none when the index says nothing of use."""

    base: int
    """What `offsets` count from."""
    offsets: Sequence[int]
    """Ascending: last offset, minus `base`, of the batch at the same place in `positions`."""
    positions: Sequence[int]
    """Ascending, each above 0 and below `size_bytes`."""
    size_bytes: int

    def at_or_below(self, offset: int) -> int:
        """Position of a batch at or before the first one whose last offset is at or above *offset*."""
        at = bisect_right(self.offsets, offset - self.base)
        return self.positions[at - 1] if at else 0

    def at_or_above(self, position: int) -> int:
        """The first known batch start at or above *position*, or the end of the segment."""
        at = bisect_left(self.positions, position)
        return self.positions[at] if at < len(self.positions) else self.size_bytes


@dataclass(frozen=True, slots=True)
class Extent:
    """A range to fetch."""

    range: ByteRange
    open_end: bool
    """True: no batch start is known near the end, so whole batches of what comes are kept and the rest is left."""


@dataclass(slots=True)
class ExtentMap:
    """The extents of one segment that are cached or under way, [start, stop) by file position."""

    _starts: list[int] = field(default_factory=list)
    _stops: list[int] = field(default_factory=list)
    _open: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._starts)

    def containing(self, position: int) -> int | None:
        """The start of the extent that holds the byte at *position*."""
        at = bisect_right(self._starts, position) - 1
        return self._starts[at] if at >= 0 and position < self._stops[at] else None

    def settled_stop(self, start: int) -> int | None:
        """Where the extent at *start* ends; None while its end is open."""
        return None if start in self._open else self._stops[bisect_left(self._starts, start)]

    def next_start(self, position: int) -> int | None:
        """The first start above *position*."""
        at = bisect_right(self._starts, position)
        return self._starts[at] if at < len(self._starts) else None

    def add(self, extent: Extent) -> None:
        """Raises ValueError when it is empty or overlaps: that would be a bug here, not bad data."""
        start, stop = extent.range.start, extent.range.stop
        at = bisect_left(self._starts, start)
        free = (at == 0 or self._stops[at - 1] <= start) and (at == len(self._starts) or stop <= self._starts[at])
        if not free or start >= stop:
            raise ValueError(f"extent [{start}, {stop}) is empty or overlaps another")
        self._starts.insert(at, start)
        self._stops.insert(at, stop)
        if extent.open_end:
            self._open.add(start)

    def settle(self, start: int, stop: int) -> None:
        """The extent at *start* ends at *stop*, as its batches showed."""
        self.remove(start)
        self.add(Extent(ByteRange(start, stop), open_end=False))

    def remove(self, start: int) -> None:
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start:
            del self._starts[at], self._stops[at]
            self._open.discard(start)


def next_extent(known: Boundaries, taken: ExtentMap, position: int, want_bytes: int, most_bytes: int = 0) -> Extent:
    """The extent to fetch at *position*, a batch start that no extent holds.

    It ends at a known batch start near *want_bytes* further on, before the next extent, or at the segment's end;
    the room up to there is shared out evenly, so that no tiny extent is left over. It is at most twice *want_bytes*
    long, or *most_bytes* where that is more: when no batch start is known within that, its end is open.
    """
    gap_end = taken.next_start(position)
    end = known.size_bytes if gap_end is None else gap_end
    room = end - position
    parts = max(1, round(room / want_bytes))
    stop = end if parts == 1 else min(known.at_or_above(position + room // parts), end)
    if stop - position <= max(2 * want_bytes, most_bytes):
        return Extent(ByteRange(position, stop), open_end=False)
    return Extent(ByteRange(position, position + want_bytes), open_end=True)
