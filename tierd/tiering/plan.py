"""Which segments to copy, which local ones may go, where log start may move: pure functions of views and the time.

The rules are Kafka's, each at its function. A segment is as old as min(largest timestamp, append time), so no future
timestamp pins one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tierd.remote.view import ClaimState, Waiting
from tierd.storage.retention import local_going, runs, total_going
from tierd.storage.view import PartitionView, SegmentView

HUNG_MS = 10_000
"""A bucket that says nothing for so long while a copy runs is the reason that it is not done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """What the tierer knows about copying one partition."""

    claim: ClaimState
    copied_to: int | None
    loaded: bool
    """The partition's folder was listed in this run; before that nothing is planned."""
    copying: int | None = None
    """Base of the segment whose copy runs."""
    copying_ms: int = 0
    """For so long."""
    silent_ms: int = 0
    """So long the bucket has answered nobody."""
    retrying: str | None = None
    """Why the last try failed and when the next one begins, in words."""
    passed_to: int = 0
    """Total retention lets go all below: no reader would ever get it from the bucket."""
    paused: str | None = None
    """Why no partition at all is copied, in words."""
    now_ms: int = 0
    """Wall clock; says how long a compacted segment has waited for its cleaning."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Segments to copy now, oldest first, and why what follows them is not."""

    segments: tuple[SegmentView, ...]
    waiting: Waiting | None


def uncopied(view: PartitionView, copied_to: int | None) -> tuple[SegmentView, ...]:
    """Closed local segments with an offset at or above both the copied end and log start, oldest first."""
    start = max(copied_to or 0, view.log_start)
    return tuple(segment for segment in view.closed if segment.next_base > start)


def plan_copy(view: PartitionView, state: CopyFacts) -> CopyPlan:
    """What to copy now, oldest first and contiguous.

    Safety: never the active segment; never at or above the last stable offset or the recovery point (the
    bucket must not be ahead of the disk); nothing before the bucket's state is known and claimed; nothing while
    compaction replaces segments.
    """
    pending = uncopied(view, state.copied_to)
    blocked = _blocked(view, state, pausing=bool(pending) or not state.loaded)
    if blocked is not None:
        return CopyPlan((), blocked)
    ready: list[SegmentView] = []
    for segment in pending:
        waiting = _passed(segment, state) or _not_yet(view, segment) or _uncleaned(view, segment, state.now_ms)
        if waiting is not None:
            return CopyPlan(tuple(ready), waiting)
        ready.append(segment)
    return CopyPlan(tuple(ready), _behind_closed(view, ready))


def rolled(view: PartitionView, now_ms: int) -> PartitionView:
    """*view* as it will be once its active segment has been closed and flushed."""
    if not view.active_bytes:
        return view
    active = SegmentView(
        base=view.active_base,
        next_base=view.log_end,
        size_bytes=view.active_bytes,
        largest_timestamp_ms=None,
        append_ms=now_ms,
    )
    return replace(
        view, closed=(*view.closed, active), active_base=view.log_end, active_bytes=0, recovery_point=view.log_end
    )


def plan_mends(
    view: PartitionView, state: CopyFacts, lost: Mapping[tuple[int, int], int]
) -> tuple[tuple[SegmentView, ...], tuple[tuple[int, int], ...]]:
    """Local segments to copy again for *lost* ranges of the bucket (with the bytes that these had), oldest first, and
    the ranges that none is left for.

    A segment with other bounds would overlap the copies beside it: it is not taken. One with fewer bytes has lost
    something, too: what is left of the copy may have it, and would go.
    """
    here = {
        (segment.base, segment.next_base): segment
        for segment in view.closed
        if segment.size_bytes >= lost.get((segment.base, segment.next_base), 0)
    }
    ranges = sorted(lost)
    gone = tuple(one for one in ranges if one not in here)
    if _blocked(view, state) is not None:
        return (), gone
    mends = [here[one] for one in ranges if one in here]
    return tuple(one for one in mends if _not_yet(view, one) is None), gone


def why_waiting(view: PartitionView, state: CopyFacts) -> Waiting | None:
    """The one reason that the next segment is not in the bucket; None when nothing waits."""
    plan = plan_copy(view, state)
    if not plan.segments:
        return plan.waiting
    segment = plan.segments[0]
    if state.copying is not None:
        under_way = f"segment {state.copying} is on its way for {state.copying_ms // 1000} s"
        if state.silent_ms >= HUNG_MS:
            return Waiting("hung", f"{under_way}; the bucket has not answered for {state.silent_ms // 1000} s")
        return Waiting("copying", under_way)
    if state.retrying is not None:
        return Waiting("retrying", state.retrying)
    return Waiting("copying", f"segment {segment.base} is next, {len(plan.segments)} in the queue")


def _blocked(view: PartitionView, state: CopyFacts, *, pausing: bool = True) -> Waiting | None:
    """What stops every copy of the partition; a pause only with *pausing*: where something waits."""
    if not view.settings.remote_storage_enable:
        return Waiting("untiered", "remote.storage.enable=false")
    if pausing and view.settings.remote_log_copy_disable:
        return Waiting("paused", "remote.log.copy.disable=true")
    if pausing and state.paused is not None:
        return Waiting("paused", state.paused)
    if view.cleaning:
        return Waiting("cleaning", "its closed segments are being cleaned")
    if state.claim is not ClaimState.HELD:
        return Waiting("claim", f"this run's claim on the bucket is {state.claim.value}")
    if not state.loaded:
        return Waiting("unknown", "what the bucket has of this partition is not known yet")
    return None


def _passed(segment: SegmentView, state: CopyFacts) -> Waiting | None:
    """Those behind it wait with it until log start has moved: copies follow each other without a gap."""
    if segment.next_base > state.passed_to:
        return None
    return Waiting("passed", f"total retention lets segment {segment.base} go: it is not worth a copy")


def _not_yet(view: PartitionView, segment: SegmentView) -> Waiting | None:
    if segment.next_base > view.last_stable:
        detail = view.pinned_by or f"the last stable offset is {view.last_stable}"
        return Waiting("pinned", f"segment {segment.base} ends at {segment.next_base}: {detail}")
    if segment.next_base > view.recovery_point:
        return Waiting("unflushed", f"segment {segment.base} is not flushed beyond {view.recovery_point}")
    return None


def _uncleaned(view: PartitionView, segment: SegmentView, now_ms: int) -> Waiting | None:
    """A compacted segment waits for its cleaning, but not longer than the topic allows."""
    if not view.settings.compacted or segment.next_base <= (view.cleaned_to or 0):
        return None
    limits = (view.settings.max_compaction_lag_ms, view.settings.tierd_archive_max_age_ms)
    limit_ms = min((limit for limit in limits if limit is not None), default=None)
    if limit_ms is not None and now_ms - segment.append_ms >= limit_ms:
        return None
    until = "" if limit_ms is None else f", for {limit_ms} ms after its last append at most"
    return Waiting("uncleaned", f"segment {segment.base} waits for its cleaning{until}")


def _behind_closed(view: PartitionView, ready: Sequence[SegmentView]) -> Waiting | None:
    """All closed segments are copied or ready; only the active one is left."""
    if ready or view.active_bytes == 0:
        return None
    return Waiting("active", f"segment {view.active_base} is still written ({view.active_bytes} bytes)")


def thin_to(view: PartitionView, remote: Iterable[SegmentView]) -> int:
    """Where the last closed segment ends that has fewer bytes than the copies of exactly its range; local start when
    none has. Nothing makes a segment smaller once it is copied: the disk has lost what the bucket has."""
    copies = {one.base: one for one in remote}
    end = view.local_start
    for segment in view.closed:
        at, size_bytes = segment.base, 0
        while at < segment.next_base and at in copies:
            size_bytes += copies[at].size_bytes
            at = copies[at].next_base
        if at == segment.next_base and segment.size_bytes < size_bytes:
            end = at
    return end


def local_start_target(
    view: PartitionView,
    committed: Iterable[tuple[int, int]],
    *,
    now_ms: int,
    everything: bool = False,
    given_up: int = 0,
) -> int:
    """Where local start may move now: behind all that `local_going` lets go."""
    going, _ = local_going(view, committed, now_ms=now_ms, everything=everything, given_up=given_up)
    return max(view.local_start, going[-1].segment.next_base if going else 0)


def log_start_target(view: PartitionView, remote: Iterable[SegmentView], *, now_ms: int) -> int:
    """Where log start may move now: behind all that `total_going` lets go."""
    going = total_going(view, remote, now_ms=now_ms)
    return going[-1].segment.next_base if going else view.log_start


def covers(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> bool:
    """Whether *ranges* hold every offset of [start, stop)."""
    return any(begin <= start and stop <= end for begin, end in runs(ranges))
