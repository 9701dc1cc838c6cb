"""What a heartbeat does to a group (KIP-848): state and heartbeat in, new state out. Pure.

Whoever leaves or subscribes to something else than before raises the group's epoch; so does a topic that changes. The
next heartbeat then makes a new assignment for that epoch, and each member comes to it with its own heartbeats.
"""

import hashlib
from dataclasses import replace

from tierd.broker.groups.consumer.assign import ASSIGNORS, assign
from tierd.broker.groups.consumer.model import (
    AWAY,
    JOINING,
    NOTHING,
    Beat,
    ConsumerMember,
    ConsumerState,
    Layouts,
    Matching,
    MemberState,
    Places,
    Refused,
)
from tierd.broker.groups.consumer.reconcile import reconciled
from tierd.wire.errors import ErrorCode


def beaten(
    state: ConsumerState, beat: Beat, layouts: Layouts, matching: Matching, *, most_members: int, look: bool
) -> ConsumerState:
    """The group after the heartbeat of a member that is in it or joins; *look* whether topics have changed, too.

    Raises Refused.
    """
    state = _with(state, beat, most_members)
    before = state.members[beat.member_id]
    member = _told(before, beat)
    told = replace(state, members={**state.members, member.id: member}) if member != before else state
    changed = _wants(member) != _wants(before)
    if look or changed:
        told, moved_topics = _matched(told, matching)
        member, changed = told.members[member.id], changed or moved_topics
    seen = topics_hash(told, layouts) if look or changed else told.topics_hash
    if changed or seen != told.topics_hash or not told.epoch:
        told = replace(told, epoch=told.epoch + 1, topics_hash=seen)
    if told.epoch > told.assignment_epoch:
        told = replace(told, assignment_epoch=told.epoch, target=assign(told.members, told.target, layouts))
    others = (other for other in told.members.values() if other.id != member.id)
    target = told.target.get(member.id, NOTHING)
    moved = reconciled(member, target, told.assignment_epoch, beat.owned, others)
    return told if moved == member else replace(told, members={**told.members, member.id: moved})


def _wants(member: ConsumerMember) -> tuple[object, ...]:
    """What a new assignment is made for. An assignor that a member names is heeded when there is one anyway."""
    return member.topics, member.pattern


def _matched(state: ConsumerState, matching: Matching) -> tuple[ConsumerState, bool]:
    """The group with the topics that its members' patterns match now, and whether those were others before."""
    found = {member.id: matching(member.pattern) if member.pattern else None for member in state.members.values()}
    moved = [member for member in state.members.values() if member.matched != found[member.id]]
    if not moved:
        return state, False
    fresh = {member.id: replace(member, matched=found[member.id]) for member in moved}
    return replace(state, members={**state.members, **fresh}), any(member.matched is not None for member in moved)


def left(state: ConsumerState, beat: Beat) -> ConsumerState:
    """The group after a member said that it goes; a static one may say that it comes back. Raises Refused."""
    member = _static(state, beat) if beat.instance_id is not None else state.members.get(beat.member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of the group.")
    if beat.epoch == AWAY:
        since = {place: member.since[place] for place in member.assigned}
        away = replace(member, epoch=AWAY, revoking=NOTHING, since=since, state=MemberState.STABLE)
        return replace(state, members={**state.members, member.id: away})
    return without(state, {member.id})


def without(state: ConsumerState, member_ids: set[str]) -> ConsumerState:
    """The group after members are gone."""
    return replace(
        state,
        epoch=state.epoch + 1,
        members={key: member for key, member in state.members.items() if key not in member_ids},
        target={key: places for key, places in state.target.items() if key not in member_ids},
    )


def check_epoch(member: ConsumerMember, epoch: int, owned: Places | None) -> None:
    """Whether the member may speak with that epoch. Raises Refused."""
    if epoch == member.epoch:
        return
    greater = epoch > member.epoch
    if not greater and epoch == member.previous_epoch and owned is not None and owned <= member.assigned:
        return  # the answer that told it of the new one was lost
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if greater else 'smaller'} member epoch ({epoch}) than the one "
        f"known by the group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def topics_hash(state: ConsumerState, layouts: Layouts) -> int:
    """Differs when a topic that a member subscribes to has been made, deleted or extended; 64 bits with a sign.

    Without any topic it is 0, as in a group that has just begun.
    """
    found = [(topic, layout) for topic in sorted(state.topics) if (layout := layouts(topic)) is not None]
    digest = hashlib.blake2b(digest_size=8)
    for topic, layout in found:
        digest.update(b"%b %b %d\n" % (topic.encode(), layout.topic_id.raw, layout.partitions))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def _with(state: ConsumerState, beat: Beat, most_members: int) -> ConsumerState:
    """The group with the member in it, as it was known or new. Raises Refused."""
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {known}.",
        )
    if beat.epoch == JOINING:
        return _joined(state, beat, most_members)
    member = _static(state, beat) if beat.instance_id is not None else state.members.get(beat.member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of the group.")
    check_epoch(member, beat.epoch, beat.owned)
    return state


def _joined(state: ConsumerState, beat: Beat, most_members: int) -> ConsumerState:
    """Who joins again under its own id goes on where it was; that it reads nothing now, it says itself.

    Kafka refuses that to static members until their session is over. But it may be one that has not heard that it was
    taken, and clients treat the refusal as fatal. In the classic protocol another may take a static member's place at
    any time, also from one protocol to the other.
    """
    static = state.by_instance(beat.instance_id) if beat.instance_id is not None else None
    old = static or state.members.get(beat.member_id)
    if old is None:
        if len(state.members) >= most_members:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has {most_members} members already.")
        new = ConsumerMember(id=beat.member_id, instance_id=beat.instance_id)
        return replace(state, members={**state.members, new.id: new})
    instance_id = old.instance_id if beat.instance_id is None else beat.instance_id
    if old.epoch != AWAY and old.id == beat.member_id:
        return replace(state, members={**state.members, old.id: replace(old, instance_id=instance_id)})
    if old.epoch != AWAY and old.classic is None and beat.classic is None:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because the "
            f"instance id is owned by member {old.id}.",
        )
    fresh = replace(
        old,
        id=beat.member_id,
        instance_id=instance_id,
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        assigned=NOTHING,
        revoking=NOTHING,
        since={},
    )
    members = {key: member for key, member in state.members.items() if key != old.id}
    target = {key: places for key, places in state.target.items() if key != old.id}
    if old.id in state.target:
        target[fresh.id] = state.target[old.id]
    return replace(state, members={**members, fresh.id: fresh}, target=target)


def _static(state: ConsumerState, beat: Beat) -> ConsumerMember | None:
    """The member of that instance. Raises Refused when somebody else is it now."""
    assert beat.instance_id is not None
    member = state.by_instance(beat.instance_id)
    if member is not None and member.id != beat.member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced by member {member.id}.",
        )
    return member


def _told(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """The member with what it says of itself; what it does not mention stays."""
    return replace(
        member,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rack_id=beat.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if beat.rebalance_timeout_ms is None
        else beat.rebalance_timeout_ms,
        topics=member.topics if beat.topics is None else beat.topics,
        pattern=member.pattern if beat.pattern is None else beat.pattern or None,
        assignor=beat.assignor or member.assignor,
        classic=beat.classic,
    )
