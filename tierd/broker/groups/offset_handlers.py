"""OffsetCommit and OffsetFetch."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tierd.base.ids import NO_ID
from tierd.broker.groups.codec import Commit, CommitKey
from tierd.broker.groups.consumer.model import Place
from tierd.broker.groups.coordinator import Coordinator, GroupTooLarge, NoRoom, NotReady
from tierd.broker.groups.ports import Topics
from tierd.broker.groups.shard import Shard
from tierd.broker.turns import in_turns
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

Fields = dict[str, object]
Errors = dict[tuple[str, int], ErrorCode]
"""By topic and partition."""

_NOTHING: Final[Mapping[str, object]] = {
    "committed_offset": -1,
    "committed_leader_epoch": -1,
    "metadata": "",
    "error_code": ErrorCode.NONE,
}


_A_TURN: Final = 500
"""Rows of a request before others are served."""
_KNOWS_NO_GROUP_FROM: Final = 9
"""OffsetCommit: before, a group that is not there is one whose generation is over."""
_GROUP_ERROR_FROM: Final = 2
"""OffsetFetch: before, each partition has the error of its group."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request is to commit."""

    errors: Errors
    good: dict[tuple[str, int], Commit]
    """Where there is none."""


class OffsetHandlers:
    """What `handlers.GroupHandlers` hands on."""

    def __init__(self, coordinator: Coordinator, topics: Topics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    async def commit(self, header: RequestHeader, request: Any) -> Fields:
        """One error for all when the group does not accept the committer; else what is wrong with each partition."""
        wanted = await self.wanted(request)
        shard = None
        try:
            shard = await self._coordinator.shard(request.group_id)
            error = self._may_commit(shard, request, header.version)
        except NotReady:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        # From here to the append nothing is awaited: until then the group takes the committer.
        self.look_again(wanted)
        errors = wanted.errors if not error else dict.fromkeys(wanted.errors, error)
        good = {} if error else wanted.good
        if good and shard is not None:
            try:
                self._coordinator.commit(shard, request.group_id, good)
            except (NotReady, NoRoom, GroupTooLarge) as why:
                errors |= dict.fromkeys(good, not_kept(why, request.group_id))
        return {"topics": [await committed(topic, errors) for topic in request.topics]}

    def _may_commit(self, shard: Shard, request: Any, version: int) -> ErrorCode:
        group = shard.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            consumers = shard.consumers.get(request.group_id)
            if consumers is not None:
                return consumers.may_commit(request.member_id, generation, version, self._places(request))
            known = version >= _KNOWS_NO_GROUP_FROM
            no_group = ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
            return shard.may_commit_alone(request.group_id, generation, no_group)
        instance_id = getattr(request, "group_instance_id", None)
        error = group.may_commit(request.member_id, instance_id, generation, self._coordinator.now_ms())
        self._coordinator.arm(shard, group)
        return error

    def _places(self, request: Any) -> Iterator[Place]:
        """What is committed, by topic id; topics that are not there have errors of their own."""
        for topic in request.topics:
            for part in topic.partitions:
                topic_id = self._topics.topic_id(topic.name, part.partition_index)
                if topic_id is not None:
                    yield topic_id, part.partition_index

    async def wanted(self, request: Any) -> Wanted:
        """What OffsetCommit or TxnOffsetCommit is to commit, and what speaks against it, whoever commits."""
        wanted = Wanted({}, {})
        now_ms = self._coordinator.wall_ms()
        retention = getattr(request, "retention_time", None)
        keep_ms = -1 if retention is None else round(retention.total_seconds() * 1000)
        expire_ms = None if keep_ms < 0 else now_ms + keep_ms
        for topic in request.topics:
            async for part in in_turns(topic.partitions, _A_TURN):
                place = topic.name, part.partition_index
                error = wanted.errors[place] = self._check(topic.name, part)
                if error is ErrorCode.NONE:
                    wanted.good[place] = self._commit_of(topic.name, part, now_ms, expire_ms)
                else:
                    wanted.good.pop(place, None)
        return wanted

    def _commit_of(self, topic: str, part: Any, now_ms: int, expire_ms: int | None) -> Commit:
        epoch = getattr(part, "committed_leader_epoch", -1)
        return Commit(
            offset=part.committed_offset,
            leader_epoch=None if epoch < 0 else epoch,
            metadata=part.committed_metadata or "",
            commit_ms=now_ms,
            topic_id=self._topics.topic_id(topic, part.partition_index),
            expire_ms=expire_ms,
        )

    def look_again(self, wanted: Wanted) -> None:
        """Topics that have gone since are not there any more."""
        one_of = {place[0]: place for place in wanted.good}
        for topic, place in one_of.items():
            if self._topics.topic_id(*place) != wanted.good[place].topic_id:
                for gone in [place for place in wanted.good if place[0] == topic]:
                    del wanted.good[gone]
                    wanted.errors[gone] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _check(self, topic: str, part: Any) -> ErrorCode:
        if len(part.committed_metadata or "") > self._coordinator.limits.offset_metadata:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if self._topics.topic_id(topic, part.partition_index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    async def fetch(self, header: RequestHeader, request: Any) -> Fields:
        """Before version 8 one group, then many; no topics named: all that are there."""
        stable = getattr(request, "require_stable", False)
        if header.version >= 8:
            each = in_turns(request.groups, _A_TURN)
            return {"groups": [await self._fetch_group(group, stable=stable) async for group in each]}
        fields = await self._fetch_group(request, stable=stable)
        del fields["group_id"]
        if fields["error_code"] and header.version < _GROUP_ERROR_FROM:
            fields["topics"] = [_refused(topic, fields["error_code"]) for topic in request.topics]
        return fields

    async def _fetch_group(self, asked: Any, *, stable: bool) -> Fields:
        """*stable*: the asker wants to wait where an open transaction is about to commit."""
        group_id, topics = asked.group_id, asked.topics
        error = ErrorCode.NONE
        try:
            shard = await self._coordinator.shard(group_id)
            if group_id in shard.consumers:
                who = getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1)
                error = shard.consumers[group_id].may_fetch(*who)
        except NotReady:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            return _group(group_id, {}, error)
        known = shard.commits.get(group_id, {})
        if topics is None:
            wanted: dict[str, list[int]] = {}
            for name, index in sorted(known):
                wanted.setdefault(name, []).append(index)
        else:
            wanted = {topic.name: list(topic.partition_indexes) for topic in topics}
        rows = {
            name: [
                _none(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                if stable and CommitKey(group_id, name, index) in shard.pending
                else self._shown(name, index, known.get((name, index)))
                async for index in in_turns(indexes, _A_TURN)
            ]
            for name, indexes in wanted.items()
        }
        return _group(group_id, rows, ErrorCode.NONE)

    def _shown(self, topic: str, index: int, commit: Commit | None) -> Fields:
        if commit is None or self._of_an_older_topic(topic, index, commit):
            return _none(index, ErrorCode.NONE)
        return {
            "partition_index": index,
            "committed_offset": commit.offset,
            "committed_leader_epoch": -1 if commit.leader_epoch is None else commit.leader_epoch,
            "metadata": commit.metadata,
            "error_code": ErrorCode.NONE,
        }

    def _of_an_older_topic(self, topic: str, index: int, commit: Commit) -> bool:
        """A topic that was deleted and made again starts without offsets."""
        current = self._topics.topic_id(topic, index)
        return not {None, NO_ID} & {current, commit.topic_id} and current != commit.topic_id


def not_kept(why: NotReady | NoRoom | GroupTooLarge, group_id: str) -> ErrorCode:
    """What the committer hears whose offsets could not be written."""
    if isinstance(why, NotReady):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.warning("offsets refused", extra={"group": group_id, "why": str(why)})
    return ErrorCode.POLICY_VIOLATION if isinstance(why, NoRoom) else ErrorCode.UNKNOWN_SERVER_ERROR


async def committed(topic: Any, errors: Mapping[tuple[str, int], ErrorCode]) -> Fields:
    rows: list[Fields] = []
    async for part in in_turns(topic.partitions, _A_TURN):
        index = part.partition_index
        rows.append({"partition_index": index, "error_code": errors[topic.name, index]})
    return {"name": topic.name, "partitions": rows}


def _none(index: int, error: object) -> Fields:
    return {"partition_index": index, **_NOTHING, "error_code": error}


def _refused(topic: Any, error: object) -> Fields:
    return {"name": topic.name, "partitions": [_none(index, error) for index in topic.partition_indexes]}


def _group(group_id: str, rows: Mapping[str, list[Fields]], error: ErrorCode) -> Fields:
    topics = [{"name": name, "partitions": partitions} for name, partitions in rows.items()]
    return {"group_id": group_id, "topics": topics, "error_code": error}
