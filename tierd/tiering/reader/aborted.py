"""Which aborted transactions a read_committed answer must name (storage/ENGINE.md, "Read").

Those whose marker is at or above the asked offset and which begin below the end of the bytes. A marker lies in the
segment's index where it was written, maybe many segments on, so later segments are looked at until one entry shows
that nothing that began below the end was still open. What ends beyond the bucket the local log knows.
"""

import asyncio
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from tierd.base.ids import PartitionId
from tierd.storage.txnindex import AbortedEntry
from tierd.storage.view import AbortedTxn
from tierd.tiering.segments import RemoteSegment, SegmentSource

MEMO_PARTITIONS = 1024
LOOKS_AT_ONCE = 64
"""About a millisecond of catalog look-ups."""


@dataclass(slots=True)
class Collected:
    """The transactions found so far for bytes over offsets [start, stop)."""

    start: int
    stop: int
    found: list[AbortedTxn] = field(default_factory=list)

    def add(self, entries: Iterable[AbortedEntry]) -> bool:
        """Take in the next segment's entries; True when no later one can matter."""
        for entry in entries:
            if entry.marker_offset >= self.start and entry.first_offset < self.stop:
                self.found.append(AbortedTxn(entry.producer_id, entry.first_offset))
            if entry.last_stable >= self.stop:
                return True
        return False


@dataclass(slots=True)
class _Seen:
    """Bases of the segments that have a transaction index, among those that begin in [start, stop)."""

    start: int
    stop: int
    bases: "array[int]"


class TxnSegments:
    """Finds the next segment with a transaction index without asking the catalog for each one between.

    Committed segments never change and new ones come at the end, so what was seen once is kept; a base that leads
    nowhere any more (deleted) is passed over.
    """

    def __init__(self, source: SegmentSource) -> None:
        self._source = source
        self._seen: OrderedDict[PartitionId, _Seen] = OrderedDict()

    async def after(self, part: PartitionId, base: int) -> list[int]:
        """Bases at or above *base* of segments with a transaction index, ascending. Lets others run while it looks."""
        seen = self._seen.get(part)
        if seen is None or base < seen.start:
            seen = self._seen[part] = _Seen(base, base, array("q"))
        self._seen.move_to_end(part)
        while len(self._seen) > MEMO_PARTITIONS:
            self._seen.popitem(last=False)
        looked_at = 0
        while (segment := self._source.next_after(part, seen.stop)) is not None:
            if segment.layout.transaction is not None:
                seen.bases.append(segment.base)
            seen.stop = segment.base + 1  # in an archive the next one may begin before this one ends
            looked_at += 1
            if looked_at % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return seen.bases[bisect_left(seen.bases, base) :].tolist()

    def forget(self, part: PartitionId) -> None:
        self._seen.pop(part, None)


async def collect(
    first: RemoteSegment,
    start: int,
    stop: int,
    later: TxnSegments,
    source: SegmentSource,
    load: Callable[[RemoteSegment], Awaitable[list[AbortedEntry]]],
) -> tuple[AbortedTxn, ...]:
    """For bytes over offsets [start, stop) that begin in segment *first*."""
    collected = Collected(start, stop)
    if first.layout.transaction is not None and collected.add(await load(first)):
        return tuple(collected.found)
    for base in await later.after(first.part, first.base + 1):
        segment = source.covering(first.part, base)
        if segment is not None and segment.layout.transaction is not None and collected.add(await load(segment)):
            break
    return tuple(collected.found)
