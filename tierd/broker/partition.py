"""One partition as the broker serves it: the local log, what the bucket has, and who waits for more."""

import asyncio
import logging
from collections.abc import Callable

from tierd.base.errors import CorruptFile
from tierd.base.ids import PartitionId, TopicPartition
from tierd.broker.ports import RemoteTier
from tierd.remote.view import RemotePartition
from tierd.storage.log import Log
from tierd.storage.view import PartitionView

AWAY_MS = 30_000
"""After this long without an answer of the bucket a fetch says so (error 56) instead of staying empty."""

log = logging.getLogger(__name__)


class Partition:
    """Loop thread only. Offsets [log_start, local_start) are only in the bucket, [local_start, log_end) on the disk."""

    __slots__ = (
        "_told",
        "_waiters",
        "archived",
        "deleted",
        "id",
        "internal",
        "log",
        "name",
        "offline",
        "remote",
        "silent_ms",
        "taken",
        "tried_ms",
        "unpublished_start",
        "unread",
        "unreadable",
    )

    def __init__(self, log: Log, part: PartitionId, *, internal: bool) -> None:
        self.log = log
        self.name: TopicPartition = log.name
        self.id = part
        self.internal = internal
        """One of Kafka's own topics: only the broker writes to it, never tiered."""
        self.remote: RemotePartition | None = None
        self.silent_ms: int | None = None
        """Monotonic time since which reads from the bucket have not come back; None while they do."""
        self.tried_ms = 0
        """Monotonic time of the last read begun from the bucket."""
        self.unpublished_start: int | None = None
        """Log start that DeleteRecords moved and the bucket's head does not have yet."""
        self.unreadable: tuple[int, str] | None = None
        """Offset whose bytes, in whichever tier, did not parse when they were last read, and why."""
        self.unread: tuple[str, ...] = ()
        """Of one of the broker's own topics: what it could not read of it when it looked last."""
        self.deleted = False
        self.offline = False
        """Its data directory has failed: nobody gets at it until the next start."""
        self.archived = False
        """It is only in the bucket, which is only read."""
        self.taken = False
        """A recovery has made it here, empty: that the bucket has more than the disk is no loss of this disk."""
        self._told: PartitionView | None = None
        self._waiters: dict[Callable[[], None], None] = {}

    def __str__(self) -> str:
        return str(self.name)

    def wait(self, wake: Callable[[], None]) -> None:
        """Call *wake* on every change that a waiting fetch may care about, until `forget`."""
        self._waiters[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        self._waiters.pop(wake, None)

    async def changed(self) -> None:
        """Wait for the next `wake`."""
        event = asyncio.Event()
        self.wait(event.set)
        try:
            await event.wait()
        finally:
            self.forget(event.set)

    def wake(self) -> None:
        """Something was appended, moved or deleted."""
        if self._waiters:
            for waiter in list(self._waiters):
                waiter()

    def view(self) -> PartitionView:
        return self.log.view()

    def tell(self, tier: RemoteTier | None) -> None:
        """Show the tierer the whole state. A partition that cannot be read is not shown: nothing happens to it."""
        if tier is None or self.deleted or self.offline:
            return
        try:
            self._told = self.log.view()
        except (CorruptFile, OSError) as error:
            self.unreadable = (self.log.log_start, str(error))
            log.error("partition cannot be read", extra={"partition": str(self), "why": str(error)})
            return
        tier.partition_changed(self._told)

    @property
    def must_tell(self) -> bool:
        """Whether appends have changed what the tierer plans with, though housekeeping has flushed nothing.

        That is: the active segment is no longer empty, an open transaction that held back closed segments ended, or
        closed segments are on the disk because somebody waited for that.
        """
        told = self._told
        if told is None:
            return True
        freed = told.last_stable < told.active_base and self.log.last_stable > told.last_stable
        closed = told.active_base < self.log.sealed
        return freed or closed or (told.active_append_ms is None and self.log.log_end > told.active_base)

    def reads_refused(self, now_ms: int) -> bool:
        """Whether the bucket leaves reads of this partition without an answer, for 30 s now; *now_ms* is monotonic."""
        silent, asked_ms = self.silent_ms, now_ms - self.tried_ms
        return silent is not None and now_ms - silent > AWAY_MS and asked_ms <= AWAY_MS  # older says nothing about now

    @property
    def has_id(self) -> bool:
        """Whether anybody knows the id of its topic."""
        return self.archived or self.log.read_only is None

    @property
    def tiered(self) -> bool:
        return not self.internal and self.log.settings.remote_storage_enable

    @property
    def copied_to(self) -> int | None:
        return None if self.remote is None else self.remote.copied_to
