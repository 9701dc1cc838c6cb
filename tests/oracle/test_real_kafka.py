"""The judge judged: a real Kafka agrees with the recordings, so what the checker objects to is the broker's fault."""

from pathlib import Path

import pytest

from kit.answers import check
from kit.golden import golden
from kit.kafka import Kafka, opened, running

pytestmark = pytest.mark.kafka


def test_kafka_gives_every_recorded_answer_again(tmp_path: Path) -> None:
    recording = golden("kafka") / "final.answers.jsonl"
    topics = sorted({line.split('"topic": "')[1].split('"')[0] for line in recording.read_text().splitlines()})
    with opened(tmp_path, golden("kafka") / "final", topics) as kafka:
        report = check(kafka.address, recording)
    assert report.asked == 3812
    assert report.agreed == report.asked, report
    assert not report.repeats


def test_a_broker_can_be_killed_and_started_again(tmp_path: Path) -> None:
    with running(tmp_path) as kafka:
        _create(kafka, "before")
        kafka.kill()
        kafka.start()
        _create(kafka, "after")
        assert {"before", "after"} <= set(kafka.tool("TopicCommand", "--list").split())


def _create(kafka: Kafka, topic: str) -> None:
    assert f"Created topic {topic}" in kafka.tool("TopicCommand", "--create", "--topic", topic)
