"""The same directory under tierd and a real Kafka, in either order: no recovery, no complaint, the same answers."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kit import tiers, traffic
from kit.answers import check
from kit.compaction import clean
from kit.daemon import running
from kit.golden import golden
from kit.kafka import Kafka, opened
from kit.kafka import running as kafka_running
from kit.logs import T0, Place, batch, golden_batches, golden_settings
from kit.recording import record
from kit.transactions import SMALL
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage import names
from tierd.storage.batch import parse_header
from tierd.storage.directory import LogDirectory

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(600)]

REPLAYED = {
    "codec-none": "clean", "codec-gzip": "clean", "codec-snappy": "clean", "codec-lz4": "clean", "codec-zstd": "clean",
    "logappend": "clean", "idempotent": "clean", "txn": "clean", "timestamps": "clean", "tiny": "clean",
    "big": "clean", "prealloc": "clean", "hanging": "final",
}  # fmt: skip
"""Topics whose recorded batches tierd writes anew."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BY_CLIENTS = {
    **{f"by-{codec}": {} for codec in CODECS},
    "by-logappend": {"message.timestamp.type": "LogAppendTime"},
    "by-prealloc": {"preallocate": "true", "segment.bytes": "1048576"},
    "by-delrec": {"segment.bytes": "1048576"},
}
OFFSETS = "__consumer_offsets"
GROUP, TXN_GROUP = "readers", "readers-in-transactions"


# -- what tierd writes --


def tierds(root: Path) -> Path:
    """A data directory with a topic of every kind, made by the log engine and then by clients of a whole tierd."""
    place = Place(root)
    directory = place.open()
    for topic, recording in REPLAYED.items():
        replay(directory, topic, golden("kafka") / recording / f"{topic}-0")
    replay(directory, "deleted", golden("kafka") / "clean" / "codec-none-0").move_log_start(137)
    compact(directory, place.clock.now_ms())
    directory.close(clean=True)
    with running(place.data, None, *SMALL) as tierd:
        by_clients(tierd.address)
        transactions(tierd.address, "by-txn")
        undecided(tierd.address, "by-hanging")
        assert tierd.stop() == 0
    return place.data


def replay(directory: LogDirectory, topic: str, source: Path) -> Any:
    settings = replace(golden_settings(topic), message_timestamp_after_max_ms=2**62, file_delete_delay_ms=0)
    log = directory.create(TopicPartition(topic, 0), Uuid(topic.encode().ljust(16)[:16]), settings)
    log.begin(0, 0)
    for raw in golden_batches(source):
        want = parse_header(raw)
        raw[:8] = bytes(8)
        assert log.append(raw, now_ms=want.max_timestamp_ms, internal=True).first_offset == want.base_offset
    return log


def compact(directory: LogDirectory, now_ms: int) -> None:
    """Keys that come again and tombstones, cleaned twice; and transactions, cleaned once."""
    settings = TopicSettings(
        cleanup_policy=frozenset({"compact"}), internal_segment_bytes=8192, index_interval_bytes=512,
        segment_index_bytes=2048, min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0, remote_storage_enable=False,
    )  # fmt: skip
    log = directory.create(TopicPartition("compacted", 0), Uuid(b"compacted       "), settings)
    log.begin(0, 0)
    for part in range(2):
        for n in range(300):
            number = part * 300 + n
            raw = batch(1, size=n % 5 and 60, at_ms=T0 + number * 1000, key=b"key-%d" % (n % 37))
            log.append(raw, now_ms=now_ms)
        log.roll()
        assert clean(log, now_ms) is not None
    txns = replay(directory, "compacted-txn", golden("kafka") / "clean" / "txn-0")
    txns.settings = replace(settings, cleanup_policy=frozenset({"compact"}))
    txns.roll()
    assert clean(txns, now_ms) is not None


# -- what clients write to either --


def by_clients(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, 1, 1, config=c) for name, c in BY_CLIENTS.items()]).values():
        future.result(30)
    for topic in BY_CLIENTS:
        codec = topic.removeprefix("by-") if topic.removeprefix("by-") in CODECS else "none"
        sent = traffic.stream(topic, 0, 3000 if topic == "by-delrec" else 700, 1000)
        traffic.produce_confluent(address, topic, sent, **{"compression.type": codec, "batch.size": 20_000})
    gone = confluent_kafka.TopicPartition("by-delrec", 0, 1500)
    for deleted in admin.delete_records([gone], request_timeout=30).values():
        deleted.result()
    traffic.group_confluent(address, "by-none", GROUP, 300)


def ask(kafka: Kafka, into: Path) -> Path:
    """About all topics but Kafka's own, which change with every client that looks."""
    topics = AdminClient({"bootstrap.servers": kafka.address}).list_topics(timeout=30).topics
    return record(kafka.address, sorted(topic for topic in topics if not topic.startswith("__")), kafka.data, into)


def agree(address: str, recording: Path) -> None:
    report = check(address, recording)
    assert report.agreed == report.asked > 3000, str(report)


def committed(address: str) -> tuple[int, int]:
    """By the plain group, and by the one whose offsets are committed in transactions."""
    plain, in_transactions = (traffic.committed_confluent(address, "by-none", group) for group in (GROUP, TXN_GROUP))
    return plain, in_transactions


def test_what_tierd_wrote_kafka_takes_as_its_own(tmp_path: Path) -> None:
    data = tierds(tmp_path / "tierd")
    logs = list(topics_in(data))
    with opened(tmp_path / "kafka", data, sorted(set(logs))) as kafka:
        assert kafka.complaints() == []
        assert kafka.recovered_nothing(len(logs))
        answers = ask(kafka, tmp_path / "kafkas.jsonl")
        offset = committed(kafka.address)
        traffic.produce_confluent(kafka.address, "by-zstd", traffic.stream("by-zstd", 700, 800, 1000))
        assert kafka.complaints() == []
    with running(data) as tierd:
        agree(tierd.address, answers)
        assert committed(tierd.address) == offset == (300, 11)
        assert tierd.stop() == 0


# -- what Kafka writes --

KAFKA = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100", "log.retention.ms": "-1"}
COMPACTING = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "16384",
    "delete.retention.ms": "100000000",
}  # fmt: skip


def kafkas(kafka: Kafka) -> None:
    """A topic of every kind in a Kafka that has just been formatted."""
    by_clients(kafka.address)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for topic, config in (("compacted", COMPACTING), ("txn", {}), ("hanging", {})):
        admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    keyed(kafka.address)
    transactions(kafka.address, "txn")
    undecided(kafka.address, "hanging")
    checkpoint = kafka.data / names.CLEANER_CHECKPOINT
    tiers.until("the checkpoint", lambda: checkpoint.exists() and b"compacted 0 " in checkpoint.read_bytes())


def keyed(address: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "batch.size": 2000})
    for n in range(600):
        producer.produce("compacted", None if n % 9 == 0 else b"v" * 300, b"key-%d" % (n % 37), timestamp=T0 + n)
    producer.flush(30)


def transactions(address: str, topic: str) -> confluent_kafka.Producer:
    """Some that are committed, some that are aborted, each with an offset of a group."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": f"writes-{topic}",
            "transaction.timeout.ms": 900_000,  # so that one that is left open stays so
        }
    )
    producer.init_transactions(60)
    members = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": TXN_GROUP})
    for n in range(12):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, b"%d-%d" % (n, i), timestamp=T0 + n)
        place = confluent_kafka.TopicPartition("by-none", 0, n)
        producer.send_offsets_to_transaction([place], members.consumer_group_metadata(), 60)
        producer.flush(30)
        (producer.abort_transaction if n % 3 == 1 else producer.commit_transaction)(30)
    members.close()
    return producer


def undecided(address: str, topic: str) -> None:
    """As above, and a last one whose producer goes away."""
    producer = transactions(address, topic)
    producer.begin_transaction()
    producer.produce(topic, b"never decided")
    producer.flush(30)


def test_what_kafka_wrote_tierd_goes_on_with_and_gives_back(tmp_path: Path) -> None:
    with kafka_running(tmp_path / "first", KAFKA) as kafka:
        kafkas(kafka)
        answers = ask(kafka, tmp_path / "first.jsonl")
        offset = committed(kafka.address)
        data = tmp_path / "tierd"
    shutil.copytree(kafka.data, data)
    with running(data) as tierd:
        agree(tierd.address, answers)
        assert committed(tierd.address) == offset == (300, 11)
        go_on(tierd.address)
        assert tierd.stop() == 0
    logs = [topic for topic in topics_in(data) if topic != "__cluster_metadata"]
    with opened(tmp_path / "second", data, sorted(set(logs))) as kafka:
        assert kafka.complaints() == []
        assert kafka.recovered_nothing(len(logs))
        answers = ask(kafka, tmp_path / "second.jsonl")
        assert committed(kafka.address) == (450, 11)
    with running(data) as tierd:
        agree(tierd.address, answers)
        assert committed(tierd.address) == (450, 11)
        assert tierd.stop() == 0


def go_on(address: str) -> None:
    """More of everything that tierd takes."""
    for codec in CODECS:
        more = traffic.stream(f"by-{codec}", 700, 900, 1000)
        traffic.produce_confluent(address, f"by-{codec}", more, **{"compression.type": codec})
    for topic in ("by-logappend", "by-prealloc", "txn"):
        traffic.produce_confluent(address, topic, traffic.stream(topic, 0, 300, 500))
    transactions(address, "txn")
    transactions(address, "hanging")  # first of all it ends the one that was left open
    traffic.group_confluent(address, "by-none", GROUP, 150)


def topics_in(data: Path) -> Iterator[str]:
    for path in data.iterdir():
        tp = names.parse_partition_directory(path.name)
        if tp is not None and path.is_dir():
            yield tp.topic
