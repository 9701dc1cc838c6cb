"""What the broker needs of its child processes; `daemon` joins them. `tiering.link.TierLink` is a RemoteTier."""

from collections.abc import Callable
from typing import Protocol

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.view import Claim, RemotePartition, RemoteStatus
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport
from tierd.storage.look import Look, Verdict
from tierd.storage.view import LogSlice, PartitionView, Seed, TimestampOffset


class Worker(Protocol):
    """A process for heavy local work. `worker.link.WorkerLink` has this shape. Loop thread only."""

    async def clean(self, job: CleanJob, take: Callable[[CleanedGroup], bool]) -> CleanReport:
        """*take* is called for each cleaned segment, in offset order; once it says False, for no more.

        Raises CorruptFile, DiskFull, WorkerGone, and other TierdErrors.
        """

    async def close(self) -> None: ...


class Looker(Protocol):
    """Looks at the records of large batches, beside the loop. `worker.link.WorkerLink` has this shape, too."""

    async def look(self, batch: memoryview, look: Look) -> Verdict:
        """Raises WorkerGone, and other TierdErrors."""

    async def close(self) -> None: ...


class RemoteTier(Protocol):
    """The bucket as the broker sees it. Loop thread only. Every call may raise RemoteUnavailable or CorruptFile."""

    @property
    def claim(self) -> Claim: ...

    def remote_partition(self, part: PartitionId) -> RemotePartition | None:
        """Last known remote state (pushed by the tierer on every change); None when nothing is known."""

    async def read(self, part: PartitionId, offset: int, *, max_bytes: int, stop: int, committed: bool) -> LogSlice:
        """Whole remote batches from the first whose last offset is at or above *offset*, all below *stop*.

        The first batch always comes whole; more follow while the sum stays <= *max_bytes*, across segments.
        Empty when nothing at or above *offset* and below *stop* is in the bucket (compacted away): the caller goes on
        at *stop*.
        Cancelling the call (a fetch's max wait passed) leaves the download running into the cache.
        """

    async def by_time(self, part: PartitionId, timestamp_ms: int, *, start: int, stop: int) -> TimestampOffset | None:
        """First remote record in [start, stop) with timestamp >= *timestamp_ms*."""

    async def largest_timestamp(self, part: PartitionId, *, start: int, stop: int) -> TimestampOffset | None:
        """Earliest remote record in [start, stop) with the largest timestamp there."""

    async def seed(self, part: PartitionId) -> Seed:
        """Snapshot and leader epochs that belong to `copied_to`."""

    async def publish_head(self, part: PartitionId) -> None:
        """Return when the bucket's head says what the last `partition_changed` said (log start)."""

    async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
        """Whether a LIST, made now, shows whole copies of all offsets in [start, stop)."""

    async def hold_copies(self, part: PartitionId) -> RemotePartition | None:
        """Return when nothing of *part* is being copied; what the bucket has of it then.

        `partition_changed` must have said `cleaning` before: until it says otherwise no copy begins.
        """

    def partition_changed(self, view: PartitionView) -> None:
        """Tell the tierer the whole state of a partition: after open, roll, flush of closed segments, evict, settings.

        Called on change, not per append: log_end and last_stable may be those of the last change or of a tick each
        second.
        """

    def topic_changed(
        self, topic: str, topic_id: Uuid, partitions: int, config: dict[str, str], created_ms: int
    ) -> None:
        """A topic was created or its settings changed; the tierer writes its topic file."""

    def topic_deleted(self, topic: str, topic_id: Uuid, partitions: int, deleted_ms: int) -> None:
        """Durable in the registry already; the tierer writes the tombstone, calls tombstone_written, later deletes."""

    async def status(self) -> dict[PartitionId, RemoteStatus]: ...
