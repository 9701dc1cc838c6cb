"""Members of the classic protocol in a group that has come to the consumer protocol: what their requests lead to.

For them the epoch is the generation, nobody leads, and the broker's assignment is what a sync gives. They learn of a
newer one by their heartbeats and join again, saying in their subscription what they read still.
"""

from collections.abc import Callable

from tierd.broker.groups.consumer.group import ConsumerGroup
from tierd.broker.groups.consumer.groups import ConsumerGroups
from tierd.broker.groups.consumer.migration import assignment_of, common, places_of
from tierd.broker.groups.consumer.model import (
    AWAY,
    JOINING,
    NOTHING,
    Beat,
    Classic,
    ConsumerMember,
    ConsumerState,
    MemberState,
    Refused,
)
from tierd.broker.groups.consumer.reconcile import held_of
from tierd.broker.groups.coordinator import Coordinator
from tierd.broker.groups.embedded import CONSUMER, NotUnderstood, read_subscription
from tierd.broker.groups.model import Join, JoinAnswer, State, Sync, SyncAnswer
from tierd.broker.groups.ports import Topics
from tierd.broker.groups.shard import Shard
from tierd.wire.errors import ErrorCode


class MixedGroups:
    """Loop thread only. All take a shard in whose `consumers` the group is."""

    def __init__(self, coordinator: Coordinator, groups: ConsumerGroups, topics: Topics) -> None:
        self._coordinator = coordinator
        self._groups = groups
        self._topics = topics

    def join(self, shard: Shard, group_id: str, ask: Join, sees: Callable[[str], bool]) -> JoinAnswer | None:
        """None: the group is a classic one now and begins a generation, ask that. Raises NotReady, NoRoom."""
        group = shard.consumers[group_id]
        member_id = ask.member_id or ask.fresh_id
        shared = set(common(group.state, but=member_id))
        speaks = {name for name, _ in ask.protocols}
        if ask.protocol_type != CONSUMER or (shared and shared.isdisjoint(speaks)):
            return JoinAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=ask.member_id)
        if not ask.member_id and ask.instance_id is None and ask.id_required:
            return JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=ask.fresh_id)
        if ask.member_id and ask.instance_id is not None:
            static = group.state.by_instance(ask.instance_id)
            if static is None or static.id != ask.member_id:
                gone = ErrorCode.UNKNOWN_MEMBER_ID if static is None else ErrorCode.FENCED_INSTANCE_ID
                return JoinAnswer(error=gone, member_id=ask.member_id)
        try:
            heard = self._groups.hear(shard, group, self._beat(group.state, ask, member_id), sees)
        except (Refused, NotUnderstood) as error:
            code = error.code if isinstance(error, Refused) else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return JoinAnswer(error=code, member_id=ask.member_id)
        classic = shard.groups.get(group_id)
        if classic is not None and classic.state is not State.STABLE:
            return None
        protocol = ask.protocols[0][0] if classic is None else classic.protocol
        return JoinAnswer(
            generation=heard.member.epoch, protocol_type=CONSUMER, protocol=protocol, member_id=heard.member.id
        )

    def _beat(self, state: ConsumerState, ask: Join, member_id: str) -> Beat:
        """Raises NotUnderstood. A member that is known need not prove its generation: joining, it begins anew."""
        said = read_subscription(ask.protocols[0][1])
        known = state.members.get(member_id)
        return Beat(
            member_id=member_id,
            epoch=JOINING if known is None or known.epoch == AWAY else known.epoch,
            instance_id=ask.instance_id,
            client_id=ask.client_id,
            client_host=ask.client_host,
            rebalance_timeout_ms=ask.rebalance_timeout_ms,
            topics=said.topics,
            pattern="",
            owned=places_of(said.owned, self._topics.layout),
            classic=Classic(ask.session_timeout_ms, ask.protocols),
        )

    def sync(self, shard: Shard, group_id: str, ask: Sync) -> SyncAnswer:
        group = shard.consumers[group_id]
        member = _identified(group.state, ask.member_id, ask.instance_id)
        if isinstance(member, ErrorCode):
            return SyncAnswer(error=member)
        if ask.generation != member.epoch:
            return SyncAnswer(error=ErrorCode.ILLEGAL_GENERATION)
        assert member.classic is not None
        protocol = member.classic.protocols[0][0]
        if ask.protocol_type not in (None, CONSUMER) or ask.protocol not in (None, protocol):
            return SyncAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._call_back(shard, group, member)
            return SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS)
        group.hear(member.id, self._coordinator.now_ms())
        self._groups.arm(shard, group)
        assignment = assignment_of(member, self._topics.name_of)
        return SyncAnswer(protocol_type=CONSUMER, protocol=protocol, assignment=assignment)

    def heartbeat(
        self, shard: Shard, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        group = shard.consumers[group_id]
        member = _identified(group.state, member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        if generation != member.epoch:
            return ErrorCode.ILLEGAL_GENERATION
        group.hear(member.id, self._coordinator.now_ms())
        if not _is_behind(group.state, member):
            self._groups.arm(shard, group)
            return ErrorCode.NONE
        self._call_back(shard, group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _call_back(self, shard: Shard, group: ConsumerGroup, member: ConsumerMember) -> None:
        group.call_back(member.id, self._coordinator.now_ms())
        self._groups.arm(shard, group)

    def leave(self, shard: Shard, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        return self._groups.send_away(shard, group_id, member_id, instance_id)


def _is_behind(state: ConsumerState, member: ConsumerMember) -> bool:
    """Whether there is something for it to do or to have: another assignment, or what it waited for is free."""
    if member.epoch < state.epoch or member.state is MemberState.UNREVOKED:
        return True
    if member.state is not MemberState.UNRELEASED:
        return False
    missing = state.target.get(member.id, NOTHING) - member.assigned
    return not held_of(missing, (other for other in state.members.values() if other.id != member.id))


def _identified(state: ConsumerState, member_id: str, instance_id: str | None) -> ConsumerMember | ErrorCode:
    if instance_id is not None:
        static = state.by_instance(instance_id)
        if static is not None and static.id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = state.members.get(member_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None or member.classic is None else member
