"""Offsets that nobody needs any more are forgotten after a while, by Kafka's rules (KIP-211).

What offsets a time lets go of:

| the group | offsets go | counted from |
|---|---|---|
| has no members | all | the last member's leaving |
| never had any | all | their own commit |
| stable, of consumers whose topics are known | of topics that no member reads | their own commit |
| of the consumer protocol | of topics that no member reads | their own commit, or the last member's leaving |
| anything else | none | |

A commit that names its own time of expiry goes by that. An offset that an open transaction is about to commit stays.
A group without members and offsets goes, too.
"""

import asyncio
import logging
from collections.abc import Iterator

from tierd.broker.groups.codec import Commit, CommitKey
from tierd.broker.groups.coordinator import Coordinator, NotReady
from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import State
from tierd.broker.groups.shard import Shard
from tierd.broker.groups.subscribed import reads, topics_of
from tierd.broker.turns import in_turns

log = logging.getLogger(__name__)

_A_TURN = 100
"""Groups looked at before the loop serves others again."""


def expired(shard: Shard, group_id: str, *, now_ms: int, keep_ms: int) -> Iterator[CommitKey]:
    """Offsets of the group to be forgotten at *now_ms*, wall clock."""
    group, consumers = shard.groups.get(group_id), shard.consumers.get(group_id)
    if group is not None and not _may_expire(group):
        return
    left_ms = _left_ms(group) if consumers is None else None if consumers.state.members else consumers.emptied_ms
    for (topic, partition), commit in shard.commits.get(group_id, {}).items():
        key = CommitKey(group_id, topic, partition)
        read = reads(group, topic) if consumers is None else consumers.reads(topic)
        if key not in shard.pending and not read and _is_over(commit, left_ms, now_ms, keep_ms):
            yield key


def _may_expire(group: Group) -> bool:
    """Offsets under the name of a group that was made but never joined go like those without a group."""
    if group.protocol_type is None or group.state is State.EMPTY:
        return group.idle
    return group.state is State.STABLE and topics_of(group) is not None


def _left_ms(group: Group | None) -> int | None:
    """When the last member left; None where that does not count."""
    return None if group is None or group.protocol_type is None or group.members else group.changed_ms


def _is_over(commit: Commit, left_ms: int | None, now_ms: int, keep_ms: int) -> bool:
    if commit.expire_ms is not None:
        return now_ms >= commit.expire_ms
    # Kafka takes the time of leaving alone; an administrator may have set the offset since.
    return now_ms - max(commit.commit_ms, left_ms or 0) >= keep_ms


class OffsetsExpiry:
    """Looks at all groups every *every_ms*. Loop thread only; `run` is one task, `stop` lets it end."""

    def __init__(self, coordinator: Coordinator, *, keep_ms: int, every_ms: int) -> None:
        self._coordinator = coordinator
        self._keep_ms = keep_ms
        self._every_ms = every_ms
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """The first look comes after one interval: until then consumers may have come back from a restart."""
        while True:
            try:
                async with asyncio.timeout(self._every_ms / 1000):
                    await self._stopped.wait()
            except TimeoutError:
                await self.step()
            else:
                return

    async def step(self) -> None:
        """One look. What cannot be read or written now waits for the next."""
        offsets = groups = 0
        try:
            for shard in await self._coordinator.load_all():
                async for group_id in in_turns(shard.names(), _A_TURN):
                    gone = self._forget(shard, group_id)
                    offsets, groups = offsets + gone[0], groups + gone[1]
        except NotReady as error:
            log.warning("offsets do not expire", extra={"why": str(error)})
        if offsets or groups:
            log.info("offsets expired", extra={"offsets": offsets, "groups": groups})

    def _forget(self, shard: Shard, group_id: str) -> tuple[int, int]:
        """How many offsets and groups went."""
        gone = list(expired(shard, group_id, now_ms=self._coordinator.wall_ms(), keep_ms=self._keep_ms))
        group, consumers = shard.groups.get(group_id), shard.consumers.get(group_id)
        empty = not consumers.state.members if consumers is not None else group is not None and group.idle
        ends = empty and shard.offsets_of(group_id) <= set(gone)
        if gone or ends:
            self._coordinator.forget(shard, gone, [group_id] if ends else ())
        return len(gone), int(ends)
