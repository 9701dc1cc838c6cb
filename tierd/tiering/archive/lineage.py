"""Which segments of a bucket without heads and claims belong to one history, and where offsets are missing. Pure.

The leader epochs that the newest segment carries decide, as in Kafka (`isRemoteSegmentWithinLeaderEpochs`). Replicas
close their segments at other offsets, so segments of one history may overlap: they hold the same records there.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tierd.remote.manifest import EpochStart
from tierd.tiering.rows import CatalogSegment


def newest(segments: Iterable[CatalogSegment]) -> CatalogSegment | None:
    """The one of the highest leader epoch, of these the one that ends last: its epochs are those of the partition."""
    return max(segments, key=lambda one: (_last_epoch(one), one.remote.next_base, one.remote.segment_id), default=None)


def _last_epoch(segment: CatalogSegment) -> int:
    return segment.remote.epochs[-1].epoch if segment.remote.epochs else -1


def told(segments: Iterable[CatalogSegment]) -> tuple[EpochStart, ...]:
    """The epochs that the segments' manifests tell of: where each begins in them."""
    starts: dict[int, int] = {}
    for one in (epoch for segment in segments for epoch in segment.remote.epochs):
        starts[one.epoch] = min(one.start, starts.get(one.epoch, one.start))
    return tuple(EpochStart(epoch, start) for epoch, start in sorted(starts.items()))


def belongs(segment: CatalogSegment, lineage: Sequence[EpochStart]) -> bool:
    """Whether every record of the segment is one of the history with these epochs, ascending."""
    log, own = _with_records(lineage), _with_records(segment.remote.epochs)
    if not log or not own:
        return True  # nothing says otherwise
    if not log[0].epoch <= own[-1].epoch <= log[-1].epoch:
        return False
    considered = [one for one in own if one.epoch >= log[0].epoch]
    following = dict(pairwise(log))
    known = {one.epoch: one for one in log}
    for at, one in enumerate(considered):
        entry = known.get(one.epoch)
        if entry is None or (at == 0 and entry != log[0] and one.start < entry.start):
            return False
        after = following.get(entry)
        if at + 1 < len(considered):
            if considered[at + 1] != after:
                return False
        elif after is not None and segment.remote.next_base > after.start:
            return False
    return True


def _with_records(epochs: Sequence[EpochStart]) -> list[EpochStart]:
    """Without those in which nothing was written: of two that begin at one offset the later one counts."""
    return [*(one for one, after in pairwise(epochs) if after.start > one.start), *epochs[-1:]]


def without_contained(segments: Iterable[CatalogSegment]) -> list[CatalogSegment]:
    """Ascending; of one history, so what lies wholly in another one adds nothing."""
    kept: list[CatalogSegment] = []
    for segment in sorted(segments, key=lambda one: (one.remote.base, -one.remote.next_base, one.remote.segment_id)):
        if not kept or segment.remote.next_base > kept[-1].remote.next_base:
            kept.append(segment)
    return kept


def holes(segments: Iterable[CatalogSegment], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Offsets in [start, stop) that none of *segments*, ascending, has."""
    for segment in segments:
        if start < min(segment.remote.base, stop):
            yield start, min(segment.remote.base, stop)
        start = max(start, segment.remote.next_base)
    if start < stop:
        yield start, stop
