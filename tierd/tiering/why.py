"""The one reason that the oldest local segment is still on the disk, and that the oldest remote one is still in the
bucket; the fact behind it in words. Pure: the decisions are those of `storage.retention`, asked for ever after.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tierd.base.clock import utc
from tierd.config.units import show_bytes, show_ms
from tierd.remote.reasons import next_step
from tierd.remote.view import Waiting
from tierd.storage.retention import Going, local_going, total_going
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment

_EVER_MS = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """About offsets [start, stop); the reason is one of `remote.reasons`."""

    reason: str
    detail: str
    start: int | None = None
    stop: int | None = None
    bytes: int | None = None


def document(why: Why | None) -> dict[str, Any] | None:
    """As JSON values, with what to do next."""
    return None if why is None else {**asdict(why), "next": next_step(why.reason)}


def why_uncopied(view: PartitionView, waiting: Waiting | None, uncopied: Sequence[SegmentView]) -> Why | None:
    """Why the next segment is not copied; None when nothing waits."""
    if waiting is None:
        return None
    if uncopied:
        return _about(uncopied[0], waiting.reason, waiting.detail)
    if not view.active_bytes:
        return Why(reason=waiting.reason, detail=waiting.detail)
    return Why(
        reason=waiting.reason,
        detail=waiting.detail,
        start=view.active_base,
        stop=view.log_end,
        bytes=view.active_bytes,
    )


def why_local(
    view: PartitionView,
    committed: Iterable[tuple[int, int]],
    *,
    now_ms: int,
    trouble: Waiting | None,
    waiting: Waiting | None,
) -> Why | None:
    """Why the oldest segment is on the disk. *trouble*: why nothing leaves the disk now; *waiting*: why the next one is
    not copied. None when there is none."""
    going, staying = local_going(view, committed, now_ms=now_ms, until_ms=_EVER_MS)
    if not view.closed:
        if not view.active_bytes:
            return None
        active = "the segment that is written never leaves the disk, and it is the only one there"
        return Why(reason="active", detail=active, start=view.active_base, stop=view.log_end, bytes=view.active_bytes)
    if not going:
        assert staying is not None
        if not staying.copied:
            why = waiting or Waiting("unknown", "nobody says why")
            return _about(staying.segment, why.reason, f"it is not in the bucket: {why.detail}")
        return _about(staying.segment, "kept", _local_limits(view))
    first = going[0]
    if first.at_ms > now_ms:
        return _about(first.segment, "kept", _until(view, first))
    if trouble is not None:
        return _about(first.segment, trouble.reason, trouble.detail)
    return _about(first.segment, "due", f"{first.rule} lets it go")


def why_remote(
    view: PartitionView | None,
    rows: Iterable[CatalogSegment],
    *,
    now_ms: int,
    bucket_ms: int,
    delay_ms: int,
    trouble: Waiting | None,
) -> Why | None:
    """Why the oldest segment is in the bucket; None when nothing is. *bucket_ms*: its clock."""
    there = sorted((row for row in rows if row.state is not CopyState.COPY_STARTED), key=lambda row: row.remote.base)
    if not there:
        return None
    first = there[0]
    segment = first.remote.view
    if first.state is CopyState.DELETE_STARTED or first.released_ms is not None:
        return _going(first, bucket_ms, delay_ms, trouble)
    if view is None:
        return _about(segment, "due", "its topic is deleted")
    committed = [row.remote.view for row in there if row.state is CopyState.COPY_FINISHED and row.released_ms is None]
    leaving = total_going(view, committed, now_ms=now_ms, until_ms=_EVER_MS)
    if not leaving:
        return _about(segment, "within limits", _total_limits(view))
    if leaving[0].at_ms > now_ms:
        return _about(segment, "within limits", _until(view, leaving[0]))
    due = Waiting("due", f"{leaving[0].rule} lets it go") if trouble is None else trouble
    return _about(segment, due.reason, due.detail)


def _going(row: CatalogSegment, bucket_ms: int, delay_ms: int, trouble: Waiting | None) -> Why:
    """Of one that is released, or whose delete has begun."""
    segment = row.remote.view
    if row.state is CopyState.DELETE_STARTED and row.due_ms is not None and row.due_ms > bucket_ms:
        if row.released_ms is None:
            what = f"it is no good copy, and stays until no request for it can still come: {_time(row.due_ms)}"
            return _about(segment, "delayed", what)
        return _about(segment, "refused", f"the bucket refused to delete it; tried again from {_time(row.due_ms)} on")
    since = "" if row.released_ms is None else f"released at {_time(row.released_ms)}"
    if row.released_ms is not None and row.released_ms + delay_ms > bucket_ms:
        until = f"tierd.delete.delay.ms ({show_ms(delay_ms)}) keeps it until {_time(row.released_ms + delay_ms)}"
        return _about(segment, "delayed", f"{since}, {until}")
    if trouble is not None:
        return _about(segment, trouble.reason, trouble.detail)
    return _about(segment, "due", since or "its delete has begun")


def _about(segment: SegmentView, reason: str, detail: str) -> Why:
    return Why(reason=reason, detail=detail, start=segment.base, stop=segment.next_base, bytes=segment.size_bytes)


def _time(at_ms: int) -> str:
    """In words; what no calendar reaches is far off."""
    try:
        return utc(at_ms)
    except (OverflowError, ValueError, OSError):
        return "the end of time"


def _until(view: PartitionView, going: Going) -> str:
    """A limit of time is what keeps it."""
    keep_ms: int = getattr(view.settings, going.rule.replace(".", "_"))
    return f"{going.rule} ({show_ms(keep_ms)}) keeps it until {_time(going.at_ms)}"


def _local_limits(view: PartitionView) -> str:
    settings = view.settings
    held = f"{sum(one.size_bytes for one in view.closed) + view.active_bytes} bytes are on the disk"
    return _limits(settings.local_retention_ms, settings.local_retention_bytes, "local.retention", held)


def _total_limits(view: PartitionView) -> str:
    settings = view.settings
    if not settings.deletes:
        return "cleanup.policy=compact: no limit deletes anything"
    return _limits(settings.retention_ms, settings.retention_bytes, "retention", "the log has no more")


def _limits(keep_ms: int | None, keep_bytes: int | None, name: str, held: str) -> str:
    if keep_ms is None and keep_bytes is None:
        return f"there is no limit: {name}.ms=-1, {name}.bytes=-1"
    by_size = "" if keep_bytes is None else f"{name}.bytes={show_bytes(keep_bytes)}, {held}"
    return by_size or f"{name}.ms={show_ms(keep_ms or 0)}"
