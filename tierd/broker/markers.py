"""Ends of transactions, written where their records are: user topics and `__consumer_offsets` alike."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from tierd.base.clock import Clock
from tierd.base.errors import TierdError
from tierd.base.ids import TopicPartition
from tierd.broker.commits import Commits
from tierd.broker.error_map import code_of
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.broker.transactions.ports import Marker
from tierd.broker.turns import in_turns
from tierd.remote.view import ClaimState
from tierd.storage.errors import AppendRefused, StorageFailed
from tierd.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_A_TURN = 64
"""Markers written before the loop serves others again."""


class HeldOffsets(Protocol):
    """What the groups must hear of transactions that committed offsets."""

    async def ready(self, partition: int) -> bool:
        """Read that partition of `__consumer_offsets` when it has not been yet; False when that cannot be done now."""

    def ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """The marker is in the log: let what the transaction committed be seen, or drop it."""


class Markers:
    """Implements `transactions.ports.Markers`. Loop thread only."""

    def __init__(
        self,
        partitions: Partitions,
        tier: RemoteTier | None,
        clock: Clock,
        commits: Commits,
        offsets: HeldOffsets,
        *,
        appended: Callable[[Partition], None],
    ) -> None:
        self._partitions = partitions
        self._tier = tier
        self._clock = clock
        self._commits = commits
        self._offsets = offsets
        self._appended = appended

    async def write(self, marker: Marker, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """See the protocol."""
        done: dict[TopicPartition, ErrorCode] = {}
        waits: list[tuple[TopicPartition, Awaitable[None]]] = []
        async for place in in_turns(partitions, _A_TURN):
            if place.topic == OFFSETS_TOPIC and not await self._offsets.ready(place.partition):
                done[place] = ErrorCode.NOT_LEADER_OR_FOLLOWER  # as Kafka: its groups are still to be read
                continue
            done[place], durable = self._append(place, marker)
            if durable is not None:
                waits.append((place, durable))
        for place, durable in waits:
            try:
                await durable
            except StorageFailed as error:
                done[place] = code_of(error)
        return done

    def _append(self, place: TopicPartition, marker: Marker) -> tuple[ErrorCode, Awaitable[None] | None]:
        """The outcome, and what to wait for where the topic's settings ask for it."""
        partition = self._partitions.get(place.topic, place.partition)
        if partition is None:
            return self._partitions.missing(place.topic, place.partition), None
        if self._tier is not None and partition.tiered and self._tier.claim.state is ClaimState.LOST:
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        logged = partition.log
        try:
            wrote = logged.end_transaction(
                *marker[:3],
                commit=marker.commit,
                now_ms=self._clock.now_ms(),
                raised=marker.raised,
                decided=marker.decided,
            )
        except AppendRefused as error:
            log.warning("transaction not ended", extra={"partition": str(partition), "why": str(error)})
            return code_of(error), None
        except (TierdError, OSError) as error:
            return self._partitions.met(partition, error, "transaction not ended"), None
        if wrote and place.topic == OFFSETS_TOPIC:
            self._offsets.ended(place.partition, marker.producer_id, commit=marker.commit)
        if wrote:
            self._appended(partition)
        return ErrorCode.NONE, self._commits.wait(partition) if logged.commits and logged.commit_due else None
