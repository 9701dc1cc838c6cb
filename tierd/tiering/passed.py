"""What total retention lets go before it is copied: no reader would ever get it from the bucket."""

from tierd.storage.view import PartitionView
from tierd.tiering.plan import log_start_target, uncopied
from tierd.tiering.state import TierState


def passed_to(state: TierState, view: PartitionView, copied_to: int | None) -> int:
    """Below here total retention lets all go; 0 while nothing may be deleted: then a copy is the safe way."""
    now_ms = state.clock.now_ms()
    if not view.settings.remote_storage_enable or not may_have_passed(view, copied_to, now_ms):
        return 0
    if not state.held or state.guard.trouble(state.bucket.store.now_ms()) is not None:
        return 0
    target = log_start_target(view, state.catalog.views(view.id), now_ms=now_ms)
    return target if target > view.log_start else 0


def may_have_passed(view: PartitionView, copied_to: int | None, now_ms: int) -> bool:
    """Whether total retention can let the next segment to copy go, as far as the local log alone shows it; quick."""
    settings, segment = view.settings, next(iter(uncopied(view, copied_to)), None)
    if segment is None or not settings.deletes:
        return False
    keep_ms, keep_bytes = settings.retention_ms, settings.retention_bytes
    if keep_ms is not None and max(0, segment.age_anchor_ms) + keep_ms < now_ms:
        return True
    if keep_bytes is None:
        return False
    behind = sum(one.size_bytes for one in view.closed if one.base >= segment.next_base) + view.active_bytes
    return behind >= keep_bytes
