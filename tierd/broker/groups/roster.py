"""Who is in a group and until when each is believed: the data below the state machine."""

from tierd.broker.groups import weight
from tierd.broker.groups.model import (
    NEXT,
    Join,
    JoinAnswer,
    JoinedMember,
    Member,
    State,
    StoredGroup,
    StoredMember,
    SyncAnswer,
    Ticket,
)
from tierd.broker.groups.vote import Ballots, common_protocols
from tierd.wire.errors import ErrorCode


class Roster:
    """Members, ids given out, deadlines. `machine.Group` decides what happens."""

    id: str

    def __init__(self) -> None:
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.changed_ms: int | None = None
        """Wall clock of the last change."""
        self.members: dict[str, Member] = {}
        self.wake_ms: int | None = None
        """When `tick` must be called at the latest; None: nothing is timed."""
        self._ballots = Ballots()
        self._static: dict[str, str] = {}
        self._pending: dict[str, int] = {}  # ids given out but not joined yet, and when they lapse
        self._unsynced: set[str] = set()
        self._join_deadline: int | None = None
        self._sync_deadline: int | None = None

    def load(self, stored: StoredGroup, now_ms: int) -> None:
        """Become the group that was stored: members get a whole session to be heard of again."""
        self.generation, self.changed_ms = stored.generation, stored.changed_ms
        self.protocol_type = stored.protocol_type or None
        self.protocol, self.leader = stored.protocol, stored.leader
        for row in stored.members:
            member = Member(
                row.id,
                row.instance_id,
                row.client_id,
                row.client_host,
                row.session_timeout_ms,
                row.rebalance_timeout_ms,
                ((stored.protocol or "", row.subscription),),
                row.assignment,
                is_new=False,
            )
            self._enter(member)
            self._touch(member, now_ms)
        self.state = State.STABLE if self.members else State.EMPTY

    def stored(self) -> StoredGroup:
        """The group as it is to be written now."""
        protocol = self.protocol if self.members else None
        return StoredGroup(
            self.protocol_type or "",
            self.generation,
            protocol,
            self.leader if self.members else None,
            tuple(
                StoredMember(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(protocol or ""),
                    member.assignment,
                )
                for member in self.members.values()
            ),
        )

    def abandon(self, ticket: Ticket, now_ms: int) -> None:
        """The request behind *ticket* will never be read: its connection is gone. The member keeps its session, and has
        joined if that is what it was about. Call `tick` then."""
        for member in self.members.values():
            if member.join is ticket:
                member.join, member.gone = None, True
                self._touch(member, now_ms)
            if member.sync is ticket:
                member.sync = None
                self._touch(member, now_ms)

    # memory

    @property
    def idle(self) -> bool:
        """Nobody is in it or about to be."""
        return self.state is State.EMPTY and not self._pending

    def held_bytes(self) -> int:
        """What the group takes in memory, by the reckoning of `weight`."""
        pending = sum(weight.PENDING_BYTES + len(member_id) for member_id in self._pending)
        members = sum(weight.held_bytes(member, member.id) + len(member.assignment) for member in self.members.values())
        return weight.GROUP_BYTES + len(self.id) + pending + members

    def growth_bytes(self, ask: Join) -> int:
        """What the group takes more once *ask* is granted; negative where it takes less."""
        if not ask.member_id and ask.instance_id is None and ask.id_required:
            return weight.PENDING_BYTES + len(ask.fresh_id)
        known = self._asker(ask)
        before = 0 if known is None else weight.held_bytes(known, known.id)
        return weight.held_bytes(ask, ask.member_id or ask.fresh_id) - before

    def stored_bytes(self, ask: Join) -> int:
        """How large the group's record gets, before the leader assigns anything, when *ask* is granted."""
        known = self._asker(ask)
        others = sum(weight.stored_bytes(member, member.id) for member in self.members.values() if member is not known)
        return others + weight.stored_bytes(ask, ask.member_id or ask.fresh_id)

    def _asker(self, ask: Join) -> Member | None:
        member_id = ask.member_id or self._static.get(ask.instance_id or "", "")
        return self.members.get(member_id)

    def _enter(self, member: Member) -> None:
        self.members[member.id] = member
        self._ballots.add(member)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id

    def _exit(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        self._ballots.remove(member)
        return member

    def _identify(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            current = self._static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return None if current == member_id else ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _has_place_for(self, ask: Join, most: int) -> bool:
        """While members come back those who are there count, so that a limit made smaller sends the last ones away."""
        known = self._asker(ask)
        if self.state is State.PREPARING:
            joined = sum(member.join is not None or member.gone for member in self.members.values())
            return (known is not None and known.join is not None) or joined < most
        return known is not None or len(self.members) < most

    def _speaks_our_protocols(self, ask: Join) -> bool:
        if not self.members:
            return bool(ask.protocol_type and ask.protocols)
        common = common_protocols(self._ballots.lists)
        return ask.protocol_type == self.protocol_type and any(name in common for name, _ in ask.protocols)

    def _joined(self, member: Member, *, leader: str | None = None, skip_assignment: bool = False) -> JoinAnswer:
        shown = leader if leader is not None else self.leader or ""
        members: tuple[JoinedMember, ...] = ()
        if shown == member.id:
            protocol = self.protocol or ""
            members = tuple(
                JoinedMember(other.id, other.instance_id, other.metadata(protocol)) for other in self.members.values()
            )
        return JoinAnswer(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=shown,
            member_id=member.id,
            members=members,
            skip_assignment=skip_assignment,
        )

    def _synced(self, member: Member) -> SyncAnswer:
        return SyncAnswer(protocol_type=self.protocol_type, protocol=self.protocol, assignment=member.assignment)

    def _longest_rebalance(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _is_dead(self, member: Member, now_ms: int) -> bool:
        """A new member that hangs up has read nothing yet, and may not even know its id."""
        return (member.gone and member.is_new) or (self._mortal(member) and member.deadline_ms <= now_ms)

    def _mortal(self, member: Member) -> bool:
        """Whether silence counts: who waits for us is not silent, unless its very first join takes for ever."""
        if member.join is not None:
            return member.is_new
        return member.sync is None

    def _touch(self, member: Member, now_ms: int) -> None:
        if not (member.is_new and member.join is not None):
            member.deadline_ms = self._soon(now_ms + member.session_timeout_ms)

    def _soon(self, deadline_ms: int) -> int:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    def _set_wake(self) -> None:
        times = list(self._pending.values())
        times += [member.deadline_ms for member in self.members.values() if self._mortal(member)]
        times += [time for time in (self._join_deadline, self._sync_deadline) if time is not None]
        self.wake_ms = min(times, default=None)

    def _become(self, state: State) -> None:
        assert state in NEXT[self.state], f"group {self.id}: {self.state} -> {state}"
        self.state = state
