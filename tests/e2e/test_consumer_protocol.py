"""The consumer protocol (KIP-848) with a real client: two members share, tierd dies in the middle, one leaves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kit.daemon import Daemon, running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TOPIC, PARTITIONS, RECORDS = "shared", 6, 600
SETS = ("--set", "group.consumer.heartbeat.interval.ms=200ms")


@pytest.fixture
def tierd(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "data", None, *SETS) as daemon:
        admin = AdminClient({"bootstrap.servers": daemon.address})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
            made.result(30)
        yield daemon
        assert daemon.stop() == 0


class Member:
    """Takes part in the group when it is polled."""

    def __init__(self, tierd: Daemon, **config: Any) -> None:
        self.got: list[tuple[int, int]] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": tierd.address,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                **config,
            }
        )
        self._consumer.subscribe([TOPIC])

    def poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is not None and message.error() is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.got.append((partition, offset))

    def reads(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def until_they_share(*members: Member) -> None:
    """Together they read all, and nearly the same number each."""
    while True:
        shares = [member.reads() for member in members]
        if len(frozenset().union(*shares)) == PARTITIONS and max(map(len, shares)) == PARTITIONS // len(members):
            return
        for member in members:
            member.poll()


def produce(tierd: Daemon) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": tierd.address, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def test_members_share_over_a_kill_in_the_middle_and_take_over(tierd: Daemon) -> None:
    one = Member(tierd, **{"client.id": "one"})
    until_they_share(one)
    two = Member(tierd, **{"client.id": "two"})
    while len(one.reads()) == PARTITIONS and not two.reads():
        one.poll()
        two.poll()
    tierd.kill()
    tierd.start()
    until_they_share(one, two)
    produce(tierd)
    while len(one.got) + len(two.got) < RECORDS:
        one.poll()
        two.poll()
    assert len(set(one.got + two.got)) == len(one.got) + len(two.got), "nothing is read twice"
    assert {len(member.got) for member in (one, two)} == {RECORDS // 2}
    one.commit()
    two.commit()
    two.close()
    until_they_share(one)
    one.close()
    late = Member(tierd)
    until_they_share(late)
    produce(tierd)
    while len(late.got) < RECORDS:
        late.poll()
    assert {offset >= RECORDS // PARTITIONS for _, offset in late.got} == {True}, "it goes on where the others stopped"
    late.close()


def test_both_protocols_take_turns_in_one_group(tierd: Daemon) -> None:
    produce(tierd)
    for protocol in ("classic", "consumer", "classic"):
        member = Member(tierd, **{"group.protocol": protocol})
        until_they_share(member)
        while not member.got:
            member.poll()
        member.commit()
        member.close()
