"""A whole tierd compacts while a real client writes and reads; with a bucket, what was cleaned is what is copied."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kit import tiers
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e

RECORDS, KEYS = 6000, 40
WAIT_S = 60
QUICK = ("--set", "log.cleaner.backoff.ms=100")
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "30000",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "0",
}


def create(tierd: Daemon, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": tierd.address})
    admin.create_topics([NewTopic(topic, 1, 1, config={**COMPACTED, **config})])[topic].result(30)


def write(tierd: Daemon, topic: str, start: int = 0) -> dict[bytes, bytes]:
    """RECORDS records over KEYS keys; every 13th is a tombstone. What is the latest of each key."""
    producer = Producer({"bootstrap.servers": tierd.address, "enable.idempotence": True, "batch.num.messages": 50})
    latest: dict[bytes, bytes | None] = {}
    for number in range(start, start + RECORDS):
        key, value = b"k%d" % (number * 7 % KEYS), None if number % 13 == 12 else b"v%d" % number
        latest[key] = value
        producer.produce(topic, value, key)
        if number % 500 == 499:
            producer.flush(30)
    assert not producer.flush(30)
    return {key: value for key, value in latest.items() if value is not None}


def read(tierd: Daemon, topic: str) -> list[Message]:
    return list(_read(tierd, topic))


def _read(tierd: Daemon, topic: str) -> Iterator[Message]:
    config = {"bootstrap.servers": tierd.address, "group.id": "r", "enable.partition.eof": True}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while (message := consumer.poll(30)) is not None and message.error() is None:
            yield message
        assert message is not None, "neither a record nor the end"
    finally:
        consumer.close()


def known(messages: list[Message]) -> dict[bytes, bytes]:
    offsets = [message.offset() for message in messages]
    assert offsets == sorted(set(offsets))
    latest = {message.key(): message.value() for message in messages}
    return {key: value for key, value in latest.items() if value is not None}


def until(condition: Callable[[], bool], tierd: Daemon) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, tierd.log.read_text()[-3000:]
        threading.Event().wait(0.3)


def test_a_compacted_topic_shrinks_and_keeps_the_latest(tmp_path: Path) -> None:
    with running(tmp_path / "data", None, *QUICK) as tierd:
        create(tierd, "c")
        wanted = write(tierd, "c")
        until(lambda: tierd.partition("c")["local_bytes"] < 40_000, tierd)
        messages = read(tierd, "c")
        assert known(messages) == wanted
        assert len(messages) < RECORDS / 2
        facts = tierd.partition("c")["compaction"]
        assert facts["cleaned_to"] > 0
        assert facts["dirty_ratio"] <= 0.1
        assert facts["finished_ms"] > 0
        assert facts["problem"] is None
        wanted |= write(tierd, "c", RECORDS)
        assert tierd.stop() == 0
        tierd.start()
        gone = known(read(tierd, "c"))
        assert {key: gone[key] for key in gone if key in wanted} == gone
        assert tierd.stop() == 0
    assert "cleaned" in tierd.log.read_text()
    assert "failed" not in tierd.log.read_text()


def test_with_a_bucket_segments_are_copied_once_they_are_clean(tmp_path: Path) -> None:
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *QUICK) as tierd:
        create(tierd, "c", **{"tierd.archive.max.age.ms": "3600000"})
        wanted = write(tierd, "c")
        bases = [int(path.stem) for path in (tmp_path / "data" / "c-0").glob("*.log")]
        until(lambda: tierd.partition("c")["copied_to"] == max(bases), tierd)
        tiers.evict(tierd)
        row = tierd.partition("c")
        assert row["local_start"] == row["copied_to"]
        messages = read(tierd, "c")
        assert known(messages) == wanted
        assert sum(message.offset() < row["local_start"] for message in messages) < RECORDS / 2
        assert tierd.stop() == 0
    said = tierd.log.read_text()
    assert "cleaned" in said
    assert "failed" not in said


def test_committed_offsets_are_compacted_and_found_again(tmp_path: Path) -> None:
    settings = tmp_path / "tierd.toml"
    settings.write_text(
        "offsets.topic.num.partitions = 1\n"
        '[topics."__consumer_offsets"]\n'
        '"internal.segment.bytes" = 20000\n"min.cleanable.dirty.ratio" = 0.01\n"file.delete.delay.ms" = 0\n'
    )
    with running(tmp_path / "data", None, "-c", str(settings), *QUICK) as tierd:
        create(tierd, "c")
        write(tierd, "c")
        consumer = Consumer({"bootstrap.servers": tierd.address, "group.id": "g", "enable.auto.commit": False})
        for offset in range(1, 1500):
            consumer.commit(offsets=[TopicPartition("c", 0, offset)], asynchronous=False)
        until(lambda: tierd.partition("__consumer_offsets")["local_bytes"] < 45_000, tierd)
        consumer.close()
        assert tierd.stop() == 0
        tierd.start()
        again = Consumer({"bootstrap.servers": tierd.address, "group.id": "g"})
        assert again.committed([TopicPartition("c", 0)], timeout=30)[0].offset == 1499
        again.close()
        assert tierd.stop() == 0
