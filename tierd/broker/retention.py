"""Which closed segments total retention releases, for partitions that no bucket knows (tiered ones: the tierer plans).

Pure. A segment's age counts from min(largest timestamp, last append): a timestamp from the future keeps nothing alive.
"""

from tierd.storage.view import PartitionView


def released(view: PartitionView, now_ms: int) -> int:
    """The log start after retention: the oldest segments that lie below it, are too old or too much are passed over.

    Stops at the first segment that stays; size never takes the log below its limit.
    """
    settings, log_start = view.settings, view.log_start
    limit_bytes = settings.retention_bytes if settings.deletes else None
    limit_ms = settings.retention_ms if settings.deletes else None
    over = -1
    if limit_bytes is not None:
        over = view.active_bytes + sum(segment.size_bytes for segment in view.closed) - limit_bytes
    for segment in view.closed:
        below = segment.next_base <= log_start
        old = limit_ms is not None and now_ms - segment.age_anchor_ms > limit_ms
        if not (below or old or 0 <= segment.size_bytes <= over):
            break
        over -= segment.size_bytes
        log_start = max(log_start, segment.next_base)
    return log_start
