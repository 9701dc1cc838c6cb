"""Who reads what: Kafka's two server-side assignors, `uniform` (the default) and `range`. Pure."""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tierd.broker.groups.consumer.model import NOTHING, ConsumerMember, Layouts, Place, Places

Members = Mapping[str, ConsumerMember]
Assignment = dict[str, Places]
Held = dict[str, set[Place]]
Readers = Mapping[tuple[Place, ...], list[str]]
"""All partitions of a topic, and who may read them."""


def assignor_of(members: Members) -> str:
    """The assignor that most of those who name one want, of equals the first by name."""
    named = sorted(member.assignor for member in members.values() if member.assignor)
    return Counter(named).most_common(1)[0][0] if named else DEFAULT


def assign(members: Members, before: Mapping[str, Places], layouts: Layouts) -> Assignment:
    """What each member is to read, when *before* is what it was to read so far."""
    held = ASSIGNORS[assignor_of(members)](members, before, _readers(members, layouts))
    return {member_id: frozenset(places) for member_id, places in held.items()}


def _readers(members: Members, layouts: Layouts) -> Readers:
    topics: dict[str, list[str]] = {}
    for member_id in sorted(members):
        for topic in members[member_id].reads:
            topics.setdefault(topic, []).append(member_id)
    found = {}
    for topic in sorted(topics):
        layout = layouts(topic)
        if layout is not None:
            found[tuple((layout.topic_id, n) for n in range(layout.partitions))] = topics[topic]
    return found


def _uniform(members: Members, before: Mapping[str, Places], readers: Readers) -> Held:
    """As even as subscriptions allow, and otherwise as it was."""
    alike = len({member.reads for member in members.values()}) <= 1
    held = _kept_shares(members, before, readers) if alike else _kept(members, before, readers)
    taken = set().union(*held.values())
    for places, able in readers.items():
        _hand_out([place for place in places if place not in taken], able, held)
    # Each move makes the loads more alike: the moves come to an end.
    while not alike and any([_even_out(frozenset(places), able, held) for places, able in readers.items()]):
        pass
    return held


def _kept_shares(members: Members, before: Mapping[str, Places], readers: Readers) -> Held:
    """All read the same topics: each keeps what it had, up to its share."""
    every = {place for places in readers for place in places}
    share, more = divmod(len(every), max(len(members), 1))
    held: Held = {}
    for member_id in sorted(members):
        had = sorted(before.get(member_id, NOTHING) & every)
        if more and len(had) > share:
            more -= 1
            held[member_id] = set(had[: share + 1])
        else:
            held[member_id] = set(had[:share])
    return held


def _kept(members: Members, before: Mapping[str, Places], readers: Readers) -> Held:
    held: Held = {member_id: set() for member_id in sorted(members)}
    for places, able in readers.items():
        topic = frozenset(places)
        for member_id in able:
            held[member_id] |= before.get(member_id, NOTHING) & topic
    return held


def _hand_out(free: list[Place], able: list[str], held: Held) -> None:
    """Each to who has least."""
    loads = [(len(held[member_id]), member_id) for member_id in able] if free else []
    heapq.heapify(loads)
    for place in free:
        load, member_id = loads[0]
        held[member_id].add(place)
        heapq.heapreplace(loads, (load + 1, member_id))


def _even_out(topic: Places, able: list[str], held: Held) -> bool:
    """Move partitions of one topic from who has most to who has least, until they are within one; whether any moved."""
    moves = False
    while holders := [member_id for member_id in able if not topic.isdisjoint(held[member_id])]:
        most = max(holders, key=lambda member_id: len(held[member_id]))
        least = min(able, key=lambda member_id: len(held[member_id]))
        if len(held[most]) - len(held[least]) <= 1:
            break
        moved = max(held[most] & topic)
        held[most].remove(moved)
        held[least].add(moved)
        moves = True
    return moves


def _by_range(members: Members, before: Mapping[str, Places], readers: Readers) -> Held:
    """Topic by topic: its partitions cut into as many runs as it has readers, static members first."""

    def rank(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].instance_id
        return instance is None, instance or member_id

    held: Held = {member_id: set() for member_id in members}
    for places, able in readers.items():
        share, more = divmod(len(places), len(able))
        first = 0
        for number, member_id in enumerate(sorted(able, key=rank)):
            stop = first + share + (number < more)
            held[member_id].update(places[first:stop])
            first = stop
    return held


DEFAULT: Final = "uniform"
ASSIGNORS: Final[Mapping[str, Callable[[Members, Mapping[str, Places], Readers], Held]]] = {
    "uniform": _uniform,
    "range": _by_range,
}
