"""Kafka's own tools, unmodified, in the uses of `kit.tool_uses`."""

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from kit import tools
from kit.daemon import running
from kit.tool_uses import ALL, DELETE_RECORDS
from kit.tools import Tools, Use

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(600)]

GROUPS = "consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    folder = tmp_path_factory.mktemp("tools")
    (folder / "delete-records.json").write_text(DELETE_RECORDS)
    with running(folder / "data") as daemon, tools.running(daemon.address, folder) as kafka:
        yield kafka
        assert daemon.stop() == 0


def test_every_use_says_what_kafka_would_say(kafka: Tools, figure: Callable[[str], None]) -> None:
    short = [wrong for use in ALL if (wrong := kafka.use(use)) is not None]
    figure(f"Kafka's tools: {len(ALL) - len(short)} of {len(ALL)} uses passed")
    assert not short, "\n".join(short)


def test_a_group_at_work_is_shown_and_kept(kafka: Tools) -> None:
    topic, group = "at-work", "workers"
    assert kafka.use(Use("TopicCommand", f"--create --topic {topic} --partitions 2")) is None
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.address, "group.id": group, "client.id": "me", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 0)], asynchronous=False)
    short = [
        kafka.use(Use(GROUPS, words, expect))
        for words, expect in (
            ("--list --state Stable", f"^{group} .*Stable"),
            (f"--describe --group {group} --state", r"range +Stable +1"),
            (f"--describe --group {group} --members --verbose", rf"{group} .*me .*2 .*{topic}:0,1"),
            (f"--describe --group {group}", rf"{group} +{topic} +0 +0 +0 +0 +me-\S+ +/127.0.0.1 +me"),
            (f"--delete --group {group}", "GroupNotEmptyException"),
            (f"--delete-offsets --group {group} --topic {topic}", "subscribed"),
            (f"--reset-offsets --group {group} --topic {topic} --to-latest --execute", "not inactive|is Stable"),
        )
    ]
    consumer.close()
    short.append(kafka.use(Use(GROUPS, f"--delete --group {group}", "successful")))
    assert not [wrong for wrong in short if wrong is not None]
