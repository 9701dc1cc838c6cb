"""The local log as the tierer sees it (`tiering.ports.LocalTier`): each call persists before it answers."""

import asyncio
import logging
from collections.abc import Mapping

from tierd.base.clock import Clock
from tierd.base.errors import TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.broker.ongoing import Ongoing
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.broker.turns import in_turns
from tierd.config.topic_rules import TopicConfigError
from tierd.remote.view import Claim, ClaimState, RemotePartition
from tierd.storage.errors import Repairing, StorageFailed

log = logging.getLogger(__name__)

FIRST_AGAIN_S = 1.0
LAST_AGAIN_S = 10.0
"""Pauses before the bucket is asked again for what waiting partitions need: doubled from the first to the last."""

_LOOKS = 16
"""Segments looked at before the loop serves others again."""


class LocalLog:
    """Loop thread only. A partition that is not there any more answers with what was asked: nothing of it is left."""

    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        self._partitions = partitions
        self._clock = clock
        self.tier: RemoteTier | None = None
        """Told of every change; set once it is there (each needs the other)."""
        self.unnoted: set[Uuid] = set()
        """Topics whose newer settings, told by the bucket, the registry does not have yet."""
        self._ongoing = Ongoing()
        self._beginning: asyncio.Task[None] | None = None

    def _refuse_offline(self, part: PartitionId) -> None:
        """A partition in a directory that is offline has lost nothing: it stays as it is until it is back."""
        away = self._partitions.outages.get(part)
        if away is not None:
            raise StorageFailed(away.reason)

    async def evict(self, part: PartitionId, local_start: int) -> int:
        self._refuse_offline(part)
        partition = self._partitions.by_id(part)
        if partition is None:
            return local_start
        await self._move(partition, partition.log.log_start)  # nothing is below it, but it must be durable
        if partition.deleted:
            return local_start
        now = partition.log.evict(local_start)
        partition.tell(self.tier)
        return now

    async def move_log_start(self, part: PartitionId, log_start: int) -> int:
        self._refuse_offline(part)
        partition = self._partitions.by_id(part)
        if partition is None:
            return log_start
        if await self._bears_out(partition, log_start):
            await self._move(partition, log_start)
        if partition.deleted:
            return log_start
        partition.tell(self.tier)
        return partition.log.log_start

    async def _bears_out(self, partition: Partition, log_start: int) -> bool:
        """Whether the segments that only the disk has are what the tierer was told of them: a wrong time index must
        make none older. Those in the bucket were read whole before."""
        before = partition.view().closed
        ours = [one for one in before if (partition.copied_to or 0) < one.next_base <= log_start]
        async for segment in in_turns(ours, _LOOKS):
            if partition.deleted or partition.offline:
                break
            try:
                partition.log.settled(segment.base)
            except Repairing:
                return False
            except (TierdError, OSError):
                continue  # damaged as it is, it goes
        return partition.deleted or partition.offline or partition.view().closed == before

    async def _move(self, partition: Partition, log_start: int) -> None:
        """Raises StorageFailed when the partition goes offline meanwhile, DiskFull, OSError."""
        failed = await self._partitions.starts.move({partition: log_start})
        self._refuse_offline(partition.id)
        if partition in failed:
            raise failed[partition]

    def remote_changed(self, remote: RemotePartition) -> None:
        partition = self._partitions.by_id(remote.id)
        if partition is not None:
            partition.remote = remote

    def claim_changed(self, claim: Claim) -> None:
        if claim.state is ClaimState.LOST:
            log.error("the bucket has another owner now: Produce is refused", extra={"why": claim.detail})
        else:
            log.info("claim", extra={"state": str(claim.state), "epoch": claim.epoch, "why": claim.detail})
        self.begin_waiting()

    def begin_waiting(self) -> None:
        """Go on with partitions that wait for the bucket, if it is ours now; tried until they have begun."""
        tier, under_way = self.tier, self._beginning is not None and not self._beginning.done()
        if tier is not None and tier.claim.state is ClaimState.HELD and self._partitions.waiting and not under_way:
            self._beginning = self._ongoing.begin(self._begin_waiting(tier))

    async def _begin_waiting(self, tier: RemoteTier) -> None:
        pause_s = FIRST_AGAIN_S
        while self._partitions.waiting and tier.claim.state is ClaimState.HELD:
            try:
                await self._partitions.begin_waiting(tier)
            except (TierdError, OSError) as error:
                log.error("partitions wait on for what the bucket has of them: %s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_AGAIN_S)

    def topic_is_newer(self, topic_id: Uuid, config: Mapping[str, str]) -> None:
        """They hold at once: what shorter limits of old released would be gone for good. `Partitions.changes` has the
        registry follow when it is settled; until then every start hears of them again."""
        partitions = self._partitions
        topic = partitions.topic_by_id(topic_id)
        if topic is None:
            return
        facts: dict[str, object] = {"topic": topic.name, "registry": topic.row.config, "bucket": config}
        try:
            partitions.configure(topic, config, self.tier)
        except TopicConfigError as error:
            facts["why"] = str(error)
            log.error("the bucket has newer settings of a topic, but they are not right", extra=facts)
            return
        log.warning("the state directory has older settings of a topic than the bucket: those count", extra=facts)
        self.unnoted.add(topic_id)
        partitions.changes.begin("newer settings of a topic", self._note_newer(topic_id, config))

    async def _note_newer(self, topic_id: Uuid, config: Mapping[str, str]) -> None:
        partitions = self._partitions
        async with partitions.changes.turn:
            topic = partitions.topic_by_id(topic_id)
            if topic is not None and topic.row.config == config:  # else a client has changed them since
                await partitions.changes.in_thread(partitions.registry.set_config, topic_id, config)
            self.unnoted.discard(topic_id)

    def tombstone_written(self, topic_id: Uuid) -> None:
        """`Partitions.changes` has it done when it is settled."""
        self._partitions.changes.begin("a deletion that the bucket knows of", self._bury(topic_id))

    async def _bury(self, topic_id: Uuid) -> None:
        partitions, registry = self._partitions, self._partitions.registry
        in_thread = partitions.changes.in_thread
        async with partitions.changes.turn:
            topic = partitions.topic_by_id(topic_id)
            if topic is None:
                await in_thread(registry.forget, topic_id)
                return
            log.warning(
                "the bucket says that the topic was deleted, so it is; the state directory is older than that",
                extra={"topic": topic.name, "topic_id": str(topic_id)},
            )
            deleted_ms = self._clock.now_ms()
            await in_thread(registry.mark_deleted, topic_id, deleted_ms)
            await in_thread(registry.unplace, await in_thread(partitions.withdraw(topic).run))
            if self.tier is not None:  # it answers with the tombstone again
                self.tier.topic_deleted(topic.name, topic_id, topic.row.partitions, deleted_ms)
