"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: requests of any served version in, plain values out."""

import logging
import uuid
from collections.abc import Callable
from typing import Any, Final

from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.assign import assignor_of
from tierd.broker.groups.consumer.group import ConsumerGroup
from tierd.broker.groups.consumer.groups import ConsumerGroups
from tierd.broker.groups.consumer.model import AWAY, JOINING, LEAVING, NOTHING, Beat, ConsumerMember, Places, Refused
from tierd.broker.groups.consumer.patterns import check_pattern
from tierd.broker.groups.coordinator import Coordinator, NotReady
from tierd.broker.groups.handlers import Handler
from tierd.broker.groups.ports import Topics
from tierd.broker.operations import GROUP_OPERATIONS, NOT_ASKED
from tierd.broker.turns import in_turns
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

Fields = dict[str, object]

_NAMES_ITSELF_FROM: Final = 1
"""Before, a member that joins is given its id."""
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_A_TURN: Final = 50
"""Groups of one request looked at before others are served; named more than once, they are shown once."""


class ConsumerHandlers:
    """One method per API."""

    def __init__(
        self,
        coordinator: Coordinator,
        groups: ConsumerGroups,
        topics: Topics,
        *,
        new_id: Callable[[], str] = lambda: str(Uuid(uuid.uuid4().bytes)),
        sees: Callable[[RequestHeader], Callable[[str], bool]] = lambda header: lambda topic: True,
    ) -> None:
        """*sees*: which topics the sender of a request may be shown."""
        self._coordinator = coordinator
        self._groups = groups
        self._topics = topics
        self._new_id = new_id
        self._sees = sees

    def table(self) -> dict[ApiKey, Handler]:
        return {ApiKey.CONSUMER_GROUP_HEARTBEAT: self.heartbeat, ApiKey.CONSUMER_GROUP_DESCRIBE: self.describe}

    async def heartbeat(self, header: RequestHeader, request: Any) -> Fields:
        interval_ms = self._coordinator.limits.consumer_heartbeat_ms
        try:
            _check(request, header.version)
            member_id = request.member_id or self._new_id()
            heard = await self._groups.beat(request.group_id, _beat(header, request, member_id), self._sees(header))
        except Refused as error:
            log.debug("heartbeat refused", extra={"group": request.group_id, "why": str(error)})
            return {"error_code": error.code, "error_message": str(error)}
        if heard is None:
            return {"error_code": ErrorCode.NONE, "member_id": member_id, "member_epoch": request.member_epoch}
        shown = heard.moved or request.member_epoch == JOINING or _is_full(request)
        return {
            "error_code": ErrorCode.NONE,
            "member_id": member_id,
            "member_epoch": heard.member.epoch,
            "heartbeat_interval": interval_ms,
            "assignment": {"topic_partitions": _by_topic(heard.member.assigned)} if shown else None,
        }

    async def describe(self, header: RequestHeader, request: Any) -> Fields:
        operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
        rows = [await self._described(name) async for name in in_turns(dict.fromkeys(request.group_ids), _A_TURN)]
        shown = [{**row, "authorized_operations": NOT_ASKED if row["error_code"] else operations} for row in rows]
        return {"groups": shown}

    async def _described(self, group_id: str) -> Fields:
        try:
            shard = await self._coordinator.shard(group_id)
        except NotReady as error:
            return _refused(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        group = shard.consumers.get(group_id)
        if group is not None:
            return self._shown(group)
        other = group_id in shard.groups or shard.keeps_offsets(group_id)
        why = f"Group {group_id} is not a consumer group." if other else f"Group {group_id} not found."
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, why)

    def _shown(self, group: ConsumerGroup) -> Fields:
        state = group.state
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "group_id": group.id,
            "group_state": state.name,
            "group_epoch": state.epoch,
            "assignment_epoch": state.assignment_epoch,
            "assignor_name": assignor_of(state.members),
            "members": [
                self._member(member, state.target.get(member.id, NOTHING)) for member in state.members.values()
            ],
        }

    def _member(self, member: ConsumerMember, target: Places) -> Fields:
        return {
            "member_id": member.id,
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topics),
            "subscribed_topic_regex": member.pattern,
            "assignment": {"topic_partitions": self._named(member.assigned | member.revoking)},
            "target_assignment": {"topic_partitions": self._named(target)},
            "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
        }

    def _named(self, places: Places) -> list[Fields]:
        """A topic that is gone has no name."""
        rows = ((row, self._topics.name_of(Uuid(row["topic_id"].bytes))) for row in _by_topic(places))
        return [{**row, "topic_name": name} for row, name in rows if name is not None]


def _check(request: Any, version: int) -> None:
    """What a request must say for itself, whatever the group. Raises Refused."""
    epoch: int = request.member_epoch
    wrong = [
        (not request.group_id, "GroupId can't be empty."),
        (request.instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (not request.member_id and (version >= _NAMES_ITSELF_FROM or epoch != JOINING), "MemberId can't be empty."),
        (epoch == JOINING and _timeout_ms(request) is None, "RebalanceTimeoutMs must be provided in first request."),
        (epoch == JOINING and request.topic_partitions != (), "TopicPartitions must be empty when (re-)joining."),
        (epoch == JOINING and not _subscribes(request), "SubscribedTopicNames must be set in first request."),
        (epoch == AWAY and request.instance_id is None, "InstanceId can't be null."),
        (epoch < AWAY, "MemberEpoch is invalid."),
    ]
    for is_so, why in wrong:
        if is_so:
            raise Refused(ErrorCode.INVALID_REQUEST, why)
    pattern = _pattern(request)
    if pattern and epoch > LEAVING:
        check_pattern(pattern)


def _pattern(request: Any) -> str | None:
    """None: not said, or not known to that version."""
    pattern: str | None = getattr(request, "subscribed_topic_regex", None)
    return pattern


def _subscribes(request: Any) -> bool:
    return request.subscribed_topic_names is not None or bool(_pattern(request))


def _is_full(request: Any) -> bool:
    """A member that says everything again wants to hear everything."""
    told = request.subscribed_topic_names is not None and request.topic_partitions is not None
    return told and _timeout_ms(request) is not None


def _timeout_ms(request: Any) -> int | None:
    value = round(request.rebalance_timeout.total_seconds() * 1000)
    return None if value < 0 else value


def _beat(header: RequestHeader, request: Any, member_id: str) -> Beat:
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return Beat(
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=header.client_id or "",
        client_host=header.client_host,
        rebalance_timeout_ms=_timeout_ms(request),
        topics=None if topics is None else frozenset(topics),
        pattern=_pattern(request),
        assignor=request.server_assignor,
        owned=None if owned is None else frozenset(_places(owned)),
    )


def _places(rows: Any) -> list[tuple[Uuid, int]]:
    return [(Uuid(row.topic_id.bytes), n) for row in rows if row.topic_id is not None for n in row.partitions]


def _by_topic(places: Places) -> list[dict[str, Any]]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    return [{"topic_id": uuid.UUID(bytes=key.raw), "partitions": partitions} for key, partitions in topics.items()]


def _refused(group_id: str, error: ErrorCode, why: str) -> Fields:
    return {
        "group_id": group_id,
        "error_code": error,
        "error_message": why,
        "assignor_name": "",
        "members": (),
    }
