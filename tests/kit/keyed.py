"""Random histories of keyed records for compaction: plain, idempotent and transactional producers, tombstones."""

from dataclasses import dataclass, field
from random import Random

from kit.logs import T0
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch
from tierd.storage.compression import Codec
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.log import Log
from tierd.storage.records import Record

_NAMES = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    open: bool = False


@dataclass
class History:
    """Appends to a log what chance wants. *clock_ms* moves on with each batch; it is the broker's and the records'."""

    dice: Random
    keys: int = 20
    codecs: tuple[Codec, ...] = tuple(Codec)
    clock_ms: int = T0
    large: float = 0.0
    """How many batches have many records, all of one size."""
    producers: list[_Producer] = field(default_factory=lambda: [_Producer(100 + i) for i in range(4)])
    written: dict[int, Record] = field(default_factory=dict)
    """Every data record by offset."""
    committed: list[Record] = field(default_factory=list)
    markers: int = 0
    _pending: dict[int, list[Record]] = field(default_factory=dict)

    def write(self, log: Log, batches: int, *, roll: float = 0.1) -> None:
        """Append *batches* batches, or a marker now and then, closing the segment with a chance of *roll* before."""
        for _ in range(batches):
            if self.dice.random() < roll:
                log.roll()
            self.clock_ms += self.dice.randrange(1, 50)
            producer = self.dice.choice(self.producers)
            if producer.producer_id % 2 and producer.open and self.dice.random() < 0.3:
                self._end(log, producer)
            else:
                self._data(log, producer)

    def settle(self, log: Log) -> None:
        """End every open transaction, write something after it, and close the segment."""
        for producer in self.producers:
            if producer.open:
                self._end(log, producer)
        log.roll()
        self._plain(log)

    def _plain(self, log: Log) -> None:
        self.clock_ms += 1
        self._append(log, [self._record(0)], _Producer(-1, -1, -1), transactional=False)

    def _data(self, log: Log, producer: _Producer) -> None:
        if self.large and self.dice.random() < self.large:
            records = self._alike()
        else:
            records = [self._record(i) for i in range(self.dice.randrange(1, 8))]
        if producer.producer_id % 2:
            producer.open = True
            self._append(log, records, producer, transactional=True)
        elif self.dice.random() < 0.5:
            self._append(log, records, producer, transactional=False)
        else:
            self._append(log, records, _Producer(-1, -1, -1), transactional=False)

    def _alike(self) -> list[Record]:
        step_ms, value = self.dice.choice((0, 1, -2, 300)), b"v" * self.dice.randrange(40)
        return [
            Record(i, self.clock_ms + i * step_ms, b"k%06d" % self.dice.randrange(8 * self.keys), value)
            for i in range(self.dice.randrange(20, 100))
        ]

    def _record(self, delta: int) -> Record:
        number = self.dice.randrange(self.keys)
        key = f"k{number}".encode() * (1 + number % 9)
        value = None if self.dice.random() < 0.2 else self.dice.choice(_NAMES).encode() * self.dice.randrange(60)
        headers = (("h", b"x"), ("n", None)) if self.dice.random() < 0.2 else ()
        return Record(delta, self.clock_ms + self.dice.randrange(-20, 20), key, value, headers)

    def _append(self, log: Log, records: list[Record], producer: _Producer, *, transactional: bool) -> None:
        batch = encode_batch(
            records,
            base_offset=0,
            codec=self.dice.choice(self.codecs),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            attributes=TRANSACTIONAL if transactional else 0,
        )
        done = log.append(memoryview(bytearray(batch)), now_ms=self.clock_ms, internal=True)
        if producer.producer_id >= 0:
            producer.sequence += len(records)
        placed = [
            Record(
                done.first_offset + record.offset,
                record.timestamp_ms if done.log_append_time_ms is None else done.log_append_time_ms,
                record.key,
                record.value,
                record.headers,
            )
            for record in records
        ]
        self.written |= {record.offset: record for record in placed}
        if transactional:
            self._pending.setdefault(producer.producer_id, []).extend(placed)
        else:
            self.committed += placed

    def _end(self, log: Log, producer: _Producer) -> None:
        commit = self.dice.random() < 0.6
        producer.epoch += 1
        batch = encode_control_batch(
            0,
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp_ms=self.clock_ms,
            coordinator_epoch=0,
        )
        log.append(memoryview(bytearray(batch)), now_ms=self.clock_ms, internal=True)
        producer.sequence, producer.open = 0, False
        self.markers += 1
        records = self._pending.pop(producer.producer_id, [])
        if commit:
            self.committed += records

    def known(self) -> dict[bytes, bytes]:
        """The value of each key in its committed record with the largest offset; none when that is a tombstone."""
        latest: dict[bytes, Record] = {}
        for record in self.committed:
            assert record.key is not None
            if record.key not in latest or latest[record.key].offset < record.offset:
                latest[record.key] = record
        return {key: record.value for key, record in latest.items() if record.value is not None}
