"""Random members of a group, some slow, some gone: nobody reads what another reads, and all is read in the end."""

import random

import pytest

from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.model import JOINING, NOTHING, Beat, ConsumerState, Layout, Places, Refused
from tierd.broker.groups.consumer.records import ConsumerReplay, difference
from tierd.broker.groups.consumer.rules import beaten, left, without
from tierd.wire.errors import ErrorCode

TOPICS = ("t0", "t1", "t2")


def nothing(pattern: str) -> frozenset[str]:
    """Members of these groups name their topics."""
    return frozenset()


class World:
    """The group, the topics, and what each member really reads."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state = ConsumerState()
        self.partitions = {"t0": 4, "t1": 7}
        self.reading: dict[str, Places] = {}
        self.epochs: dict[str, int] = {}
        self.subscribed: dict[str, frozenset[str]] = {}
        self.replay = ConsumerReplay()
        self.refusals: set[ErrorCode] = set()
        self._count = 0

    def layout(self, topic: str) -> Layout | None:
        count = self.partitions.get(topic)
        return None if count is None else Layout(Uuid(topic.encode().ljust(16, b".")), count)

    def become(self, state: ConsumerState) -> None:
        for key, value in difference("g", self.state, state):
            self.replay.take(key, value, "log")
        self.state = state
        assert self.replay.groups["g"] == state, "a reader of the log sees the same"

    def beat(self, member_id: str, *, lose_answer: bool = False) -> None:
        """The member says what it reads, then does what it is told, giving up before taking."""
        epoch = self.epochs[member_id]
        topics = self.subscribed[member_id] if epoch == JOINING else None
        owned = NOTHING if epoch == JOINING else self.reading[member_id]
        asked = Beat(member_id=member_id, epoch=epoch, topics=topics, owned=owned, rebalance_timeout_ms=1000)
        try:
            self.become(beaten(self.state, asked, self.layout, nothing, most_members=100, look=True))
        except Refused as error:
            self.refusals.add(error.code)
            self.reading[member_id], self.epochs[member_id] = NOTHING, JOINING
            return
        if not lose_answer:
            member = self.state.members[member_id]
            self.epochs[member_id], self.reading[member_id] = member.epoch, member.assigned
        self.check()

    def check(self) -> None:
        """Of those who are still believed, no two read the same."""
        known = [places for member_id, places in self.reading.items() if member_id in self.state.members]
        assert sum(map(len, known)) == len(frozenset().union(*known))

    def join(self) -> None:
        self._count += 1
        member_id = f"m{self._count}"
        self.reading[member_id], self.epochs[member_id] = NOTHING, JOINING
        self.subscribed[member_id] = frozenset(self.random.sample(TOPICS, self.random.randint(1, 3)))
        self.beat(member_id)

    def leave(self, member_id: str) -> None:
        self.reading[member_id] = NOTHING
        if member_id in self.state.members:
            self.become(left(self.state, Beat(member_id=member_id, epoch=-1)))
        self.forget(member_id)

    def forget(self, member_id: str) -> None:
        del self.reading[member_id], self.epochs[member_id], self.subscribed[member_id]

    def step(self) -> None:
        known = sorted(self.epochs)
        what = self.random.random()
        if not known or (what < 0.06 and len(known) < 8):
            self.join()
        elif what < 0.09:
            self.leave(self.random.choice(known))
        elif what < 0.12:
            member_id = self.random.choice(known)
            if member_id in self.state.members:
                self.become(without(self.state, {member_id}))  # its session is over; it stops reading by itself
                self.reading[member_id] = NOTHING
        elif what < 0.15:
            topic = self.random.choice(TOPICS)
            self.partitions[topic] = self.partitions.get(topic, 0) + self.random.randint(1, 3)
        elif what < 0.20:
            self.beat(self.random.choice(known), lose_answer=True)
        else:
            self.beat(self.random.choice(known))

    def settle(self) -> None:
        for _ in range(12):
            for member_id in sorted(self.epochs):
                self.beat(member_id)


@pytest.mark.parametrize("seed", range(60))
def test_no_partition_is_read_twice_and_all_are_read_in_the_end(seed: int) -> None:
    world = World(seed)
    for _ in range(150):
        world.step()
    world.settle()
    assert world.refusals <= {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
    assert world.state.name == ("Stable" if world.epochs else "Empty")
    wanted = {
        (layout.topic_id, n)
        for topic in frozenset().union(*world.subscribed.values())
        if (layout := world.layout(topic)) is not None
        for n in range(layout.partitions)
    }
    assert frozenset().union(*world.reading.values()) == wanted
    for member_id, member in world.state.members.items():
        assert (member.epoch, member.assigned) == (world.state.epoch, world.reading[member_id])
