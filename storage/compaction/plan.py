"""Whether a partition is to be cleaned now, and which part of it: a pure function of its view and the time.

Kafka's rules, and two of tierd: nothing that is not flushed (files under way to the disk are not replaced), and with a
bucket only segments above its copied end, for what lies there cannot be written again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tierd.storage.view import PartitionView, SegmentView

FirstTimestamp = Callable[[SegmentView], int | None]
"""Largest timestamp of a segment's first batch; None when it has none. Only asked when max.compaction.lag.ms is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """Clean the segments of [start, stop); keys are looked for in [first_dirty, stop)."""

    start: int
    first_dirty: int
    stop: int
    dirty_bytes: int
    clean_bytes: int

    @property
    def ratio(self) -> float:
        """Of several partitions the dirtiest is cleaned first."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def plan_clean(
    view: PartitionView, copied_to: int | None, first_timestamp: FirstTimestamp, now_ms: int
) -> CleanPlan | None:
    """None when there is nothing to clean, or too little yet."""
    found = cleanable(view, copied_to, now_ms)
    if found is None or found.ratio > view.settings.min_cleanable_dirty_ratio:
        return found
    dirty = [segment for segment in view.closed if segment.next_base > found.first_dirty]
    return found if _overdue(view, dirty, first_timestamp, now_ms) else None


def cleanable(view: PartitionView, copied_to: int | None, now_ms: int) -> CleanPlan | None:
    """All that may be cleaned now, worth it or not; None when nothing of it is dirty.

    Safety: never the active segment, never at or above the last stable offset or the recovery point, never a segment
    that begins below *copied_to*.
    """
    settings = view.settings
    segments = [segment for segment in view.closed if segment.base >= (copied_to or 0)]
    if not settings.compacted or not segments:
        return None
    start = segments[0].base
    first_dirty = max(view.cleaned_to or 0, start)
    dirty = [segment for segment in segments if segment.next_base > first_dirty]
    limit = min(view.last_stable, view.recovery_point)
    if settings.min_compaction_lag_ms > 0:
        limit = min(limit, _young_from(dirty, now_ms - settings.min_compaction_lag_ms))
    free = [segment for segment in dirty if segment.next_base <= limit]
    dirty_bytes = sum(segment.size_bytes for segment in free)
    if not dirty_bytes:
        return None
    clean_bytes = sum(segment.size_bytes for segment in segments if segment.base < first_dirty)
    return CleanPlan(
        start=start,
        first_dirty=first_dirty,
        stop=free[-1].next_base,
        dirty_bytes=dirty_bytes,
        clean_bytes=clean_bytes,
    )


def _young_from(dirty: Sequence[SegmentView], before_ms: int) -> int:
    """Base of the first segment with a record later than *before_ms*; the end of all when there is none. Not later than
    its last append, whatever the record says: else one from the future would keep all from being cleaned, for ever."""
    for segment in dirty:
        if segment.age_anchor_ms > before_ms:
            return segment.base
    return dirty[-1].next_base if dirty else 0


def _overdue(view: PartitionView, dirty: Sequence[SegmentView], first_timestamp: FirstTimestamp, now_ms: int) -> bool:
    """Whether the oldest of the dirty segments has waited for max.compaction.lag.ms."""
    lag_ms = view.settings.max_compaction_lag_ms
    if lag_ms is None:
        return False
    times = [(first_timestamp(segment), segment.append_ms) for segment in dirty]
    since = [min(at_ms, append_ms) for at_ms, append_ms in times if at_ms is not None and at_ms > 0]
    return min(since, default=now_ms) < now_ms - lag_ms
