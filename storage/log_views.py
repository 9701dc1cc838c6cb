"""How a log looks from outside: the views that the planner, the copier and the status read."""

from typing import TYPE_CHECKING

from tierd.base.ids import PartitionId
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments
from tierd.storage.view import PartitionView, SegmentView

if TYPE_CHECKING:
    from tierd.storage.log import Log


def closed_views(segments: Segments) -> tuple[SegmentView, ...]:
    """The closed segments, oldest first. Raises OSError."""
    return tuple(_view(segment, next_base) for segment, next_base in segments.ranges())


def _view(segment: Segment, next_base: int) -> SegmentView:
    if segment.view is None:
        largest = segment.largest_timestamp()
        segment.view = SegmentView(
            base=segment.base,
            next_base=next_base,
            size_bytes=segment.size_bytes,
            largest_timestamp_ms=None if largest is None else largest[0],
            append_ms=segment.append_ms,
        )
    return segment.view


def partition_view(log: "Log", segments: Segments, pinned_by: str | None) -> PartitionView:
    active = segments.active
    return PartitionView(
        name=log.name,
        id=PartitionId(log.topic_id, log.name.partition),
        directory=log.directory,
        settings=log.settings,
        log_start=log.log_start,
        local_start=log.local_start,
        log_end=log.log_end,
        last_stable=log.last_stable,
        recovery_point=log.recovery_point,
        leader_epoch=log.leader_epoch,
        closed=closed_views(segments),
        active_base=active.base,
        active_bytes=active.size_bytes,
        active_append_ms=active.first_append_ms,
        pinned_by=pinned_by,
        cleaned_to=log.compaction.cleaned_to,
        cleaning=log.compaction.running,
    )
