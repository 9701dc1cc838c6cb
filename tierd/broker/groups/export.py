"""What groups have committed goes to the bucket now and then, and comes back from there when the disks are lost.

A cut is consistent: all groups at one moment, without what open transactions are about to commit.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from tierd.base.errors import TierdError
from tierd.base.ids import NO_ID
from tierd.broker.groups.codec import Commit
from tierd.broker.groups.coordinator import Coordinator
from tierd.broker.groups.ports import OffsetsLog
from tierd.broker.groups.shard import Shard
from tierd.remote.groups import GroupFile, GroupOffset, GroupOffsets, encode_groups
from tierd.remote.view import Claim, ClaimState

log = logging.getLogger(__name__)

MOST_BYTES = 32 * 1024 * 1024
"""Of one file: more than what all groups may hold in memory comes to."""
_A_BATCH = 100
"""Offsets that are written at once when they come back."""

Committed = Mapping[tuple[str, int], Commit]


class GroupsTier(Protocol):
    """What is needed of the bucket; part of RemoteTier."""

    @property
    def claim(self) -> Claim: ...

    async def keep_groups(self, raw: bytes) -> None: ...


class OffsetsExport:
    """Looks every *every_ms*, writes when something has changed. Loop thread only; `run` is a task to be cancelled."""

    def __init__(self, coordinator: Coordinator, offsets: OffsetsLog, tier: GroupsTier, every_ms: int) -> None:
        self._coordinator = coordinator
        self._offsets = offsets
        self._tier = tier
        self._every_ms = every_ms
        self._written: tuple[int, ...] = ()
        """Where the partitions of the topic ended at the cut that was written last."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every_ms / 1000)
            await self.step()

    async def step(self) -> None:
        """One look. What cannot be read or written now waits for the next."""
        if self._tier.claim.state is not ClaimState.HELD:
            return
        try:
            if (ends := self._ends()) == self._written:
                return
            shards = await self._coordinator.load_all()
            ends, cut = self._ends(), cut_of(shards)
            raw = await asyncio.to_thread(encode_groups, self._coordinator.wall_ms(), _groups(cut))
            if len(raw) > MOST_BYTES:
                log.error("what groups have committed is too much for a group file", extra={"bytes": len(raw)})
            else:
                await self._tier.keep_groups(raw)
            self._written = ends
        except TierdError as error:
            log.warning("what groups have committed is not in the bucket yet: %s", error)

    def _ends(self) -> tuple[int, ...]:
        """Others than before when anything was written. Raises TierdError."""
        return tuple(self._offsets.end(index) for index in range(self._offsets.count() or 0))


def cut_of(shards: Iterable[Shard]) -> list[tuple[str, Committed]]:
    """All groups with offsets, as they are now."""
    return [(group, dict(commits)) for shard in shards for group, commits in shard.commits.items() if commits]


def _groups(cut: Iterable[tuple[str, Committed]]) -> Iterator[GroupOffsets]:
    for group, commits in sorted(cut, key=lambda one: one[0]):
        yield GroupOffsets(group, tuple(_offset(*place, commit) for place, commit in commits.items()))


def _offset(topic: str, partition: int, commit: Commit) -> GroupOffset:
    return GroupOffset(
        topic,
        None if commit.topic_id == NO_ID else commit.topic_id,
        partition,
        commit.offset,
        commit.leader_epoch,
        commit.metadata,
        commit.commit_ms,
        commit.expire_ms,
    )


@dataclass(slots=True)
class Restored:
    """What has become of a file's offsets."""

    groups: int = 0
    offsets: int = 0
    clamped: int = 0
    """Lay behind the end of their partition: records that the bucket never got."""
    dropped: int = 0
    """Of topics and partitions that are no more."""


EndOf = Callable[[GroupOffset], int | None]
"""The end of the log that an offset is committed in; None when there is no such partition any more."""


async def restore(file: GroupFile, coordinator: Coordinator, end_of: EndOf) -> Restored:
    """Commit what *file* has; again is fine. Before clients come: an offset behind the end of its partition becomes
    that end, or the group would pass over what is written there next. Raises TierdError."""
    restored, groups = Restored(), set[str]()
    for group in file.groups:
        commits: dict[tuple[str, int], Commit] = {}
        for one in group.offsets:
            end = end_of(one)
            if end is None:
                restored.dropped += 1
                continue
            restored.clamped += one.offset > end
            commits[one.topic, one.partition] = _commit(one, end)
        for part in _parts(commits):
            coordinator.commit(await coordinator.shard(group.group), group.group, part)
        restored.offsets += len(commits)
        groups |= {group.group} if commits else set()
    restored.groups = len(groups)
    return restored


def _commit(one: GroupOffset, end: int) -> Commit:
    commit = commit_of(one)
    return commit if one.offset <= end else replace(commit, offset=end, leader_epoch=None)


def commit_of(one: GroupOffset) -> Commit:
    """As a group file has it."""
    return Commit(
        offset=one.offset,
        leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        commit_ms=one.commit_ms,
        topic_id=one.topic_id,
        expire_ms=one.expire_ms,
    )


def _parts(commits: Mapping[tuple[str, int], Commit]) -> Iterator[dict[tuple[str, int], Commit]]:
    rows = iter(commits.items())
    while part := dict(islice(rows, _A_BATCH)):
        yield part
