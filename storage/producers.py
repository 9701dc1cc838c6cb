"""What a partition remembers of each producer: duplicates, gaps, fencing, open transactions (ENGINE.md, "Append").

Pure state: batches in, verdicts out. `check` decides about a batch before it is written, `update` takes in one that
is; recovery calls only `update`, since what is in the log was accepted once.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from tierd.storage.batch import BatchHeader, ControlType
from tierd.storage.errors import CoordinatorFenced, InTransaction, OutOfOrderSequence, ProducerFenced
from tierd.storage.snapshot import ProducerEntry

REMEMBERED_BATCHES = 5
"""Duplicates of this many batches are recognised; a client may have as many requests in flight."""
_SEQUENCES = 2**31


@dataclass(slots=True)
class WrittenBatch:
    """One batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(frozen=True, slots=True)
class CompletedTxn:
    """A transaction that a marker has just ended."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool
    last_stable: int
    """Last stable offset after the marker."""


class Producer:
    """The state of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "producer_id", "seen_ms", "timestamp_ms", "txn_first_offset")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self.timestamp_ms = -1
        self.coordinator_epoch: int | None = None
        self.txn_first_offset: int | None = None
        self.seen_ms = 0
        """Wall clock when it was last heard of; record times may be of any age."""

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def find(self, first_sequence: int, last_sequence: int) -> WrittenBatch | None:
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    @property
    def next_sequence(self) -> int:
        return (self.batches[-1].last_sequence + 1) % _SEQUENCES if self.batches else 0

    def entry(self) -> ProducerEntry:
        last = self.batches[-1] if self.batches else None
        return ProducerEntry(
            producer_id=self.producer_id,
            epoch=self.epoch,
            last_sequence=last.last_sequence if last else None,
            last_offset=last.last_offset if last else None,
            offset_delta=last.offset_delta if last else 0,
            timestamp_ms=self.timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
            txn_first_offset=self.txn_first_offset,
        )


class Producers:
    """All producers of one partition. Loop thread only."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """Producer id -> first offset of its open transaction; offsets ascend, for transactions begin in log order."""

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def producers(self) -> Iterable[Producer]:
        return self._producers.values()

    @property
    def first_open(self) -> tuple[int, int] | None:
        """(first offset, producer id) of the oldest open transaction, or None."""
        for producer_id, first_offset in self._open.items():
            return first_offset, producer_id
        return None

    @property
    def largest_id(self) -> int | None:
        return max(self._producers, default=None)

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch that *header* repeats, or None when it is new and may be written.

        Raises ProducerFenced, OutOfOrderSequence and InTransaction.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None  # its state may have expired: any first sequence is taken
        first = header.base_sequence
        duplicate = None
        _check_epoch(producer, header.producer_epoch)
        if header.producer_epoch > producer.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} at sequence {first}, not 0"
                )
        else:
            duplicate = producer.find(first, last_sequence(header))
            if duplicate is None and first != producer.next_sequence:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sends sequence {first}, {producer.next_sequence} is next"
                )
        if producer.txn_first_offset is not None and duplicate is None and not header.transactional:
            raise InTransaction(
                f"producer {header.producer_id} has a transaction open since offset {producer.txn_first_offset}: "
                "a batch outside of it must wait for its end"
            )
        return duplicate

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether exactly this producer has a transaction open."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.txn_first_offset is not None and producer.epoch == epoch

    def coordinator_epoch(self, producer_id: int) -> int:
        """Of the last marker that ended a transaction of this producer here; -1 when none is known."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None or producer.coordinator_epoch is None else producer.coordinator_epoch

    def check_epoch(self, header: BatchHeader) -> None:
        """All that is asked of a batch of the broker's own. Raises ProducerFenced."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            _check_epoch(producer, header.producer_epoch)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, raised: bool) -> bool:
        """Whether the end of a transaction must be written: False when it is there already.

        *raised*: the end of each transaction raises the epoch (TV2), so that an open one must be older than its marker.
        Raises ProducerFenced and CoordinatorFenced.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return True
        is_open = producer.txn_first_offset is not None
        _check_epoch(producer, epoch, rise=int(raised and is_open))
        known = producer.coordinator_epoch
        if known is not None and known > coordinator_epoch:
            raise CoordinatorFenced(
                f"producer {producer_id}: coordinator epoch {coordinator_epoch} ends a transaction, {known} is known"
            )
        return is_open or producer.epoch != epoch or known != coordinator_epoch

    def update(self, header: BatchHeader, seen_ms: int) -> None:
        """Take in a data batch with a producer id that is in the log now."""
        producer = self._entered(header.producer_id, header.producer_epoch, seen_ms)
        producer.batches.append(_written(header))
        producer.timestamp_ms = header.max_timestamp_ms
        if header.transactional and producer.txn_first_offset is None:
            producer.txn_first_offset = header.base_offset
            self._open[header.producer_id] = header.base_offset

    def end_txn(self, header: BatchHeader, kind: int, coordinator_epoch: int, seen_ms: int) -> CompletedTxn | None:
        """Take in a transaction marker; None when its producer had no transaction open here."""
        producer = self._entered(header.producer_id, header.producer_epoch, seen_ms)
        producer.timestamp_ms = header.max_timestamp_ms
        producer.coordinator_epoch = coordinator_epoch
        first_offset, producer.txn_first_offset = producer.txn_first_offset, None
        self._open.pop(header.producer_id, None)
        if first_offset is None:
            return None
        oldest = self.first_open
        return CompletedTxn(
            producer_id=header.producer_id,
            first_offset=first_offset,
            marker_offset=header.base_offset,
            aborted=kind == ControlType.ABORT,
            last_stable=oldest[0] if oldest else header.base_offset + 1,
        )

    def recall(self, earlier: Iterable[BatchHeader]) -> None:
        """Take in data batches from before what is known, oldest first; of unknown producers or epochs none counts."""
        found: dict[int, list[WrittenBatch]] = {}
        for header in earlier:
            producer = self._producers.get(header.producer_id)
            if (
                producer is not None
                and producer.batches
                and producer.epoch == header.producer_epoch
                and header.last_offset < producer.batches[0].first_offset
            ):
                found.setdefault(header.producer_id, []).append(_written(header))
        for producer_id, batches in found.items():
            producer = self._producers[producer_id]
            room = REMEMBERED_BATCHES - len(producer.batches)
            producer.batches.extendleft(reversed(batches[-room:] if room else []))

    def _entered(self, producer_id: int, epoch: int, seen_ms: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        else:
            producer.enter_epoch(epoch)
        producer.seen_ms = seen_ms
        return producer

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers unheard of for *after_ms*, those with an open transaction apart; give their number."""
        gone = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.txn_first_offset is None and now_ms - producer.seen_ms > after_ms
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def entries(self) -> list[ProducerEntry]:
        """What a snapshot holds: of each producer the last batch only."""
        return [producer.entry() for producer in self._producers.values()]

    @classmethod
    def from_entries(cls, entries: Iterable[ProducerEntry], seen_ms: int) -> "Producers":
        """The state that a snapshot holds. Being loaded counts as being heard of: Kafka drops those whose *record*
        time is old, and so takes a retry of old data for new; keeping them is the safe side, `expire` bounds it."""
        self = cls()
        for entry in entries:
            producer = self._producers[entry.producer_id] = Producer(entry.producer_id, entry.epoch)
            producer.timestamp_ms = entry.timestamp_ms
            producer.coordinator_epoch = entry.coordinator_epoch
            producer.txn_first_offset = entry.txn_first_offset
            producer.seen_ms = seen_ms
            if entry.last_offset is not None and entry.last_sequence is not None:
                producer.batches.append(
                    WrittenBatch(
                        (entry.last_sequence - entry.offset_delta) % _SEQUENCES,
                        entry.last_sequence,
                        entry.last_offset,
                        entry.offset_delta,
                        entry.timestamp_ms,
                    )
                )
        in_txn = [p for p in self._producers.values() if p.txn_first_offset is not None]
        for producer in sorted(in_txn, key=attrgetter("txn_first_offset")):
            assert producer.txn_first_offset is not None
            self._open[producer.producer_id] = producer.txn_first_offset
        return self


def _check_epoch(producer: Producer, epoch: int, *, rise: int = 0) -> None:
    if epoch < producer.epoch + rise:
        raise ProducerFenced(
            f"producer {producer.producer_id} writes in epoch {epoch}, epoch {producer.epoch} is known"
        )


def _written(header: BatchHeader) -> WrittenBatch:
    return WrittenBatch(
        header.base_sequence,
        last_sequence(header),
        header.last_offset,
        header.last_offset_delta,
        header.max_timestamp_ms,
    )


def last_sequence(header: BatchHeader) -> int:
    """Sequence of the batch's last record; they wrap from 2^31-1 to 0."""
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
