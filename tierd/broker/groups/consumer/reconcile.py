"""One member's way from what it reads to what it is to read: first give up, then wait for others, then take. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from tierd.broker.groups.consumer.model import NOTHING, ConsumerMember, MemberState, Place, Places


def reconciled(
    member: ConsumerMember, target: Places, epoch: int, owned: Places | None, others: Iterable[ConsumerMember]
) -> ConsumerMember:
    """The member after a heartbeat in which it said that it still reads *owned* (None: as before).

    *target* is what it is to read in assignment *epoch*. A partition that any of *others* may still be reading is not
    assigned: that nobody reads a partition twice is the point of the protocol.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == epoch:
                return member
        case MemberState.UNREVOKED:
            if owned is None or not owned.isdisjoint(member.revoking):
                return member
        case MemberState.UNRELEASED:
            pass
    kept, given_up = member.assigned & target, member.assigned - target
    if given_up and (owned is None or not owned.isdisjoint(given_up)):
        return _moved(member, member.epoch, MemberState.UNREVOKED, kept, given_up)
    missing = target - kept
    taken = held_of(missing, others) if missing else NOTHING
    state = MemberState.UNRELEASED if taken else MemberState.STABLE
    return _moved(member, epoch, state, target - taken, NOTHING)


def held_of(wanted: Places, others: Iterable[ConsumerMember]) -> Places:
    """Those of *wanted* that somebody may still be reading."""
    taken: set[Place] = set()
    for other in others:
        for held in (other.assigned, other.revoking):
            if not held.isdisjoint(wanted):
                taken |= held & wanted
    return frozenset(taken)


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Places, revoking: Places
) -> ConsumerMember:
    since = {place: member.since.get(place, epoch) for place in assigned | revoking}
    moved = replace(member, state=state, assigned=assigned, revoking=revoking, since=since)
    return moved if epoch == member.epoch else replace(moved, epoch=epoch, previous_epoch=member.epoch)
