"""One consumer group in memory: its state, and until when each member is believed. Loop thread only."""

from collections.abc import Iterable

from tierd.broker.groups.consumer.model import ConsumerState, MemberState, Place, Places
from tierd.broker.groups.consumer.rules import without
from tierd.wire.errors import ErrorCode

_KNOWS_EPOCHS_FROM = 9
"""OffsetCommit: before, there is no word for an epoch that is over."""
_OLDER = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION)
"""What is said of such an epoch, the second to members of the classic protocol."""
_GROUP_BYTES, _MEMBER_BYTES, _PLACE_BYTES, _TOPIC_BYTES = 2048, 2048, 200, 120
"""What they take in memory, generously; names beside it."""


def held_bytes(state: ConsumerState) -> int:
    """What a group takes in memory in that state."""
    members, target = state.members.values(), state.target.values()
    places = sum(len(member.assigned) + len(member.revoking) for member in members) + sum(map(len, target))
    topics = sum(_TOPIC_BYTES + len(topic) for member in members for topic in (*member.reads, member.pattern or ""))
    said = sum(
        _TOPIC_BYTES + len(name) + len(metadata)
        for member in members
        if member.classic is not None
        for name, metadata in member.classic.protocols
    )
    return _GROUP_BYTES + len(members) * _MEMBER_BYTES + places * _PLACE_BYTES + topics + said


class ConsumerGroup:
    """Times are monotonic milliseconds."""

    def __init__(self, group_id: str, state: ConsumerState, *, session_ms: int, now_ms: int, wall_ms: int) -> None:
        """Members that were read from the log get a whole session to be heard of again."""
        self.id = group_id
        self.state = state
        self.emptied_ms = wall_ms
        """Wall clock: since when at least nobody is in it."""
        self.looked_ms: int | None = None
        """When somebody last looked whether its topics have changed."""
        self.counted_bytes = 0
        """What of the memory of all groups is put down to this one."""
        self.armed_ms: int | None = None
        """For whoever calls `overdue`: the time for which that is arranged."""
        self._measured: tuple[ConsumerState, int] | None = None
        self._session_ms = session_ms
        self.wake_ms: int | None = None
        """When `overdue` is to be asked at the latest: deadlines mostly move back, so that it may be too early."""
        self._deadlines = {member_id: now_ms + self._session_of(member_id) for member_id in state.members}
        self._revoke_by: dict[str, tuple[int, Places]] = {}
        """Members that must give up partitions: (time, which they must have given up by then)."""
        self._join_by: dict[str, int] = {}
        """Members of the classic protocol that have been told to join again."""
        for member_id in state.members:
            self._time_revocation(member_id, now_ms)
        self._set_wake()

    def _set_wake(self) -> None:
        revocations = (time for time, _ in self._revoke_by.values())
        self.wake_ms = min([*self._deadlines.values(), *revocations, *self._join_by.values()], default=None)

    def _soon(self, deadline_ms: int) -> int:
        if self.wake_ms is None or deadline_ms < self.wake_ms:
            self.wake_ms = deadline_ms
        return deadline_ms

    def become(self, state: ConsumerState, now_ms: int, wall_ms: int, *, heard: str | None = None) -> None:
        """Take the state that was written; *heard* is the member whose heartbeat led to it."""
        if self.state.members and not state.members:
            self.emptied_ms = wall_ms
        self.state = state
        for member_id in [known for known in self._deadlines if known not in state.members]:
            del self._deadlines[member_id]
            self._revoke_by.pop(member_id, None)
            self._join_by.pop(member_id, None)
        if heard is not None and heard in state.members:
            self._join_by.pop(heard, None)
            self.hear(heard, now_ms)
            self._time_revocation(heard, now_ms)

    def hear(self, member_id: str, now_ms: int) -> None:
        """A sign of life that changes nothing else."""
        self._deadlines[member_id] = self._soon(now_ms + self._session_of(member_id))

    def call_back(self, member_id: str, now_ms: int) -> None:
        """A member of the classic protocol is told to join again: it has its rebalance time-out for that."""
        if member_id not in self._join_by:
            wait_ms = max(self.state.members[member_id].rebalance_timeout_ms, 0)
            self._join_by[member_id] = self._soon(now_ms + wait_ms)

    def _session_of(self, member_id: str) -> int:
        classic = self.state.members[member_id].classic
        return self._session_ms if classic is None else classic.session_timeout_ms

    def _time_revocation(self, member_id: str, now_ms: int) -> None:
        member = self.state.members[member_id]
        if member.state is not MemberState.UNREVOKED:
            self._revoke_by.pop(member_id, None)
        elif self._revoke_by.get(member_id, (0, None))[1] != member.revoking:
            self._revoke_by[member_id] = self._soon(now_ms + max(member.rebalance_timeout_ms, 0)), member.revoking

    def overdue(self, now_ms: int) -> set[str]:
        """Members that were silent for a session, or took too long to do what they were told to."""
        self._set_wake()
        silent = {member_id for member_id, time in self._deadlines.items() if time <= now_ms}
        slow = {member_id for member_id, (time, _) in self._revoke_by.items() if time <= now_ms}
        return silent | slow | {member_id for member_id, time in self._join_by.items() if time <= now_ms}

    def without(self, member_ids: set[str]) -> ConsumerState:
        return without(self.state, member_ids)

    def held_bytes(self) -> int:
        """What it takes in memory."""
        return self.counted_bytes + self.growth_bytes(self.state)

    def growth_bytes(self, state: ConsumerState) -> int:
        """What it takes more in *state* than is put down to it."""
        if self._measured is None or self._measured[0] is not state:
            self._measured = state, held_bytes(state)
        return self._measured[1] - self.counted_bytes

    def may_commit(self, member_id: str, epoch: int, version: int, places: Iterable[Place]) -> ErrorCode:
        """Whether offsets of *places* may be committed under that identity with OffsetCommit of that version.

        An older epoch will do for what the member has held since then: its answer crossed the commit.
        """
        if epoch < 0 and not self.state.members:
            return ErrorCode.NONE  # an administrator
        member = self.state.members.get(member_id)
        if member is not None and member.classic is None and version < _KNOWS_EPOCHS_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        error = self._check(member_id, epoch)
        if error in _OLDER and self._held_since(member_id, epoch, places):
            return ErrorCode.NONE
        return error

    def _held_since(self, member_id: str, epoch: int, places: Iterable[Place]) -> bool:
        member = self.state.members[member_id]
        return 0 < epoch < member.epoch and all(member.since.get(place, member.epoch) <= epoch for place in places)

    def may_commit_in_transaction(self, member_id: str, epoch: int) -> ErrorCode:
        """The same for TxnOffsetCommit, in whose older versions a producer cannot say which member it commits for."""
        if epoch < 0 and not member_id:
            return ErrorCode.NONE
        error = self._check(member_id, epoch)
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error

    def may_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether offsets may be asked for under that identity; who gives none may always."""
        return ErrorCode.NONE if member_id is None and epoch < 0 else self._check(member_id or "", epoch)

    def _check(self, member_id: str, epoch: int) -> ErrorCode:
        member = self.state.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        wrong = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE if epoch == member.epoch else wrong

    def reads(self, topic: str) -> bool:
        """Whether a member subscribes to it."""
        return any(topic in member.reads for member in self.state.members.values())
