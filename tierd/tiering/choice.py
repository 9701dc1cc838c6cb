"""Which segments count when a bucket holds several for one range: pure, and the same for every reader.

Order (remote/LAYOUT.md, "One writer"): lineage, higher epoch, whole, named by the head, smaller id.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tierd.base.ids import Uuid
from tierd.tiering.rows import CatalogSegment


@dataclass(frozen=True, slots=True)
class RunStart:
    """A claimed epoch and the offset of its first append to a partition."""

    epoch: int
    first_append: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What decides about a partition's segments beside themselves."""

    runs: Sequence[RunStart] = ()
    head_epoch: int | None = None
    named: frozenset[Uuid] = field(default_factory=frozenset)
    """Segments that the head names."""
    faulty: frozenset[Uuid] = field(default_factory=frozenset)
    """Segments that are not whole in the bucket any more; each has a copy that is, or none."""


@dataclass(frozen=True, slots=True)
class Choice:
    counting: tuple[CatalogSegment, ...]
    """Ascending, without overlap."""
    lost: tuple[CatalogSegment, ...]


def choose(segments: Iterable[CatalogSegment], lineage: Lineage) -> Choice:
    """Sort a partition's committed segments into those that count and those that lost."""
    counting: list[CatalogSegment] = []  # ascending, without overlap
    lost: list[CatalogSegment] = []
    for segment in sorted(segments, key=lambda one: _rank(one, lineage)):
        if _in_lineage(segment, lineage) and _fits_between(counting, segment):
            insort(counting, segment, key=_base)
        else:
            lost.append(segment)
    return Choice(tuple(counting), tuple(sorted(lost, key=_base)))


def _fits_between(counting: list[CatalogSegment], segment: CatalogSegment) -> bool:
    at = bisect_left(counting, segment.remote.base, key=_base)
    return not any(_overlap(segment, neighbour) for neighbour in counting[max(0, at - 1) : at + 1])


def _rank(segment: CatalogSegment, lineage: Lineage) -> tuple[int, bool, bool, Uuid]:
    segment_id = segment.remote.segment_id
    return (-_last_epoch(segment), segment_id in lineage.faulty, segment_id not in lineage.named, segment_id)


def _last_epoch(segment: CatalogSegment) -> int:
    return segment.remote.epochs[-1].epoch if segment.remote.epochs else -1


def _base(segment: CatalogSegment) -> int:
    return segment.remote.base


def _overlap(one: CatalogSegment, other: CatalogSegment) -> bool:
    return one.remote.base < other.remote.next_base and other.remote.base < one.remote.next_base


def _in_lineage(segment: CatalogSegment, lineage: Lineage) -> bool:
    """Not superseded by a later run, and known to the head if an older owner than the head's copied it."""
    remote = segment.remote
    for run in lineage.runs:
        if remote.epochs and _last_epoch(segment) < run.epoch and remote.next_base > run.first_append:
            return False
    if lineage.head_epoch is None or segment.owner_epoch is None or remote.segment_id in lineage.named:
        return True
    return segment.owner_epoch >= lineage.head_epoch
