"""What to fetch before it is asked for. Pure.

A reader is sequential once it goes on where its last answer ended; then what `pace` says is in flight or waiting for
it at any time, across the ends of segments. Readers are recognised by partition and offset alone.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tierd.base.ids import PartitionId, Uuid
from tierd.tiering.reader.extents import Boundaries, Extent, ExtentMap, next_extent
from tierd.tiering.reader.pace import Habit
from tierd.tiering.segments import RemoteSegment

ACTIVE_MS = 10_000
"""A sequential reader that was silent for longer has no claim on read-ahead any more."""


@dataclass(slots=True)
class Stream:
    """Somebody who may go on reading."""

    segment: RemoteSegment
    position: int
    """File position in that segment at which the next answer begins."""
    used_ms: int
    """When it was last answered."""
    habit: Habit = field(default_factory=Habit)
    sequential: bool = False
    planned: tuple[int, int, int] | None = None
    """Base of the segment and position in it when a plan was last made, and how far on the next one is due."""

    def due(self) -> bool:
        """Whether it moved on far enough since the last plan for another one to be worth its while."""
        base, position, step_bytes = self.planned or (None, 0, 0)
        return base != self.segment.base or self.position - position >= step_bytes


class Streams:
    """The readers known, by where each will go on; the longest silent ones are forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._streams: OrderedDict[tuple[PartitionId, int], Stream] = OrderedDict()

    def at(self, part: PartitionId, offset: int) -> Stream | None:
        return self._streams.get((part, offset))

    def moved(self, part: PartitionId, offset: int, next_offset: int, stream: Stream) -> None:
        """The reader that was at *offset* will go on at *next_offset*."""
        self._streams.pop((part, offset), None)
        self._streams.pop((part, next_offset), None)
        self._streams[part, next_offset] = stream
        if len(self._streams) > self._limit:
            self._streams.popitem(last=False)

    def ended(self, part: PartitionId, offset: int) -> None:
        """The reader that was at *offset* does not go on."""
        self._streams.pop((part, offset), None)

    def forget(self, segment_id: Uuid) -> None:
        """No reader goes on in that segment."""
        for key in [key for key, stream in self._streams.items() if stream.segment.segment_id == segment_id]:
            del self._streams[key]

    def active(self, now_ms: int) -> int:
        """How many sequential readers there are."""
        count = 0
        for stream in reversed(self._streams.values()):
            if now_ms - stream.used_ms > ACTIVE_MS:
                break
            count += stream.sequential
        return count


def window_bytes(full_bytes: int, cache_bytes: int, active: int) -> int:
    """How far one of *active* readers may read ahead: all together at most half the cache, or they evict each other."""
    return min(full_bytes, cache_bytes // (2 * max(1, active)))


@dataclass(frozen=True, slots=True)
class SegmentState:
    """A segment as the plan sees it."""

    segment: RemoteSegment
    known: Boundaries | None
    """None while its offset index is not in memory."""
    taken: ExtentMap


@dataclass(frozen=True, slots=True)
class Fetch:
    segment: RemoteSegment
    extent: Extent


@dataclass(frozen=True, slots=True)
class LoadIndex:
    """The plan goes on when the offset index of *segment* is there."""

    segment: RemoteSegment


def plan(chain: Iterable[SegmentState], position: int, window: int, range_bytes: int) -> list[Fetch | LoadIndex]:
    """What is missing of the *window* bytes from *position* in the first segment of *chain* on.

    Nothing is planned beyond a place that only a download under way can tell (an open end, an index not there).
    """
    steps: list[Fetch | LoadIndex] = []
    for state in chain:
        while position < state.segment.size_bytes:
            if window <= 0:
                return steps
            stop, step = _step(state, position, range_bytes)
            if step is not None:
                steps.append(step)
            if stop is None:
                return steps
            window -= stop - position
            position = stop
        position = 0
    return steps


def _step(state: SegmentState, position: int, range_bytes: int) -> tuple[int | None, Fetch | LoadIndex | None]:
    """Where the bytes at *position* are known to end (None: not yet), and what is to be done for them."""
    start = state.taken.containing(position)
    if start is not None:
        return state.taken.settled_stop(start), None
    if state.known is None:
        return None, LoadIndex(state.segment)
    extent = next_extent(state.known, state.taken, position, range_bytes)
    return None if extent.open_end else extent.range.stop, Fetch(state.segment, extent)
