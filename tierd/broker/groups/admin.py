"""What administrators ask of groups: ListGroups, DescribeGroups, DeleteGroups, OffsetDelete.

Offsets may be kept under a name that no consumer ever joined; such a group is empty and has no protocol.
"""

from collections.abc import Iterator
from typing import Any, Final

from tierd.broker.groups.codec import CommitKey
from tierd.broker.groups.coordinator import Coordinator, NotReady
from tierd.broker.groups.embedded import CONSUMER
from tierd.broker.groups.handlers import Handler
from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import Member, State
from tierd.broker.groups.ports import Topics
from tierd.broker.groups.shard import Shard
from tierd.broker.groups.subscribed import reads
from tierd.broker.operations import GROUP_OPERATIONS, NOT_ASKED
from tierd.broker.turns import in_turns
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Fields = dict[str, object]

_CLASSIC, _CONSUMER = "classic", "consumer"
_A_TURN: Final = 50
"""Groups of one request looked at before others are served; named more than once, they are shown once."""
_SAYS_NOT_FOUND_FROM: Final = 6
"""DescribeGroups: before, a group that is not there is a dead one."""


class GroupAdmin:
    """One method per API; each gets a decoded request and gives the fields of its answer."""

    def __init__(self, coordinator: Coordinator, topics: Topics) -> None:
        self._coordinator = coordinator
        self._topics = topics

    def table(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.LIST_GROUPS: self.list,
            ApiKey.DESCRIBE_GROUPS: self.describe,
            ApiKey.DELETE_GROUPS: self.delete,
            ApiKey.OFFSET_DELETE: self.delete_offsets,
        }

    async def list(self, header: RequestHeader, request: Any) -> Fields:
        """All groups, or those of the states and types asked for; neither is told by case."""
        states = {state.lower() for state in getattr(request, "states_filter", ())}
        types = {kind.lower() for kind in getattr(request, "types_filter", ())}
        try:
            shards = await self._coordinator.load_all()
        except NotReady:
            return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "groups": ()}
        rows = [row for shard in shards for row in _listed(shard)]
        shown = [row for row in rows if not types or row["group_type"] in types]
        shown = [row for row in shown if not states or row["group_state"].lower() in states]
        return {"error_code": ErrorCode.NONE, "groups": shown}

    async def describe(self, header: RequestHeader, request: Any) -> Fields:
        operations = GROUP_OPERATIONS if getattr(request, "include_authorized_operations", False) else NOT_ASKED
        groups = [
            {**await self._describe(group_id, header.version), "authorized_operations": operations}
            async for group_id in in_turns(dict.fromkeys(request.groups), _A_TURN)
        ]
        return {"groups": groups}

    async def _describe(self, group_id: str, version: int) -> Fields:
        try:
            shard = await self._coordinator.shard(group_id)
        except NotReady:
            return {"group_id": group_id, "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        group = shard.groups.get(group_id)
        if group is not None:
            return _described(group)
        if group_id not in shard.consumers and shard.keeps_offsets(group_id):
            return {"group_id": group_id, "group_state": State.EMPTY.value}
        missing: Fields = {"group_id": group_id, "group_state": State.DEAD.value}
        if version < _SAYS_NOT_FOUND_FROM:
            return missing
        why = "is not a classic group" if group_id in shard.consumers else "not found"
        return {**missing, "error_code": ErrorCode.GROUP_ID_NOT_FOUND, "error_message": f"Group {group_id} {why}."}

    async def delete(self, header: RequestHeader, request: Any) -> Fields:
        """Only groups without members go, and their offsets with them."""
        each = in_turns(request.groups_names, _A_TURN)
        rows = [{"group_id": name, "error_code": await self._delete(name)} async for name in each]
        return {"results": rows}

    async def _delete(self, group_id: str) -> ErrorCode:
        try:
            shard = await self._coordinator.shard(group_id)
            group, offsets = shard.groups.get(group_id), shard.offsets_of(group_id)
            consumers = shard.consumers.get(group_id)
            if group is None and consumers is None and not offsets:
                return ErrorCode.GROUP_ID_NOT_FOUND
            if consumers is not None and consumers.state.members:
                return ErrorCode.NON_EMPTY_GROUP
            if group is not None and group.state is not State.EMPTY:
                return ErrorCode.NON_EMPTY_GROUP
            self._coordinator.forget(shard, offsets, [group_id])
        except NotReady:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    async def delete_offsets(self, header: RequestHeader, request: Any) -> Fields:
        """Of topics that no member reads; that there was none to delete is no error."""
        try:
            shard = await self._coordinator.shard(request.group_id)
        except NotReady:
            return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        refusal = _may_delete_offsets(shard, request.group_id)
        if refusal is not ErrorCode.NONE:
            return {"error_code": refusal}
        known = shard.offsets_of(request.group_id)
        errors = {
            (topic.name, part.partition_index): self._refusal(shard, request.group_id, topic.name, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        }
        wished = [CommitKey(request.group_id, *place) for place, error in errors.items() if error is ErrorCode.NONE]
        try:
            self._coordinator.forget(shard, [key for key in wished if key in known])
        except NotReady:
            return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        return {"error_code": ErrorCode.NONE, "topics": [_deleted(topic, errors) for topic in request.topics]}

    def _refusal(self, shard: Shard, group_id: str, topic: str, index: int) -> ErrorCode:
        if self._topics.topic_id(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        consumers = shard.consumers.get(group_id)
        read = consumers.reads(topic) if consumers is not None else reads(shard.groups.get(group_id), topic)
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if read else ErrorCode.NONE


def _listed(shard: Shard) -> Iterator[dict[str, str]]:
    for group_id in shard.names():
        group, consumers = shard.groups.get(group_id), shard.consumers.get(group_id)
        state = (State.EMPTY if group is None else group.state).value
        yield {
            "group_id": group_id,
            "protocol_type": CONSUMER if consumers else (None if group is None else group.protocol_type) or "",
            "group_state": consumers.state.name if consumers else state,
            "group_type": _CONSUMER if consumers else _CLASSIC,
        }


def _described(group: Group) -> Fields:
    """What members said of the protocol is shown once it is settled."""
    protocol = group.protocol if group.state is State.STABLE else None
    return {
        "group_id": group.id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol or "",
        "members": [_member(member, protocol) for member in group.members.values()],
    }


def _member(member: Member, protocol: str | None) -> Fields:
    return {
        "member_id": member.id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": b"" if protocol is None else member.metadata(protocol),
        "member_assignment": member.assignment,
    }


def _may_delete_offsets(shard: Shard, group_id: str) -> ErrorCode:
    group = shard.groups.get(group_id)
    if group is None:
        known = group_id in shard.consumers or shard.offsets_of(group_id)
        return ErrorCode.NONE if known else ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP  # nobody knows what its members read
    return ErrorCode.NONE


def _deleted(topic: Any, errors: dict[tuple[str, int], ErrorCode]) -> Fields:
    indexes = [part.partition_index for part in topic.partitions]
    rows = [{"partition_index": index, "error_code": errors[topic.name, index]} for index in indexes]
    return {"name": topic.name, "partitions": rows}
