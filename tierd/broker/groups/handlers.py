"""The group APIs: kio requests of any served version in, plain values for `wire.control.make_response` out."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tierd.broker.groups.coordinator import Coordinator, NotReady
from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import Join, JoinAnswer, Sync, SyncAnswer
from tierd.broker.groups.offset_handlers import OffsetHandlers
from tierd.broker.groups.ports import Nodes, Topics
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Fields = dict[str, object]
Handler = Callable[[RequestHeader, Any], Awaitable[Mapping[str, object]]]

_GROUP, _TRANSACTION = 0, 1


class GroupHandlers:
    """One method per API; each gets a decoded request and gives the fields of its answer."""

    def __init__(
        self,
        coordinator: Coordinator,
        topics: Topics,
        nodes: Nodes,
        *,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._coordinator = coordinator
        self._nodes = nodes
        self._new_id = new_id
        self._offsets = OffsetHandlers(coordinator, topics)

    def table(self) -> dict[ApiKey, Handler]:
        """What a dispatcher needs."""
        return {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.OFFSET_COMMIT: self._offsets.commit,
            ApiKey.OFFSET_FETCH: self._offsets.fetch,
        }

    async def find_coordinator(self, header: RequestHeader, request: Any) -> Fields:
        key_type = getattr(request, "key_type", _GROUP)
        if header.version < 4:
            found = self._found(key_type, request.key)
            # Kafka says "NONE" here and nothing in newer versions (recorded).
            message = "NONE" if found["error_code"] == ErrorCode.NONE else found["error_message"]
            return {**found, "error_message": message}
        return {"coordinators": [{"key": key, **self._found(key_type, key)} for key in request.coordinator_keys]}

    def _found(self, key_type: int, key: str) -> Fields:
        if key_type not in (_GROUP, _TRANSACTION):
            return _nobody(ErrorCode.INVALID_REQUEST, f"key type {key_type} is not served")
        if not key and key_type == _GROUP:
            return _nobody(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
        node = self._nodes.coordinator(key_type, key)
        if node is None:
            return _nobody(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no node is responsible now")
        node_id, host, port = node
        return {"error_code": ErrorCode.NONE, "error_message": "", "node_id": node_id, "host": host, "port": port}

    async def join_group(self, header: RequestHeader, request: Any) -> Fields:
        """Waits until the group has gathered. Cancelling it means that the client is gone."""
        answer = self._refuse_join(request) or await self._join(header, request)
        missing = None if header.version >= 7 else ""
        return {
            "error_code": answer.error,
            "generation_id": -1 if answer.generation is None else answer.generation,
            "protocol_type": answer.protocol_type,
            "protocol_name": missing if answer.protocol is None else answer.protocol,
            "leader": answer.leader,
            "skip_assignment": answer.skip_assignment,
            "member_id": answer.member_id,
            "members": [
                {"member_id": member.id, "group_instance_id": member.instance_id, "metadata": member.metadata}
                for member in answer.members
            ],
        }

    def _refuse_join(self, request: Any) -> JoinAnswer | None:
        times = self._coordinator.times
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not times.min_session_timeout_ms <= _ms(request.session_timeout) <= times.max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif not request.protocol_type or not request.protocols:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        else:
            return None
        return JoinAnswer(error=error, member_id=request.member_id)

    async def _join(self, header: RequestHeader, request: Any) -> JoinAnswer:
        try:
            shard = await self._coordinator.shard(request.group_id)
            group = shard.groups.get(request.group_id)
            if group is None:
                if request.member_id:
                    return JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
                group = self._coordinator.create(shard, request.group_id)
        except NotReady:
            return JoinAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=request.member_id)
        ticket: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        instance_id = getattr(request, "group_instance_id", None)
        ask = Join(
            ticket=ticket,
            member_id=request.member_id,
            fresh_id=f"{instance_id or header.client_id or ''}-{self._new_id()}",
            instance_id=instance_id,
            client_id=header.client_id or "",
            client_host=header.client_host,
            session_timeout_ms=_ms(request.session_timeout),
            rebalance_timeout_ms=_ms(getattr(request, "rebalance_timeout", request.session_timeout)),
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            id_required=header.version >= 4,
            knows_skip=header.version >= 9,
        )
        self._coordinator.act(shard, group, group.join(ask, self._coordinator.now_ms()))
        try:
            return await ticket
        except asyncio.CancelledError:
            group.abandon(ticket, self._coordinator.now_ms())
            self._coordinator.arm(shard, group)
            raise

    async def sync_group(self, header: RequestHeader, request: Any) -> Fields:
        """Waits until the leader has spoken. Cancelling it means that the client is gone."""
        if request.group_id:
            answer = await self._sync(request)
        else:
            answer = SyncAnswer(error=ErrorCode.INVALID_GROUP_ID)
        return {
            "error_code": answer.error,
            "protocol_type": answer.protocol_type,
            "protocol_name": answer.protocol,
            "assignment": answer.assignment,
        }

    async def _sync(self, request: Any) -> SyncAnswer:
        try:
            shard = await self._coordinator.shard(request.group_id)
        except NotReady:
            return SyncAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group = shard.groups.get(request.group_id)
        if group is None:
            return SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID)
        ticket: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        ask = Sync(
            ticket=ticket,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
            protocol_type=getattr(request, "protocol_type", None),
            protocol=getattr(request, "protocol_name", None),
            assignments={row.member_id: row.assignment for row in request.assignments},
        )
        self._coordinator.act(shard, group, group.sync(ask, self._coordinator.now_ms()))
        try:
            return await ticket
        except asyncio.CancelledError:
            group.abandon(ticket, self._coordinator.now_ms())
            self._coordinator.arm(shard, group)
            raise

    async def heartbeat(self, header: RequestHeader, request: Any) -> Fields:
        if not request.group_id:
            return {"error_code": ErrorCode.INVALID_GROUP_ID}
        try:
            shard = await self._coordinator.shard(request.group_id)
        except NotReady:
            return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        group = shard.groups.get(request.group_id)
        if group is None:
            return {"error_code": ErrorCode.UNKNOWN_MEMBER_ID}
        instance_id = getattr(request, "group_instance_id", None)
        now_ms = self._coordinator.now_ms()
        error = group.heartbeat(request.member_id, instance_id, request.generation_id, now_ms)
        self._coordinator.arm(shard, group)
        return {"error_code": error}

    async def leave_group(self, header: RequestHeader, request: Any) -> Fields:
        """Before version 3 one member leaves and the answer is its error; then many, each with its own."""
        if not request.group_id:
            return {"error_code": ErrorCode.INVALID_GROUP_ID}
        try:
            shard = await self._coordinator.shard(request.group_id)
        except NotReady:
            return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        group = shard.groups.get(request.group_id)
        now_ms = self._coordinator.now_ms()

        def leave(group: Group | None, member_id: str, instance_id: str | None) -> ErrorCode:
            if group is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            error, actions = group.leave(member_id, instance_id, now_ms)
            self._coordinator.act(shard, group, actions)
            return error

        if header.version < 3:
            return {"error_code": leave(group, request.member_id, None)}
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": leave(group, member.member_id, member.group_instance_id),
            }
            for member in request.members
        ]
        return {"error_code": ErrorCode.NONE, "members": members}


def _ms(time: Any) -> int:
    milliseconds: int = round(time.total_seconds() * 1000)
    return milliseconds


def _nobody(error: ErrorCode, message: str) -> Fields:
    return {"error_code": error, "error_message": message, "node_id": -1, "host": "", "port": -1}
