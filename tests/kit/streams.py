"""Clients that live through kills: a writer, a consumer in a group, and the ledger of what they were told."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import confluent_kafka

from kit import traffic

WAIT_S = 90
_RESTING_S, _A_REST, _IN_WORK = 0.01, 12, 500


@dataclass
class Ledger:
    """One topic's promises: record number -> offset, and the end that a group was told to have committed."""

    topic: str
    size_bytes: int
    acknowledged: dict[int, int] = field(default_factory=dict)
    next_number: int = 0
    committed: int = 0
    failed: list[str] = field(default_factory=list)

    def message(self, number: int) -> traffic.Message:
        return traffic.message(self.topic, number, self.size_bytes)


class Writer:
    """One idempotent producer, at a steady pace over its topics, until `finish`."""

    def __init__(self, address: str, ledgers: list[Ledger], rest_s: float = _RESTING_S) -> None:
        self._ledgers = ledgers
        self._rest_s = rest_s
        self._enough = threading.Event()
        self._told = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": 16_384,
                "message.timeout.ms": WAIT_S * 1000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._enough.is_set():
            for ledger in self._ledgers:
                for _ in range(_A_REST):
                    self._send(ledger)
            self._producer.poll(0)
            self._enough.wait(self._rest_s)
            while len(self._producer) > _IN_WORK and not self._enough.is_set():
                self._producer.poll(0.05)
        if left := self._producer.flush(WAIT_S):
            self._ledgers[0].failed.append(f"{left} records without an answer")

    def _send(self, ledger: Ledger) -> None:
        number = ledger.next_number
        m = ledger.message(number)
        self._producer.produce(ledger.topic, m.value, m.key, partition=0, on_delivery=self._on_delivery(ledger, number))
        ledger.next_number += 1

    def _on_delivery(
        self, ledger: Ledger, number: int
    ) -> Callable[[confluent_kafka.KafkaError | None, confluent_kafka.Message], None]:
        def report(error: confluent_kafka.KafkaError | None, m: confluent_kafka.Message) -> None:
            if error is not None:
                ledger.failed.append(f"{ledger.topic} {number}: {error}")
                return
            offset = m.offset()
            assert offset is not None
            ledger.acknowledged[number] = offset
            self._told.set()

        return report

    def await_answer(self) -> None:
        """Until one more record is acknowledged."""
        self._told.clear()
        assert self._told.wait(WAIT_S), "no record was acknowledged"

    def finish(self) -> None:
        self._enough.set()
        self._thread.join(WAIT_S + 10)
        assert not self._thread.is_alive(), "the producer did not end"


class Follower:
    """A consumer in a group that commits what it has read, and sees whether the group is ever sent back or on."""

    def __init__(self, address: str, ledger: Ledger, group: str) -> None:
        self.group = group
        self._ledger = ledger
        self._enough = threading.Event()
        self._next: int | None = None
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 45_000,  # a start takes long on a busy machine
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._consumer.subscribe([self._ledger.topic], on_assign=self._assigned)
        try:
            while not self._enough.is_set() and not self._ledger.failed:
                for m in self._consumer.consume(300, timeout=0.2):
                    self._take(m)
                self._commit()
        finally:
            self._consumer.close()

    def _assigned(self, consumer: confluent_kafka.Consumer, parts: list[confluent_kafka.TopicPartition]) -> None:
        """Reading begins where the group stands: not before what it was told to be committed."""
        self._next = None
        if not parts:
            return
        try:
            (stands,) = consumer.committed(parts, timeout=WAIT_S)
        except confluent_kafka.KafkaException as error:
            self._ledger.failed.append(f"committed offsets of {self.group}: {error}")
            return
        self._next = max(stands.offset, 0)
        if self._next < self._ledger.committed:
            self._ledger.failed.append(f"{self.group} went back from {self._ledger.committed} to {self._next}")
        consumer.assign([confluent_kafka.TopicPartition(self._ledger.topic, 0, self._next)])

    def _take(self, m: confluent_kafka.Message) -> None:
        error, offset = m.error(), m.offset()
        if error is not None:
            if not error.retriable() and error.code() not in _PASSING:
                self._ledger.failed.append(f"{self.group}: {error}")
            return
        if offset != self._next:
            self._ledger.failed.append(f"{self.group} got offset {offset}, {self._next} was next")
        assert offset is not None
        self._next = offset + 1

    def _commit(self) -> None:
        if self._next is None or self._next <= self._ledger.committed:
            return
        upto = self._next
        place = confluent_kafka.TopicPartition(self._ledger.topic, 0, upto)
        try:
            told = self._consumer.commit(offsets=[place], asynchronous=False) or []
        except confluent_kafka.KafkaException:
            return  # not told: it may have been stored or not
        if [part.error for part in told] == [None]:
            self._ledger.committed = max(self._ledger.committed, upto)

    def finish(self) -> None:
        self._enough.set()
        self._thread.join(WAIT_S + 10)
        assert not self._thread.is_alive(), "the consumer did not end"


_PASSING = frozenset(
    {
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._RESOLVE,
        confluent_kafka.KafkaError._MAX_POLL_EXCEEDED,
        confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""What a consumer says while its broker is away, or the topic not yet made."""
