"""Two real clients against the broker in process: idempotent produce, groups, seek, times; before and over the seam."""

from collections.abc import Iterator
from pathlib import Path

import pytest

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
