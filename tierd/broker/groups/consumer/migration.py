"""A group that goes from one protocol to the other while its members are in it (KIP-848, both ways). Pure.

The first member of the consumer protocol takes a group of the classic one along: its members stay, with the generation
as their epoch and what they read as their assignment. When the last such member has gone, the others are a classic
group again.
"""

from collections.abc import Callable
from dataclasses import replace

from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.model import Classic, ConsumerMember, ConsumerState, Layouts, Places, Refused
from tierd.broker.groups.consumer.rules import topics_hash
from tierd.broker.groups.embedded import (
    CONSUMER,
    NotUnderstood,
    Reading,
    encode_assignment,
    read_assignment,
    read_subscription,
)
from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import Member, StoredGroup, StoredMember
from tierd.broker.groups.vote import common_protocols
from tierd.wire.errors import ErrorCode

TopicName = Callable[[Uuid], str | None]
"""None: there is no topic of that id."""


def taken_along(group: Group, layouts: Layouts) -> ConsumerState:
    """A classic group as one of the consumer protocol. Raises Refused when its members are not consumers."""
    if group.protocol_type != CONSUMER:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.id} is not a consumer group.")
    try:
        members = {member.id: _taken(member, group, layouts) for member in group.members.values()}
    except NotUnderstood as error:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.id} can not be taken along: {error}") from error
    epoch = group.generation
    target = {member.id: member.assigned for member in members.values()}
    state = ConsumerState(epoch=epoch, assignment_epoch=epoch, members=members, target=target)
    return replace(state, topics_hash=topics_hash(state, layouts))


def _taken(member: Member, group: Group, layouts: Layouts) -> ConsumerMember:
    chosen = member.metadata(group.protocol) if group.protocol is not None else member.protocols[0][1]
    assigned = places_of(read_assignment(member.assignment), layouts)
    return ConsumerMember(
        id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=read_subscription(chosen).topics,
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
        since=dict.fromkeys(assigned, group.generation),
        classic=Classic(member.session_timeout_ms, member.protocols),
    )


def places_of(reading: Reading, layouts: Layouts) -> Places:
    """By topic ids; topics that are gone are left out."""
    found = ((layouts(topic), partitions) for topic, partitions in reading.items())
    return frozenset((layout.topic_id, n) for layout, partitions in found if layout is not None for n in partitions)


def given_back(state: ConsumerState, generation: int, name_of: TopicName) -> StoredGroup:
    """The classic group that a group is again whose members all speak that protocol. They are to join anew.

    *generation* is the epoch that they know: not the one that began when the last of the others left.
    """
    protocol = common(state)[0]
    members = tuple(_given(member, protocol, name_of) for member in state.members.values())
    return StoredGroup(CONSUMER, generation, protocol, members[0].id, members)


def _given(member: ConsumerMember, protocol: str, name_of: TopicName) -> StoredMember:
    assert member.classic is not None
    return StoredMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        dict(member.classic.protocols)[protocol],
        assignment_of(member, name_of),
    )


def assignment_of(member: ConsumerMember, name_of: TopicName) -> bytes:
    """What a SyncGroup of the member is answered."""
    assert member.classic is not None
    version = read_subscription(member.classic.protocols[0][1]).version
    named = ((name_of(topic_id), partition) for topic_id, partition in member.assigned)
    return encode_assignment(version, [(name, partition) for name, partition in named if name is not None])


def common(state: ConsumerState, *, but: str | None = None) -> list[str]:
    """The names of what all classic members speak, *but* one; in the order of the first."""
    spoken = [
        tuple(name for name, _ in member.classic.protocols)
        for member in state.members.values()
        if member.classic is not None and member.id != but
    ]
    shared = common_protocols(spoken)
    return [name for name in (spoken[0] if spoken else ()) if name in shared]
