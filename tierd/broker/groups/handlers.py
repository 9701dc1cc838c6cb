"""The group APIs: kio requests of any served version in, plain values for `wire.control.make_response` out."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from tierd.broker.groups.consumer.mixed import MixedGroups
from tierd.broker.groups.coordinator import Coordinator, GroupTooLarge, NoRoom, NotReady
from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import Join, JoinAnswer, Sync, SyncAnswer
from tierd.broker.groups.offset_handlers import OffsetHandlers
from tierd.broker.groups.ports import Nodes, Topics
from tierd.broker.groups.shard import Shard
from tierd.broker.groups.txn_offsets import TxnOffsets
from tierd.broker.transactions.ports import Verifier
from tierd.broker.turns import in_turns
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

Fields = dict[str, object]
Handler = Callable[[RequestHeader, Any], Awaitable[Mapping[str, object]]]

_Found = tuple[Shard, Group] | Shard | ErrorCode
"""A shard alone: the group is one of the consumer protocol."""
_Answer = TypeVar("_Answer", JoinAnswer, SyncAnswer)

_GROUP, _TRANSACTION = 0, 1
_A_TURN: Final = 200
"""Things of one request looked at before others are served."""
_MOST_PROTOCOLS: Final = 100
"""That one member speaks: every join of its group looks at all of them."""
_SYNC_NAMES_PROTOCOL_FROM: Final = 5


class GroupHandlers:
    """One method per API; each gets a decoded request and gives the fields of its answer."""

    def __init__(
        self,
        coordinator: Coordinator,
        topics: Topics,
        nodes: Nodes,
        *,
        verifier: Verifier,
        mixed: MixedGroups,
        sees: Callable[[RequestHeader], Callable[[str], bool]] = lambda header: lambda topic: True,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._coordinator = coordinator
        self._nodes = nodes
        self._new_id = new_id
        self._mixed = mixed
        self._sees = sees
        self._offsets = OffsetHandlers(coordinator, topics)
        self._txn_offsets = TxnOffsets(coordinator, self._offsets, verifier)

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
            ApiKey.TXN_OFFSET_COMMIT: self._txn_offsets,
        }

    async def find_coordinator(self, header: RequestHeader, request: Any) -> Fields:
        key_type = getattr(request, "key_type", _GROUP)
        if header.version < 4:
            found = self._found(key_type, request.key, header.session.listener)
            # Kafka says "NONE" here and nothing in newer versions (recorded).
            message = "NONE" if found["error_code"] == ErrorCode.NONE else found["error_message"]
            return {**found, "error_message": message}
        listener = header.session.listener
        each = in_turns(request.coordinator_keys, _A_TURN)
        rows = [{"key": key, **self._found(key_type, key, listener)} async for key in each]
        return {"coordinators": rows}

    def _found(self, key_type: int, key: str, listener: str) -> Fields:
        if key_type not in (_GROUP, _TRANSACTION):
            return _nobody(ErrorCode.INVALID_REQUEST, f"key type {key_type} is not served")
        if not key and key_type == _GROUP:
            return _nobody(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
        node = self._nodes.coordinator(key_type, key, listener)
        if node is None:
            return _nobody(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no node is responsible now")
        node_id, host, port = node
        return {"error_code": ErrorCode.NONE, "error_message": "", "node_id": node_id, "host": host, "port": port}

    async def join_group(self, header: RequestHeader, request: Any) -> Fields:
        """Waits until the group has gathered."""
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
        limits = self._coordinator.limits
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif not limits.min_session_timeout_ms <= _ms(request.session_timeout) <= limits.max_session_timeout_ms:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        elif not request.protocol_type or not 0 < len(request.protocols) <= _MOST_PROTOCOLS:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        else:
            return None
        return JoinAnswer(error=error, member_id=request.member_id)

    async def _join(self, header: RequestHeader, request: Any) -> JoinAnswer:
        ticket: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        ask = self._asked(header, request, ticket)
        try:
            shard = await self._coordinator.shard(request.group_id)
            consumers = shard.consumers.get(request.group_id)
            if consumers is not None and consumers.state.members:
                answer = self._mixed.join(shard, request.group_id, ask, self._sees(header))
                if answer is not None:
                    return answer
            if request.member_id and request.group_id not in shard.groups:
                return JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            if request.group_id in shard.consumers:
                self._coordinator.forget(shard, (), [request.group_id])
            group = self._coordinator.admit(shard, request.group_id, ask)
        except NotReady:
            return JoinAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=request.member_id)
        except (GroupTooLarge, NoRoom) as error:
            facts = {"group": request.group_id, "client": header.client_id, "why": str(error)}
            log.warning("join refused", extra=facts)
            # The first is what Kafka answers once the group is to be written.
            code = ErrorCode.UNKNOWN_SERVER_ERROR if isinstance(error, GroupTooLarge) else ErrorCode.POLICY_VIOLATION
            return JoinAnswer(error=code, member_id=request.member_id)
        self._coordinator.act(shard, group, group.join(ask, self._coordinator.now_ms()))
        answer = await self._decided(shard, group, ticket)
        if answer.error not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self._recount(shard, group)
        return answer

    def _asked(self, header: RequestHeader, request: Any, ticket: "asyncio.Future[JoinAnswer]") -> Join:
        instance_id = getattr(request, "group_instance_id", None)
        return Join(
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

    async def _decided(self, shard: Shard, group: Group, ticket: "asyncio.Future[_Answer]") -> _Answer:
        """The machine's answer. Cancelling it means that the client is gone."""
        try:
            return await ticket
        except asyncio.CancelledError:
            now_ms = self._coordinator.now_ms()
            group.abandon(ticket, now_ms)
            self._coordinator.act(shard, group, group.tick(now_ms))
            self._recount(shard, group)
            raise

    def _recount(self, shard: Shard, group: Group) -> None:
        """Unless the group is gone, and with it what was put down to it."""
        if shard.groups.get(group.id) is group:
            self._coordinator.recount(group)

    async def _find(self, group_id: str) -> _Found:
        """The group, or why there is none."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            shard = await self._coordinator.shard(group_id)
        except NotReady:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        group = shard.groups.get(group_id)
        if group is not None:
            return shard, group
        return shard if group_id in shard.consumers else ErrorCode.UNKNOWN_MEMBER_ID

    async def sync_group(self, header: RequestHeader, request: Any) -> Fields:
        """Waits until the leader has spoken."""
        if header.version >= _SYNC_NAMES_PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
            return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
        found = await self._find(request.group_id)
        answer = SyncAnswer(error=found) if isinstance(found, ErrorCode) else await self._sync(found, request)
        return {
            "error_code": answer.error,
            "protocol_type": answer.protocol_type,
            "protocol_name": answer.protocol,
            "assignment": answer.assignment,
        }

    async def _sync(self, found: tuple[Shard, Group] | Shard, request: Any) -> SyncAnswer:
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
        if isinstance(found, Shard):
            return self._mixed.sync(found, request.group_id, ask)
        shard, group = found
        self._coordinator.act(shard, group, group.sync(ask, self._coordinator.now_ms()))
        return await self._decided(shard, group, ticket)

    async def heartbeat(self, header: RequestHeader, request: Any) -> Fields:
        found = await self._find(request.group_id)
        if isinstance(found, ErrorCode):
            return {"error_code": found}
        instance_id = getattr(request, "group_instance_id", None)
        if isinstance(found, Shard):
            who = request.member_id, instance_id, request.generation_id
            return {"error_code": self._mixed.heartbeat(found, request.group_id, *who)}
        shard, group = found
        now_ms = self._coordinator.now_ms()
        error = group.heartbeat(request.member_id, instance_id, request.generation_id, now_ms)
        self._coordinator.arm(shard, group)
        return {"error_code": error}

    async def leave_group(self, header: RequestHeader, request: Any) -> Fields:
        """Before version 3 one member leaves and the answer is its error; then many, each with its own."""
        found = await self._find(request.group_id)
        if header.version < 3:
            leaving = [(request.member_id, None)]
        elif isinstance(found, ErrorCode) and found is not ErrorCode.UNKNOWN_MEMBER_ID:
            return {"error_code": found}
        else:
            leaving = [(member.member_id, member.group_instance_id) for member in request.members]
        errors = [self._leave(found, request.group_id, *member) async for member in in_turns(leaving, _A_TURN)]
        if isinstance(found, tuple):
            self._recount(*found)
        if header.version < 3:
            return {"error_code": errors[0]}
        members = [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(leaving, errors, strict=True)
        ]
        return {"error_code": ErrorCode.NONE, "members": members}

    def _leave(self, found: _Found, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        if isinstance(found, ErrorCode):
            return found
        if isinstance(found, Shard):
            gone = group_id not in found.consumers
            return ErrorCode.UNKNOWN_MEMBER_ID if gone else self._mixed.leave(found, group_id, member_id, instance_id)
        shard, group = found
        error, actions = group.leave(member_id, instance_id, self._coordinator.now_ms())
        self._coordinator.act(shard, group, actions)
        return error


def _ms(time: Any) -> int:
    milliseconds: int = round(time.total_seconds() * 1000)
    return milliseconds


def _nobody(error: ErrorCode, message: str) -> Fields:
    return {"error_code": error, "error_message": message, "node_id": -1, "host": "", "port": -1}
