"""The demo's records, in and out, with confluent-kafka: number n goes to partition n % 4, its bytes follow from n."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tierd.base.errors import TierdError
from tierd.config.topic import MIB

RECORD_BYTES = 1024
PARTITIONS = 4
SILENCE_S = 60.0
"""No record for so long means that none will come."""

_POOL = random.Random(7).randbytes(MIB + RECORD_BYTES)  # noqa: S311 (data to look at, no secret)
_BATCH = 1000
_ERRORS = 3
"""As syslog counts."""
_LOOK_S = 0.3

OnBytes = Callable[[int], None]


class TrafficFailed(TierdError):
    """A record was refused, is missing, or is not what was sent."""


@dataclass(slots=True)
class Tally:
    """What was read, by the tier it came from."""

    remote_records: int = 0
    remote_bytes: int = 0
    local_records: int = 0
    local_bytes: int = 0
    next_offset: dict[int, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return self.remote_records + self.local_records


def value_of(n: int) -> bytes:
    at = n * 127 % MIB
    return n.to_bytes(8, "big") + _POOL[at : at + RECORD_BYTES - 8]


def produce(address: str, topic: str, records: int, on_bytes: OnBytes) -> None:
    """Send the records, idempotent and acks=all; return when each is acknowledged. Raises TrafficFailed."""
    failed: list[KafkaError] = []
    acknowledged = 0

    def delivered(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if error is not None:
            failed.append(error)

    def look() -> None:
        on_bytes(acknowledged * RECORD_BYTES)
        if failed:
            raise TrafficFailed(f"tierd refused a record: {failed[0].str()}")

    settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 20, "batch.size": MIB}
    # It warns of each try to get a producer id before it is connected, as if something were wrong.
    producer = Producer({"bootstrap.servers": address, "log_level": _ERRORS, **settings})
    for n in range(records):
        while True:
            try:
                producer.produce(topic, value_of(n), str(n).encode(), n % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:  # as many on their way as may be
                producer.poll(_LOOK_S)
                look()
        if n % _BATCH == 0:
            producer.poll(0)
            look()
    _flush(producer, look)


def _flush(producer: Producer, look: Callable[[], None]) -> None:
    left, moved_s = len(producer), time.monotonic()
    while left:
        now_left = producer.flush(_LOOK_S)
        look()
        if now_left < left:
            left, moved_s = now_left, time.monotonic()
        elif time.monotonic() - moved_s > SILENCE_S:
            raise TrafficFailed(f"{left} records were not acknowledged within {SILENCE_S:.0f} s")


def consume(address: str, topic: str, records: int, local_starts: Mapping[int, int], on_bytes: OnBytes) -> Tally:
    """Read every record from the first on and hold it against what was sent. Raises TrafficFailed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "tierd-demo", "enable.auto.commit": False})
    tally = Tally()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while tally.records < records:
            # consume() waits until it has all it was asked for
            messages = consumer.consume(min(_BATCH, records - tally.records), SILENCE_S)
            if not messages:
                raise TrafficFailed(f"{records - tally.records} of {records} records did not come")
            for message in messages:
                check(message, tally, local_starts)
            on_bytes(tally.remote_bytes + tally.local_bytes)
    finally:
        consumer.close()
    return tally


class Received(Protocol):
    """What is asked of a confluent-kafka Message."""

    def error(self) -> KafkaError | None: ...

    def partition(self) -> int | None: ...

    def offset(self) -> int | None: ...

    def key(self) -> str | bytes | None: ...

    def value(self) -> str | bytes | None: ...


def check(message: Received, tally: Tally, local_starts: Mapping[int, int]) -> None:
    """Count the record, or raise TrafficFailed when it is not the next one that was sent to its partition."""
    error, value, partition, offset = message.error(), message.value(), message.partition(), message.offset()
    if error is not None:
        raise KafkaException(error)
    if partition is None or offset is None or value is None:
        raise TrafficFailed("a record without partition, offset or value came")
    due = tally.next_offset.get(partition, 0)
    n = offset * PARTITIONS + partition
    if offset != due or message.key() != str(n).encode() or value != value_of(n):
        raise TrafficFailed(f"partition {partition}, offset {offset}: not the record that was sent as number {due}")
    tally.next_offset[partition] = offset + 1
    if offset < local_starts[partition]:
        tally.remote_records += 1
        tally.remote_bytes += len(value)
    else:
        tally.local_records += 1
        tally.local_bytes += len(value)
