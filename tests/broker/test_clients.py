"""Two real clients against the broker in process: idempotent produce, groups, seek, times; before and over the seam."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from broker.client import Client
from broker.file_tier import FileTier
from broker.running import Running, running
from kit import traffic

COUNT = 3_000
SIZE = 1_000


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, FileTier(tmp_path / "held"), set_overrides={"segment.bytes": "1048576"}) as started:
        yield started


def evict(broker: Running, topic: str) -> None:
    """All but the active segment into the bucket."""
    stop = max(segment.next_base for segment in broker.log(topic).closed())
    assert stop > COUNT // 2
    broker.give_to_tier(topic, stop)


def test_confluent_kafka(tiered: Running) -> None:
    address, topic = "{}:{}".format(*tiered.address), "by-confluent"
    sent = list(traffic.stream(topic, 0, COUNT, SIZE))
    traffic.produce_confluent(address, topic, sent)
    for group in ("before", "after"):
        assert traffic.digest(traffic.group_confluent(address, topic, group, COUNT)) == traffic.digest(sent)
        assert traffic.committed_confluent(address, topic, group) == COUNT
        assert traffic.consume_confluent(address, topic, 1_234, 1_300) == sent[1_234:1_300]
        assert traffic.offset_at_confluent(address, topic, sent[777].timestamp_ms) == 777
        if group == "before":
            evict(tiered, topic)
    assert traffic.committed_confluent(address, topic, "before") == COUNT


def test_kafka_python(tiered: Running) -> None:
    address, topic = "{}:{}".format(*tiered.address), "by-kafka-python"
    sent = list(traffic.stream(topic, 0, COUNT, SIZE))
    traffic.produce_kafka_python(address, topic, sent)
    for group in ("before", "after"):
        assert traffic.digest(traffic.group_kafka_python(address, topic, group, COUNT)) == traffic.digest(sent)
        assert traffic.consume_kafka_python(address, topic, 1_234, 1_300) == sent[1_234:1_300]
        assert traffic.offset_at_kafka_python(address, topic, sent[777].timestamp_ms) == 777
        if group == "before":
            evict(tiered, topic)


def test_cooperative_members_give_up_only_what_moves(tiered: Running) -> None:
    """What stays with the first is never taken from it."""
    with Client(tiered.address) as client:
        assert client.create("shared", 6).error_code == 0
    config = {
        "bootstrap.servers": "{}:{}".format(*tiered.address),
        "group.id": "cooperative",
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 6_000,
    }
    revoked: list[int] = []
    first, second = Consumer(config), Consumer(config)
    first.subscribe(["shared"], on_revoke=lambda _, places: revoked.extend(place.partition for place in places))
    patience = time.monotonic() + 60
    try:
        while len(first.assignment()) < 6 and time.monotonic() < patience:
            first.poll(0.05)
        second.subscribe(["shared"])
        while (len(first.assignment()), len(second.assignment())) != (3, 3) and time.monotonic() < patience:
            first.poll(0.05)
            second.poll(0.05)
        mine, other = ({place.partition for place in member.assignment()} for member in (first, second))
        assert (mine | other, mine & other) == (set(range(6)), set())
        assert sorted(revoked) == sorted(other), "only what the second reads now"
    finally:
        first.close()
        second.close()
