"""The whole state directory is deleted, and the next start answers as before."""

import shutil
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from kit import tiers
from kit.answers import LATEST, Asker, Fetched
from kit.daemon import Daemon, running
from kit.golden import golden
from tierd.storage.batch import walk

pytestmark = pytest.mark.e2e

EARLIEST, LARGEST, TIMES = -2, -3, (0, 1_700_000_000_100, 1_800_000_000_000)
KAFKA = ("codec-zstd-0", "compacted-txn-0", "txn-0")
NOT_CHANGING = ("--set", "local.retention.ms=-1", "--set", "log.retention.check.interval.ms=1h")


def answers(daemon: Daemon, names: list[str]) -> dict[str, Any]:
    """Offsets, every byte of both isolation levels, settings, and what a group has committed."""
    found: dict[str, Any] = {"topics": sorted(tiers.topics(daemon) - {"__consumer_offsets"})}
    admin = AdminClient({"bootstrap.servers": daemon.address})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in found["topics"]]
    for resource, future in admin.describe_configs(resources).items():
        entries = future.result(60).values()
        found[f"settings of {resource.name}"] = sorted((one.name, one.value, one.is_default) for one in entries)
    with Asker(daemon.address) as asker:
        for topic in names:
            asked = [(when, level) for level in (0, 1) for when in (EARLIEST, LARGEST, *TIMES)]
            offsets = [asker.list_offsets(topic, when, level) for when, level in asked]
            end = asker.list_offsets(topic, LATEST)
            found[topic] = offsets, end.offset, end.error, [bytes_of(asker, topic, level) for level in (0, 1)]
    found["group"] = committed(daemon, "made")
    return found


def bytes_of(asker: Asker, topic: str, isolation: int) -> tuple[bytes, set[tuple[int, int]]]:
    """All that a reader gets, and the aborted transactions that it is told of."""
    offset, raw, aborted = asker.list_offsets(topic, EARLIEST).offset, b"", set[tuple[int, int]]()
    stop = asker.list_offsets(topic, LATEST, isolation).offset

    def more() -> Fetched | None:
        got = asker.fetch(topic, offset, 1 << 20, isolation)
        assert got.error == 0, (topic, offset, got.error)
        return got if got.records else None

    while offset < stop:
        got = tiers.until(f"records of {topic} from {offset}", more)
        raw += got.records
        aborted |= set(got.aborted or ())
        offset = [header.next_offset for _, header in walk(got.records)][-1]
    return raw, aborted


def committed(daemon: Daemon, topic: str, offset: int | None = None) -> list[Any]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": daemon.address, "group.id": "g"})
    try:
        if offset is not None:
            consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset, "m")], asynchronous=False)
        found = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], 60)
        return [(one.offset, one.metadata) for one in found]
    finally:
        consumer.close()


def test_no_answer_changes(tmp_path: Path) -> None:
    """Of topics that were made here, with settings and without, and of those that Kafka wrote."""
    for name in KAFKA:
        shutil.copytree(golden("kafka") / "clean" / name, tmp_path / "data" / name)
    quick = ("--set", "remote.head.interval.ms=100", "--set", "segment.bytes=1MiB", *NOT_CHANGING)
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *quick) as daemon:
        names = sorted({row["topic"] for row in daemon.status()["partitions"] if not row["topic"].startswith("__")})
        tiers.create(daemon, "made", max_message_bytes="2000000")
        tiers.create(daemon, "plain")
        tiers.fill(daemon, "made", 2)
        committed(daemon, "made", 70)
        daemon.verb("copy", "--wait", "--roll", expect=None)
        daemon.verb("evict", expect=None)
        folder = tmp_path / "bucket" / "tierd" / "topics"
        tiers.until("topic files", lambda: len(list(folder.iterdir())) == len(names) + 2, timeout_s=20)
        before = answers(daemon, [*names, "made"])
        assert daemon.stop() == 0
        shutil.rmtree(tmp_path / "data.tierd")
        daemon.start()
        after = answers(daemon, [*names, "made"])
        assert daemon.stop() == 0
    for what in before:
        assert after[what] == before[what], what
    assert before["group"] == [(70, "m")]
