"""`tierd archive` on a bucket that tierd has written from a real Kafka's files, and a real client beside it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kit.answers import check
from kit.archived import ArchiveDaemon, tree
from kit.bucket import Remotely, in_folder
from kit.daemon import running
from kit.golden import golden
from kit.tiers import until
from tierd.base.ids import Uuid
from tierd.remote.heads import read_head

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@dataclass
class Archived:
    daemon: ArchiveDaemon
    bucket: Path
    before: dict[str, tuple[int, bytes]]
    ends: dict[str, int]
    """Of the log that was copied."""


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    """All closed segments of a directory that a real Kafka wrote are in the bucket, and their owner is gone."""
    root = tmp_path_factory.mktemp("archive")
    shutil.copytree(golden("kafka") / "final", root / "data")
    sets = ["--set", "remote.head.interval.ms=100"]
    with running(root / "data", f"file:{root / 'bucket'}", *sets) as owner:
        owner.verb("copy", "--wait", "--roll", expect=None)
        rows = owner.status()["partitions"]
        until("every head", lambda: all(_is_told(in_folder(root / "bucket"), row) for row in rows))
        assert owner.stop() == 0
    before = tree(root / "bucket")
    daemon = ArchiveDaemon(root / "archive", f"file:{root / 'bucket'}", root / "archive-state")
    try:
        yield Archived(daemon.start(), root / "bucket", before, {row["topic"]: row["copied_to"] for row in rows})
    finally:
        daemon.kill()


def _is_told(remotely: Remotely, row: dict[str, Any]) -> bool:
    """Whether the bucket's head says what the owner knows: only there are log starts and ranges without records."""
    if row["copied_to"] is None:
        return True
    bucket = remotely.bucket
    topic_id = Uuid.parse(row["topic_id"])
    stored = read_head(bucket.store, bucket.keys, row["topic"], topic_id, row["partition"])
    return stored is not None and (stored.head.copied_to, stored.head.log_start) == (row["copied_to"], row["log_start"])


def test_an_archive_answers_as_kafka_did(archived: Archived, figure: Callable[[str], None]) -> None:
    """All but the topic whose end is held back by a transaction that hangs: its last records are in no bucket."""
    topics = set(archived.ends) - {"hanging", "__consumer_offsets", "__transaction_state"}
    report = check(archived.daemon.address, golden("kafka") / "final.answers.jsonl", evicted=True, topics=topics)
    figure(f"Kafka's recorded answers, from an archive: {report.agreed} of {report.asked} agree")
    assert report.agreed == report.asked >= 3_500, str(report)


def test_its_status_shows_it(archived: Archived) -> None:
    shown = {row["topic"]: row for row in archived.daemon.status()["partitions"]}
    for topic, end in archived.ends.items():
        if topic in shown and end is not None and not topic.startswith("__"):
            assert (shown[topic]["log_end"], shown[topic]["copied_to"], shown[topic]["gaps"]) == (end, end, [])
    text = archived.daemon.verb("status").stdout
    assert "claim none" in text
    assert "archive" in archived.daemon.verb("evict", expect=2).stderr


def test_a_real_client_reads_on_where_its_group_was(archived: Archived) -> None:
    """Half of it, then the other half as another consumer of the group; and nothing of that is in the bucket."""
    topic = next(name for name, end in archived.ends.items() if end and end > 100 and not name.startswith("__"))
    seen: list[int] = []
    for stop_at in (50, None):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": archived.daemon.address,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.subscribe([topic])
        try:
            seen += _read(consumer, stop_at)
        finally:
            consumer.close()
    assert seen == sorted(set(seen))
    assert len(seen) > 50
    assert tree(archived.bucket) == archived.before


def _read(consumer: confluent_kafka.Consumer, stop_at: int | None) -> list[int]:
    """Offsets up to the end, or so many, which are committed then."""
    seen: list[int] = []
    while stop_at is None or len(seen) < stop_at:
        message = consumer.poll(30)
        assert message is not None, "nothing came for 30 s"
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            return seen
        offset = message.offset()
        assert offset is not None
        seen.append(offset)
    consumer.commit(message=message, asynchronous=False)
    return seen


def test_a_real_producer_is_refused(archived: Archived) -> None:
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": archived.daemon.address, "enable.idempotence": True, "log_level": 0}
    )
    topic = next(name for name in archived.ends if not name.startswith("__"))
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    (error,) = errors
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
