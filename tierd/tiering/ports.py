"""What the tierer needs of the broker, as calls in the broker's process. `broker.local_tier` has this shape."""

from collections.abc import Mapping
from typing import Protocol

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.view import Claim, RemotePartition


class LocalTier(Protocol):
    """The local log as the tierer sees it. Each call is idempotent and returns only when its effect is durable."""

    async def evict(self, part: PartitionId, local_start: int) -> int:
        """Move local start up to *local_start* (persisted), drop closed segments below; give the local start now."""

    async def move_log_start(self, part: PartitionId, log_start: int) -> int:
        """Move log start up to *log_start* (persisted), drop local segments below; give the log start now.

        It stays where it is when segments that only the disk has are not what was told of them: they are told anew.
        """

    def remote_changed(self, remote: RemotePartition) -> None:
        """A copy was committed or remote segments went."""

    def claim_changed(self, claim: Claim) -> None:
        """Lost: refuse Produce, keep local files. Held after pending: go on."""

    def topic_is_newer(self, topic_id: Uuid, config: Mapping[str, str]) -> None:
        """*config* is newer in the bucket than in the registry, which came back from a backup: it counts."""

    def tombstone_written(self, topic_id: Uuid) -> None:
        """The bucket knows that the topic is deleted: the registry may forget the id.

        A topic that still lives here (the registry came back from a backup) is deleted now: a tombstone is final.
        """
