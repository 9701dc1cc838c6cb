"""One group and a clock, for tests of the state machine."""

import itertools

from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import (
    Action,
    GroupLimits,
    Join,
    JoinAnswer,
    Persist,
    Protocols,
    State,
    Sync,
    SyncAnswer,
)
from tierd.wire.errors import ErrorCode

RANGE: Protocols = (("range", b"r"), ("sticky", b"s"))
SESSION, REBALANCE = 10_000, 60_000
_ids = itertools.count(1)


class Cluster:
    """A group and a clock; answers are kept by ticket."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.group = Group("g", limits or GroupLimits())
        self.now = 0
        self.answers: dict[object, JoinAnswer | SyncAnswer] = {}
        self.persisted = 0

    def did(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Persist):
                self.persisted += 1
            else:
                assert action.ticket not in self.answers, "answered twice"
                self.answers[action.ticket] = action.answer

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        kind: str = "consumer",
        id_required: bool = False,
        knows_skip: bool = True,
    ) -> str:
        """The ticket."""
        ticket = f"join{next(_ids)}"
        ask = Join(
            ticket=ticket,
            member_id=member_id,
            fresh_id=f"m{next(_ids)}",
            instance_id=instance,
            client_id="c",
            client_host="/",
            session_timeout_ms=SESSION,
            rebalance_timeout_ms=REBALANCE,
            protocol_type=kind,
            protocols=protocols,
            id_required=id_required,
            knows_skip=knows_skip,
        )
        self.did(self.group.join(ask, self.now))
        return ticket

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> str:
        ticket = f"sync{next(_ids)}"
        ask = Sync(
            ticket=ticket,
            member_id=member_id,
            instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=None,
            protocol=protocol,
            assignments=assignments or {},
        )
        self.did(self.group.sync(ask, self.now))
        return ticket

    def pass_time(self, by_ms: int) -> None:
        """Tick whenever the group wants to be woken."""
        end = self.now + by_ms
        while self.group.wake_ms is not None and self.group.wake_ms <= end:
            self.now = max(self.now, self.group.wake_ms)
            self.did(self.group.tick(self.now))
            assert self.group.wake_ms is None or self.group.wake_ms > self.now, "would tick for ever"
        self.now = end

    def joined(self, ticket: object) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: object) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def beat(self, member_id: str, instance: str | None = None) -> ErrorCode:
        return self.group.heartbeat(member_id, instance, self.group.generation, self.now)

    def settle(self, size: int = 2) -> list[str]:
        """A stable group of *size* dynamic members; the leader comes first."""
        first = self.joined(self.join()).member_id
        members = [first]
        tickets = [self.join() for _ in range(size - 1)]
        again = self.join(first)
        members += [self.joined(ticket).member_id for ticket in tickets]
        assert self.joined(again).leader == first
        syncs = [self.sync(member) for member in members[1:]]
        assert not any(ticket in self.answers for ticket in syncs)
        self.sync(first, {member: member.encode() for member in members})
        assert [self.synced(ticket).assignment for ticket in syncs] == [member.encode() for member in members[1:]]
        assert self.group.state is State.STABLE
        return members
