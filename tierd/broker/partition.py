"""One partition as the broker serves it: the local log, what the bucket has, and who waits for more."""

from collections.abc import Callable

from tierd.base.ids import PartitionId, TopicPartition
from tierd.remote.view import RemotePartition
from tierd.storage.log import Log
from tierd.storage.view import PartitionView


class Partition:
    """Loop thread only. Offsets [log_start, local_start) are only in the bucket, [local_start, log_end) on the disk."""

    __slots__ = ("_waiters", "deleted", "id", "internal", "log", "name", "remote", "silent_ms", "tried_ms")

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
        self.deleted = False
        self._waiters: dict[Callable[[], None], None] = {}

    def __str__(self) -> str:
        return str(self.name)

    def wait(self, wake: Callable[[], None]) -> None:
        """Call *wake* on every change that a waiting fetch may care about, until `forget`."""
        self._waiters[wake] = None

    def forget(self, wake: Callable[[], None]) -> None:
        self._waiters.pop(wake, None)

    def wake(self) -> None:
        """Something was appended, moved or deleted."""
        if self._waiters:
            for waiter in list(self._waiters):
                waiter()

    def view(self) -> PartitionView:
        return self.log.view()

    @property
    def tiered(self) -> bool:
        return not self.internal and self.log.settings.remote_storage_enable

    @property
    def copied_to(self) -> int | None:
        return None if self.remote is None else self.remote.copied_to
