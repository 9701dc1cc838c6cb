"""What every log of one data directory shares."""

from collections.abc import Callable
from dataclasses import dataclass

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.ids import TopicPartition
from tierd.storage.fdcache import FdCache
from tierd.storage.indexcache import IndexCache
from tierd.storage.remaking import RemadeIndexes
from tierd.storage.repairs import Repairs
from tierd.storage.reserve import DiskReserve
from tierd.storage.segment import Segment
from tierd.storage.setaside import SetAside
from tierd.storage.trash import Trash


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContext:
    disk: Disk
    clock: Clock
    fds: FdCache
    indexes: IndexCache
    repairs: Repairs
    remake: Callable[[Segment, int], RemadeIndexes]
    """Indexes of so many bytes of a segment's log; in any thread."""
    reserve: DiskReserve
    set_aside: SetAside
    trash: Trash
    persist_start: Callable[[TopicPartition, int], None]
    """Make a partition's log start durable in the directory's checkpoint; returns at once when it is there already."""
