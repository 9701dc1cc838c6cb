"""One group as a pure state machine: requests and time in, actions out. No clock, no file, no socket.

Invariants:
- Members hold offsets' right to commit only in the current generation; every completed rebalance raises it by one.
- A join is answered when all known members have asked again or their time is up; a sync when the leader has spoken.
- `wake_ms` is never later than the earliest deadline: heartbeats only move deadlines back, so it may be earlier.
"""

from tierd.broker.groups.model import (
    Action,
    Gathering,
    GroupLimits,
    Join,
    JoinAnswer,
    Member,
    Persist,
    Reply,
    State,
    StoredGroup,
    Sync,
    SyncAnswer,
    Ticket,
)
from tierd.broker.groups.roster import Roster
from tierd.broker.groups.vote import vote
from tierd.wire.errors import ErrorCode

_FOLLOWER_ASSIGNS_BYTES = 4096


class Group(Roster):
    """See the module. Loop thread only."""

    def __init__(self, group_id: str, limits: GroupLimits) -> None:
        super().__init__()
        self.id = group_id
        self.armed_ms: int | None = None
        """For whoever calls `tick`: the time for which that is arranged."""
        self.counted_bytes = 0
        """For whoever bounds the memory of all groups: what of it is put down to this one."""
        self._limits = limits
        self._gathering: Gathering | None = None
        self._out: list[Action] = []

    def load(self, stored: StoredGroup, now_ms: int) -> None:
        super().load(stored, now_ms)
        if len(self.members) > self._limits.max_size:
            self._rebalance(now_ms)

    # requests

    def join(self, ask: Join, now_ms: int) -> list[Action]:
        """The answer comes at once, or with a later call's actions."""
        error = self._join(ask, now_ms)
        if error is not None:
            self._reply(ask.ticket, JoinAnswer(error=error, member_id=ask.member_id))
        return self._drain()

    def sync(self, ask: Sync, now_ms: int) -> list[Action]:
        """The leader's call answers everybody."""
        error = self._sync(ask, now_ms)
        if error is not None:
            self._reply(ask.ticket, SyncAnswer(error=error))
        return self._drain()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        error = self._identify(member_id, instance_id)
        if error is not None:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._touch(self.members[member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> tuple[ErrorCode, list[Action]]:
        """Take out a member; a static one may be named by its instance alone."""
        if not member_id and instance_id is not None:
            member_id = self._static.get(instance_id, "")
        if self._pending.pop(member_id, None) is not None:
            self._try_complete(now_ms)
            return ErrorCode.NONE, self._drain()
        error = self._identify(member_id, instance_id)
        if error is not None:
            return error, []
        self._remove(member_id)
        self._rebalance(now_ms)
        return ErrorCode.NONE, self._drain()

    def may_commit(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int, *, in_transaction: bool = False
    ) -> ErrorCode:
        """Whether offsets may be committed under this identity; a plain commit counts as a sign of life."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE  # a consumer without a group, or an administrator
        if generation < 0 and not member_id and instance_id is None:
            # The group has members, a stranger must not move them; but old producers cannot say who they are.
            return ErrorCode.NONE if in_transaction else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._identify(member_id, instance_id)
        if error is not None:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if in_transaction:
            return ErrorCode.NONE
        if self.state is State.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._touch(self.members[member_id], now_ms)
        return ErrorCode.NONE

    # time

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due; call at `wake_ms` or later."""
        for member_id in [member_id for member_id, lapses in self._pending.items() if lapses <= now_ms]:
            del self._pending[member_id]
        dead = [member.id for member in self.members.values() if self._is_dead(member, now_ms)]
        if self._sync_deadline is not None and self._sync_deadline <= now_ms:
            dead += [member_id for member_id in self._unsynced if member_id not in dead]
            self._sync_deadline = None
        for member_id in dead:
            self._remove(member_id)
        if dead:
            self._rebalance(now_ms)
        elif self.state is State.PREPARING:
            self._try_complete(now_ms)
        if self._join_deadline is not None and self._join_deadline <= now_ms:
            self._join_time_is_up(now_ms)
        self._set_wake()
        return self._drain()

    # storage

    def start_over(self, now_ms: int) -> list[Action]:
        """Who is in it may not go on as if it were settled, so all join again."""
        if self.state is State.STABLE:
            self._rebalance(now_ms)
        return self._drain()

    def die(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> list[Action]:
        """The group is removed; whoever waits is told *error*, by default to look for a coordinator."""
        self._become(State.DEAD)
        for member in self.members.values():
            self._dismiss(member, error)
        for member_id in list(self.members):
            self._exit(member_id)
        self._static.clear()
        self._pending.clear()
        self.wake_ms = self._join_deadline = self._sync_deadline = None
        return self._drain()

    # joining

    def _join(self, ask: Join, now_ms: int) -> ErrorCode | None:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_place_for(ask, self._limits.max_size):
            self._turn_away(ask, now_ms)
            return None
        if not self._speaks_our_protocols(ask):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if ask.member_id:
            return self._join_known(ask, now_ms)
        if ask.instance_id is not None:
            old_id = self._static.get(ask.instance_id)
            if old_id is None:
                self._add(ask, ask.fresh_id, now_ms)
            else:
                self._replace_static(ask, old_id, now_ms)
        elif ask.id_required:
            self._pending[ask.fresh_id] = self._soon(now_ms + ask.session_timeout_ms)
            self._reply(ask.ticket, JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=ask.fresh_id))
        else:
            self._add(ask, ask.fresh_id, now_ms)
        return None

    def _join_known(self, ask: Join, now_ms: int) -> ErrorCode | None:
        if self._pending.pop(ask.member_id, None) is not None and ask.instance_id is None:
            self._add(ask, ask.member_id, now_ms)
            return None
        error = self._identify(ask.member_id, ask.instance_id)
        if error is not None:
            return error
        member = self.members[ask.member_id]
        settled = self.state is State.COMPLETING or (self.state is State.STABLE and member.id != self.leader)
        if settled and member.protocols == ask.protocols:
            # Its answer was lost: the same one again. A stable leader that joins again wants a rebalance.
            self._touch(member, now_ms)
            self._reply(ask.ticket, self._joined(member))
            return None
        self._update(member, ask, now_ms)
        self._rebalance(now_ms)
        return None

    def _turn_away(self, ask: Join, now_ms: int) -> None:
        """Kafka, too, takes out a member that comes back to a full group, and names no member in the answer."""
        self._pending.pop(ask.member_id, None)
        if ask.member_id in self.members:
            self._remove(ask.member_id)
        self._reply(ask.ticket, JoinAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
        self._try_complete(now_ms)

    def _add(self, ask: Join, member_id: str, now_ms: int) -> None:
        if not self.members:
            self.protocol_type = ask.protocol_type
        member = Member(
            member_id,
            ask.instance_id,
            ask.client_id,
            ask.client_host,
            ask.session_timeout_ms,
            ask.rebalance_timeout_ms,
            ask.protocols,
            join=ask.ticket,
            deadline_ms=self._soon(now_ms + self._limits.new_member_join_timeout_ms),
        )
        self._enter(member)
        self.leader = self.leader or member_id
        if self._gathering is not None:
            self._gathering.someone_came = True
        self._rebalance(now_ms)

    def _update(self, member: Member, ask: Join, now_ms: int) -> None:
        if member.join is not None:
            self._reply(member.join, JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.id))
        member.join, member.gone = ask.ticket, False
        self._ballots.remove(member)
        member.protocols = ask.protocols
        self._ballots.add(member)
        member.client_id, member.client_host = ask.client_id, ask.client_host
        member.session_timeout_ms = ask.session_timeout_ms
        member.rebalance_timeout_ms = ask.rebalance_timeout_ms
        self._touch(member, now_ms)

    def _replace_static(self, ask: Join, old_id: str, now_ms: int) -> None:
        """A static member came back without its id: it takes its own place, whoever still uses the old id is fenced.

        While the chosen protocol stays the same, a stable group is not disturbed.
        """
        member = self._exit(old_id)
        self._dismiss(member, ErrorCode.FENCED_INSTANCE_ID)
        member.id = ask.fresh_id
        self._enter(member)
        old_leader = self.leader
        if self.leader == old_id:
            self.leader = member.id
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(member.id)
        self._update(member, ask, now_ms)
        if self.state is not State.STABLE or vote(self._ballots.lists) != self.protocol:
            self._rebalance(now_ms)
            return
        member.join = None
        self._out.append(Persist(self.stored()))
        if ask.knows_skip:
            self._reply(ask.ticket, self._joined(member, skip_assignment=self.leader == member.id))
        else:
            # An older client can not be told to skip: it is not told that it leads.
            self._reply(ask.ticket, self._joined(member, leader=old_leader or ""))

    # syncing

    def _sync(self, ask: Sync, now_ms: int) -> ErrorCode | None:
        error = self._identify(ask.member_id, ask.instance_id)
        if error is not None:
            return error
        if ask.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if ask.protocol_type not in (None, self.protocol_type) or ask.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members[ask.member_id]
        if member.id != self.leader and ask.assigned_bytes > _FOLLOWER_ASSIGNS_BYTES:
            return ErrorCode.INVALID_REQUEST  # it would be held while the member waits, for nothing
        self._unsynced.discard(member.id)
        self._touch(member, now_ms)
        if self.state is State.STABLE:
            self._reply(ask.ticket, self._synced(member))
            return None
        if member.sync is not None:
            self._reply(member.sync, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = ask.ticket
        if member.id == self.leader:
            self._assign(ask, now_ms)
        return None

    def _assign(self, ask: Sync, now_ms: int) -> None:
        self._become(State.STABLE)
        for member in self.members.values():
            member.assignment = ask.assignments.get(member.id, b"")
        self._out.append(Persist(self.stored()))
        for member in self.members.values():
            if member.sync is not None:
                self._reply(member.sync, self._synced(member))
                member.sync = None
                self._touch(member, now_ms)

    # rebalancing

    def _rebalance(self, now_ms: int) -> None:
        """Ask everybody to join again; when that is under way, see whether it is done."""
        if self.state is not State.PREPARING:
            was_empty = self.state is State.EMPTY
            for member in self.members.values():
                if self.state is State.COMPLETING:
                    member.assignment = b""  # else what it reads still, for who has the group described
                if member.sync is not None:
                    self._reply(member.sync, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS))
                    member.sync = None
                    self._touch(member, now_ms)
            self._unsynced.clear()
            self._sync_deadline = None
            self._become(State.PREPARING)
            wait = self._longest_rebalance()
            if was_empty and self._limits.initial_delay_ms > 0:
                step = min(self._limits.initial_delay_ms, wait)
                self._gathering = Gathering(step, wait - step)
                wait = step
            self._join_deadline = self._soon(now_ms + wait)
            if was_empty and self._gathering is None:
                self._complete(now_ms)  # without those who were given an id and may never come
                return
        self._try_complete(now_ms)

    def _try_complete(self, now_ms: int) -> None:
        """Complete the rebalance when nobody is missing."""
        if self.state is not State.PREPARING or self._pending:
            return
        if self._gathering is not None and self.members:
            return
        if all(member.join is not None or member.gone for member in self.members.values()):
            self._complete(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        gathering = self._gathering
        if gathering is not None and gathering.someone_came and gathering.remaining_ms > 0:
            step = min(gathering.step_ms, gathering.remaining_ms)
            self._gathering = Gathering(gathering.step_ms, gathering.remaining_ms - step)
            self._join_deadline = self._soon(now_ms + step)
            return
        self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """Begin a generation with those who have joined, and with static members, who may be restarting."""
        self._gathering = None
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None and not member.gone:
                self._remove(member.id)
            member.gone = False
        joined = [member for member in self.members.values() if member.join is not None]
        if self.members and not joined:
            # Only static members, all away: their sessions decide.
            self._join_deadline = self._soon(now_ms + self._longest_rebalance())
            return
        self._join_deadline = None
        self.generation += 1
        if not self.members:
            self.protocol = self.leader = None
            self._become(State.EMPTY)
            self._out.append(Persist(self.stored()))
            return
        if self.leader is None or self.members[self.leader].join is None:
            self.leader = joined[0].id
        self.protocol = vote(self._ballots.lists)
        self._become(State.COMPLETING)
        self._unsynced = set(self.members)
        self._sync_deadline = self._soon(now_ms + self._longest_rebalance())
        for member in joined:
            self._reply(member.join, self._joined(member))
            member.join = None
            member.is_new = False
            self._touch(member, now_ms)

    def _remove(self, member_id: str) -> None:
        member = self._exit(member_id)
        self._dismiss(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def _dismiss(self, member: Member, error: ErrorCode) -> None:
        if member.join is not None:
            self._reply(member.join, JoinAnswer(error=error, member_id=member.id))
        if member.sync is not None:
            self._reply(member.sync, SyncAnswer(error=error))
        member.join = member.sync = None

    def _reply(self, ticket: Ticket | None, answer: JoinAnswer | SyncAnswer) -> None:
        if ticket is not None:
            self._out.append(Reply(ticket, answer))

    def _drain(self) -> list[Action]:
        out, self._out = self._out, []
        return out
