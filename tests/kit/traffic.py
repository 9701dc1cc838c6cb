"""Deterministic records and two real clients that write and read them; what came out is compared with what went in."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

T0_MS = 1_700_000_000_000
STEP_MS = 10


@dataclass(frozen=True, slots=True)
class Message:
    offset: int
    key: bytes
    value: bytes
    timestamp_ms: int


def message(seed: str, number: int, size_bytes: int) -> Message:
    """Record *number* of a stream; incompressible enough that sizes stay what they look like."""
    key = f"{seed}-{number}".encode()
    block = hashlib.sha256(key).digest()
    value = (block * (size_bytes // len(block) + 1))[:size_bytes]
    return Message(number, key, value, T0_MS + number * STEP_MS)


def stream(seed: str, start: int, stop: int, size_bytes: int) -> Iterator[Message]:
    return (message(seed, n, size_bytes) for n in range(start, stop))


def digest(messages: Iterable[Message]) -> tuple[int, str]:
    """How many, and a checksum over offsets, keys, values and timestamps in order."""
    total, sha = 0, hashlib.sha256()
    for m in messages:
        total += 1
        sha.update(b"%d|%b|%b|%d\n" % (m.offset, m.key, m.value, m.timestamp_ms))
    return total, sha.hexdigest()


def produce_confluent(address: str, topic: str, messages: Iterable[Message], **config: Any) -> None:
    """Idempotent, acks=all, partition 0; raises when any record was not acknowledged."""
    failed: list[str] = []

    def reported(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "linger.ms": 5, **config}
    )
    for m in messages:
        while True:
            try:
                producer.produce(topic, m.value, m.key, partition=0, timestamp=m.timestamp_ms, on_delivery=reported)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(60)
    assert left == 0, f"{left} records were not acknowledged in 60 s"
    assert not failed, failed[:3]


def error_of_one(address: str, topic: str) -> int | None:
    """The error of one record whose producer does not try again; None when it was taken."""
    errors: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "retries": 0, "log_level": 0})
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    (error,) = errors
    return None if error is None else error.code()


def consume_confluent(address: str, topic: str, start: int, stop: int, **config: Any) -> list[Message]:
    """Offsets [start, stop) of partition 0 by assign and seek."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            **config,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
    got: list[Message] = []
    try:
        while not got or got[-1].offset < stop - 1:
            batch = consumer.consume(min(10_000, stop - start - len(got)), timeout=30)
            assert batch, f"nothing for 30 s after {len(got)} of {stop - start} records"
            got.extend(_of_confluent(m) for m in batch)
    finally:
        consumer.close()
    return got


def group_confluent(address: str, topic: str, group: str, count: int) -> list[Message]:
    """*count* records by subscribing; offsets are committed at the end."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    got: list[Message] = []
    try:
        while len(got) < count:
            batch = consumer.consume(count - len(got), timeout=30)
            assert batch, f"nothing for 30 s after {len(got)} of {count} records"
            got.extend(_of_confluent(m) for m in batch)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return got


def committed_confluent(address: str, topic: str, group: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        offset: int = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=30)[0].offset
        return offset
    finally:
        consumer.close()


def offset_at_confluent(address: str, topic: str, timestamp_ms: int) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "times"})
    try:
        asked = [confluent_kafka.TopicPartition(topic, 0, timestamp_ms)]
        offset: int = consumer.offsets_for_times(asked, timeout=30)[0].offset
        return offset
    finally:
        consumer.close()


def _of_confluent(m: confluent_kafka.Message) -> Message:
    assert m.error() is None, m.error()
    return Message(m.offset(), m.key(), m.value(), m.timestamp()[1])


def produce_kafka_python(address: str, topic: str, messages: Iterable[Message]) -> None:
    producer = KafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True, linger_ms=5)
    try:
        sent = [producer.send(topic, m.value, m.key, partition=0, timestamp_ms=m.timestamp_ms) for m in messages]
        for future in sent:
            future.get(30)
    finally:
        producer.close()


def consume_kafka_python(address: str, topic: str, start: int, stop: int) -> list[Message]:
    part = KafkaPythonPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=30_000, enable_auto_commit=False)
    got: list[Message] = []
    try:
        consumer.assign([part])
        consumer.seek(part, start)
        for record in consumer:
            got.append(Message(record.offset, record.key, record.value, record.timestamp))
            if record.offset >= stop - 1:
                break
    finally:
        consumer.close()
    return got


def group_kafka_python(address: str, topic: str, group: str, count: int) -> list[Message]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
        enable_auto_commit=False,
    )
    got: list[Message] = []
    try:
        for record in consumer:
            got.append(Message(record.offset, record.key, record.value, record.timestamp))
            if len(got) == count:
                break
        consumer.commit()
    finally:
        consumer.close()
    return got


def offset_at_kafka_python(address: str, topic: str, timestamp_ms: int) -> int:
    consumer = KafkaConsumer(bootstrap_servers=address)
    try:
        part = KafkaPythonPartition(topic, 0)
        found = consumer.offsets_for_times({part: timestamp_ms})[part]
        return int(found.offset)
    finally:
        consumer.close()
