"""Transactions by real clients: copied exactly once with their offsets, read as read_committed shows them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import confluent_kafka

from tierd.wire.errors import ErrorCode

SMALL = ("--set", "offsets.topic.num.partitions=3", "--set", "transaction.state.log.num.partitions=3")
"""Topics that are made fast."""
WAIT_S = 60.0
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""The broker begins, or the markers of the last transaction are on their way."""


def producer(address: str, transactional_id: str, **config: object) -> confluent_kafka.Producer:
    """Ready for its first transaction."""
    made = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": transactional_id, "linger.ms": 1, **config}
    )
    made.init_transactions(WAIT_S)
    return made


def write(
    made: confluent_kafka.Producer, topic: str, values: Iterable[bytes], *, commit: bool, partitions: int = 1
) -> None:
    """One transaction."""
    made.begin_transaction()
    for number, value in enumerate(values):
        made.produce(topic, value, partition=number % partitions)
    made.flush(WAIT_S)  # what is aborted is to be in the log, too
    (made.commit_transaction if commit else made.abort_transaction)(WAIT_S)


def read(address: str, topic: str, *, committed: bool = True, partitions: int = 1) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of all that a reader of that isolation gets to see now, in order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    seen: list[tuple[int, int, bytes]] = []
    ended: set[int] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"nothing for {WAIT_S} s after {len(seen)} records"
            error = message.error()
            if error is None:
                seen.append((message.partition(), message.offset(), message.value()))
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(seen)


def values(address: str, topic: str, *, committed: bool = True, partitions: int = 1) -> list[bytes]:
    return [value for _, _, value in read(address, topic, committed=committed, partitions=partitions)]


@dataclass(slots=True, kw_only=True)
class Copier:
    """Reads, changes and writes in transactions that hold its offsets: each record comes out once, whatever happens."""

    address: str
    source: str
    target: str
    group: str
    transactional_id: str
    a_transaction: int = 25
    aborts: Callable[[int], bool] = lambda number: False
    """Whether the transaction of that number is aborted (and what it read is read again)."""

    def copy(self, count: int) -> None:
        """Until *count* records are committed."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([self.source])
        made = producer(self.address, self.transactional_id)
        number = done = 0
        try:
            while done < count:
                batch = consumer.consume(min(self.a_transaction, count - done), timeout=WAIT_S)
                assert batch, f"nothing for {WAIT_S} s after {done} records"
                made.begin_transaction()
                for message in batch:
                    assert message.error() is None, message.error()
                    made.produce(self.target, b"copied " + message.value(), message.key())
                made.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_S
                )
                number += 1
                if self.aborts(number):
                    made.flush(WAIT_S)
                    made.abort_transaction(WAIT_S)
                    _rewind(consumer)
                else:
                    made.commit_transaction(WAIT_S)
                    done += len(batch)
        finally:
            consumer.close()


def _rewind(consumer: confluent_kafka.Consumer) -> None:
    """Back to what is committed."""
    for place in consumer.committed(consumer.assignment(), WAIT_S):
        start = confluent_kafka.OFFSET_BEGINNING if place.offset < 0 else place.offset
        consumer.seek(confluent_kafka.TopicPartition(place.topic, place.partition, start))


def committed_offset(address: str, topic: str, group: str, partition: int = 0) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    try:
        offset: int = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], WAIT_S)[0].offset
        return offset
    finally:
        consumer.close()
