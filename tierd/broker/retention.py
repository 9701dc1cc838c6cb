"""What total retention lets go of partitions that no bucket knows (of tiered ones the tierer plans it)."""

from tierd.storage.retention import Going, total_going
from tierd.storage.view import PartitionView


def going(view: PartitionView, now_ms: int, until_ms: int | None = None) -> list[Going]:
    """The oldest segments that are too old or too much, also above the last stable offset, as in Kafka."""
    return total_going(view, (), now_ms=now_ms, until_ms=until_ms, below=view.log_end)


def released(view: PartitionView, now_ms: int) -> int:
    """The log start after retention."""
    gone = going(view, now_ms)
    return gone[-1].segment.next_base if gone else view.log_start
