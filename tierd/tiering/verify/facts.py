"""What listing, head, claims and manifests of a partition come to: which segments count, what is missing. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tierd.base.ids import PartitionId
from tierd.remote.extras import SegmentExtras
from tierd.remote.heads import Gap, Head, HeadEntry
from tierd.remote.keys import ObjectKind, SegmentName
from tierd.remote.manifest import Manifest
from tierd.remote.store import ObjectInfo
from tierd.tiering.choice import Lineage, RunStart, choose
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.verify.verdicts import Finding, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A segment that head or manifest tells of, and the objects that a LIST shows of it."""

    name: SegmentName
    stem: str
    row: CatalogSegment
    objects: Mapping[ObjectKind, ObjectInfo]
    entry: HeadEntry | None = None
    """What the head says; None when it does not name the segment."""
    read: tuple[Manifest, SegmentExtras] | None = None
    """Its manifest, which is read already when the head does not name it."""

    @property
    def base(self) -> int:
        return self.row.remote.base

    @property
    def next_base(self) -> int:
        return self.row.remote.next_base

    @property
    def empty(self) -> bool:
        """A range without records: no object exists."""
        return self.entry is not None and self.entry.size_bytes == 0

    def missing(self) -> str | None:
        """The object that is not there."""
        gone = [kind for kind in ObjectKind if kind not in self.objects]
        return None if self.empty or not gone else f"{self.stem}{gone[0]} is not there"


@dataclass(frozen=True, slots=True)
class Unread:
    """All objects of a segment are there, and its manifest does not parse."""

    base: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    part: PartitionId
    topic: str
    head: Head | None = None
    head_problem: str | None = None
    """Why the head cannot be read."""
    segments: tuple[Seen, ...] = ()
    unread: tuple[Unread, ...] = ()
    runs: tuple[RunStart, ...] = field(default=())
    """Claimed epochs and where each began to append here."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return self.head.gaps if self.head is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    counting: tuple[Seen, ...]
    """Ascending, without overlap, above log start: these are to be looked into."""
    findings: tuple[Finding, ...]
    gaps: tuple[Gap, ...]
    log_start: int | None
    copied_to: int | None


def judge(facts: PartitionFacts) -> Judged:
    """Which segments count (by the rule of every reader), and what is wrong with them as a whole."""
    head = facts.head
    seen = {one.row.remote.segment_id: one for one in facts.segments}
    lineage = Lineage(
        runs=facts.runs,
        head_epoch=head.epoch if head else None,
        named=frozenset(entry.segment_id for entry in head.entries) if head else frozenset(),
        faulty=frozenset(segment_id for segment_id, one in seen.items() if one.missing()),
    )
    rows = choose([one.row for one in facts.segments], lineage).counting
    start = head.log_start if head else rows[0].remote.base if rows else None
    counting = tuple(seen[row.remote.segment_id] for row in rows if start is None or row.remote.next_base > start)
    told_end = head.copied_to if head else None
    ends = [end for end in (told_end, counting[-1].next_base if counting else None) if end is not None]
    copied_to = max(ends, default=None)
    findings = (
        *_missing(counting, start or 0),
        *_holes(counting, start, copied_to, behind=head is not None),
        *_epochs(counting),
        *_unread(facts, counting, start, copied_to),
    )
    return Judged(counting=counting, findings=findings, gaps=facts.gaps, log_start=start, copied_to=copied_to)


def _missing(counting: Sequence[Seen], start: int) -> Iterator[Finding]:
    for one in counting:
        why = one.missing()
        if why is not None:
            yield Finding(Verdict.FAILURE, max(one.base, start), one.next_base, why)


def _holes(counting: Sequence[Seen], start: int | None, stop: int | None, *, behind: bool) -> Iterator[Finding]:
    """Only a head tells of ranges without records. *behind*: one that does not name the segment after a hole yet may
    have to tell that it is one."""
    if start is None or stop is None:
        return
    at = start
    for base, next_base, named in [*((one.base, one.next_base, one.entry is not None) for one in counting), _end(stop)]:
        if base > at and (named or not behind):
            yield Finding(Verdict.FAILURE, at, base, "no segment has these offsets")
        elif base > at:
            reason = "no segment has these offsets; they may be empty: the head is behind what is copied"
            yield Finding(Verdict.WARNING, at, base, reason)
        at = max(at, next_base)


def _end(stop: int) -> tuple[int, int, bool]:
    return stop, stop, True


def _epochs(counting: Sequence[Seen]) -> Iterator[Finding]:
    for one in counting:
        epochs = one.row.remote.epochs
        wrong = any(b.epoch <= a.epoch or b.start < a.start for a, b in pairwise(epochs))
        if wrong or any(not one.base <= epoch.start < one.next_base for epoch in epochs):
            yield Finding(Verdict.FAILURE, one.base, one.next_base, f"{one.stem}: its leader epochs are out of order")
    known = [one for one in counting if one.row.remote.epochs]
    for before, after in pairwise(known):
        first, last = after.row.remote.epochs[0].epoch, before.row.remote.epochs[-1].epoch
        if first < last:
            reason = f"{after.stem}: begins with epoch {first}, though epoch {last} came before it"
            yield Finding(Verdict.FAILURE, after.base, after.next_base, reason)


def _unread(
    facts: PartitionFacts, counting: Sequence[Seen], start: int | None, copied_to: int | None
) -> Iterator[Finding]:
    """Manifests that do not parse: grave when nothing else has their offsets."""
    for one in facts.unread:
        if start is not None and one.base < start:
            continue
        covered = any(other.base <= one.base < other.next_base for other in counting)
        later = [other.base for other in counting if other.base > one.base]
        stop = min(later, default=max(copied_to or 0, one.base + 1))
        yield Finding(Verdict.WARNING if covered else Verdict.FAILURE, one.base, stop, one.reason)
    if facts.head_problem is not None:
        first, last = (counting[0].base, counting[-1].next_base) if counting else (0, 1)
        reason = f"{facts.head_problem}: log start and accepted gaps are nowhere else"
        yield Finding(Verdict.FAILURE, first, last, reason)


def seen_twice(first: Judged, second: Judged) -> tuple[Finding, ...]:
    """Findings of the second look that the first had, too: what an owner changed between head and LIST is none."""
    before = {(one.reason, one.start) for one in first.findings} | {(one.reason, one.stop) for one in first.findings}
    return tuple(
        one for one in second.findings if (one.reason, one.start) in before or (one.reason, one.stop) in before
    )
