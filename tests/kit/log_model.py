"""What a log should hold, as plain lists and numbers; the engine must say the same (storage/engine/test_model.py)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tierd.storage.batch import encode_batch, parse_header
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.log import Log
from tierd.storage.records import Record, iter_records


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch as a client sends it, and the offsets that it gets."""

    raw: bytes
    producer: int | None
    sequence: int
    first: int
    next_offset: int
    commit: bool | None = None
    """Of the end of a transaction: how it ends."""
    transactional: bool = False

    def again(self) -> memoryview:
        return memoryview(bytearray(self.raw))

    def records(self) -> list[Record]:
        """As the log has them."""
        found = iter_records(self.raw, parse_header(self.raw))
        return [replace(record, offset=self.first + i) for i, record in enumerate(found)]


def client_batch(
    keys: Iterable[int],
    *,
    size: int,
    at_ms: int,
    codec: int,
    producer: int | None,
    sequence: int,
    epoch: int = 0,
    transactional: bool = False,
) -> bytes:
    """Records of the given keys, a millisecond apart."""
    records = [Record(i, at_ms + i, b"k%d" % key, b"v" * size) for i, key in enumerate(keys)]
    if producer is None:
        return encode_batch(records, codec=codec)
    return encode_batch(
        records,
        codec=codec,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )


@dataclass(slots=True)
class Transactions:
    """What follows from all that was sent."""

    open: dict[int, int] = field(default_factory=dict)
    """Producer -> offset of the first batch."""
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    """What comes next."""
    ended: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """Marker, first offset, producer, whether it was aborted."""
    data: dict[int, list[range]] = field(default_factory=dict)
    """Marker -> offsets of its transaction; those of open ones under the negated producer."""

    def take(self, sent: Sent) -> None:
        producer = sent.producer
        assert producer is not None
        if sent.commit is None:
            self.open.setdefault(producer, sent.first)
            self.sequences[producer] = sent.sequence + sent.next_offset - sent.first
            self.data.setdefault(-producer, []).append(range(sent.first, sent.next_offset))
        else:
            self.ended.append((sent.first, self.open.pop(producer), producer, not sent.commit))
            self.epochs[producer], self.sequences[producer] = self.epochs.get(producer, 0) + 1, 0
            self.data[sent.first] = self.data.pop(-producer)

    @property
    def aborted(self) -> list[tuple[int, int, int]]:
        return [(marker, first, producer) for marker, first, producer, aborted in self.ended if aborted]

    def aborted_offsets(self) -> set[int]:
        return {offset for marker, _, _ in self.aborted for span in self.data[marker] for offset in span}


@dataclass
class Model:
    """The list. Records leave it by compaction and by loss; those below log start and local start stay, unasked for."""

    records: dict[int, Record] = field(default_factory=dict)
    ever: dict[int, Record] = field(default_factory=dict)
    """Those that were superseded, too: until a cleaning is on the disk they may come back."""
    sent: list[Sent] = field(default_factory=list)
    end: int = 0
    log_start: int = 0
    durable_to: int = 0
    """What lies below was promised to survive any cut."""
    under_way: Sent | None = None
    strangers: set[int] = field(default_factory=set)
    """Producers of which a cut has left no trace and no promise: the log may know them or not."""
    moving_to: int | None = None
    """Where log start is about to go."""
    doubtful: frozenset[int] = frozenset()
    """Records that a cleaning under way may have taken."""
    _known: tuple[object, Transactions] | None = None
    """What follows from `sent`, and from what of it."""

    # -- what is done: told before, and after it has been done --

    def sending(
        self,
        raw: bytes,
        producer: int | None,
        sequence: int,
        *,
        commit: bool | None = None,
        transactional: bool = False,
    ) -> Sent:
        stop = self.end + parse_header(raw).count
        self.under_way = Sent(raw, producer, sequence, self.end, stop, commit, transactional)
        return self.under_way

    def appended(self) -> None:
        assert self.under_way is not None
        sent, self.under_way = self.under_way, None
        self.sent.append(sent)
        found = {record.offset: record for record in sent.records()}
        self.records |= found
        self.ever |= found
        self.end = sent.next_offset

    def cleaning(self, start: int, first_dirty: int, stop: int) -> None:
        """Keys are taken from [first_dirty, stop), records out of [start, stop)."""
        markers, aborted = self.markers(), self.transactions().aborted_offsets()
        data = {offset: record for offset, record in self.records.items() if offset not in markers}
        kept = {offset: record for offset, record in data.items() if offset not in aborted}
        latest = {record.key: offset for offset, record in kept.items() if first_dirty <= offset < stop}
        self.doubtful = frozenset(
            offset
            for offset, record in data.items()
            if start <= offset < (stop if offset in aborted else latest.get(record.key, -1))
        )

    def cleaned(self) -> None:
        self.records = {offset: record for offset, record in self.records.items() if offset not in self.doubtful}
        self.doubtful = frozenset()

    def moved(self, log_start: int) -> None:
        self.log_start, self.moving_to = log_start, None

    def skip_to(self, log_start: int) -> None:
        """A log that has lost records which nobody may read any more goes on behind them."""
        self.end = max(self.end, log_start)

    # -- transactions --

    def transactions(self) -> Transactions:
        seen = len(self.sent), self.sent[-1] if self.sent else None, frozenset(self.strangers)
        if self._known is None or self._known[0] != seen:
            found = Transactions()
            for sent in self.sent:
                if (sent.transactional or sent.commit is not None) and sent.producer not in self.strangers:
                    found.take(sent)
            self._known = seen, found
        return self._known[1]

    def markers(self) -> set[int]:
        return {sent.first for sent in self.sent if sent.commit is not None}

    @property
    def stable(self) -> int:
        return min(max(min(self.transactions().open.values(), default=self.end), self.log_start), self.end)

    # -- what a producer may expect --

    def last_of(self, producer: int) -> Sent | None:
        assert producer not in self.strangers
        return next((sent for sent in reversed(self.sent) if sent.producer == producer), None)

    def next_sequence(self, producer: int) -> int:
        last = self.last_of(producer)
        return 0 if last is None else last.sequence + last.next_offset - last.first

    # -- what must be there --

    def within(self, start: int, stop: int) -> list[Record]:
        return [record for offset, record in self.records.items() if start <= offset < stop]

    def times(self, start: int) -> list[tuple[int, int]]:
        """(offset, timestamp) of every record from *start* on."""
        return [(record.offset, record.timestamp_ms) for record in self.within(start, self.end)]

    def learn(self, log: Log, *, lost: bool) -> None:
        """After a cut (*lost*: what was not fsynced may have gone): see that nothing promised is missing, and nothing
        there was never written; then take what is there for the truth."""
        promised = self.durable_to if lost else self.end
        if self.under_way is not None and log.log_end == self.under_way.next_offset:
            self.appended()
        self.under_way = None
        assert promised <= log.log_end <= self.end
        assert log.log_start in (self.log_start, self.moving_to)
        found = {record.offset: record for record in stored(log)}
        for record in self.within(log.local_start, promised):
            assert found.get(record.offset) == record or record.offset in self.doubtful, record
        for offset, record in found.items():
            assert self.ever[offset] == record
        if not log.settings.compacted:
            assert set(holes(log)) <= set(log.gaps)
        self._take(log, found, promised, lost=lost)

    def _take(self, log: Log, found: dict[int, Record], promised: int, *, lost: bool) -> None:
        gone = {record.offset: record for record in self.within(0, log.local_start)}
        self.records = gone | found
        bases = {header.base_offset for header, _ in log.batches()}
        lasting = [sent for sent in self.sent if sent.first < promised or sent.first in bases]
        unseen = {sent.producer for sent in self.sent if promised <= sent.first < log.local_start}
        self.strangers |= unseen - {None, *(sent.producer for sent in lasting if sent.first >= log.local_start)}
        there = {sent.first for sent in lasting}  # of what is lost inside, a snapshot behind it may tell
        inside = {sent.producer for sent in self.sent if sent.first < log.log_end and sent.first not in there}
        self.strangers |= inside - {None}
        self.sent = lasting
        self.end, self.doubtful = log.log_end, frozenset()
        if lost:
            self.ever, self.durable_to = dict(self.records), self.end
        self.moved(log.log_start)


def stored(log: Log) -> list[Record]:
    """Every local record."""
    return [record for header, raw in log.batches() for record in iter_records(raw, header)]


def holes(log: Log) -> list[tuple[int, int]]:
    """Offsets between one local batch and the next."""
    found = [(header.base_offset, header.next_offset) for header, _ in log.batches()]
    return [(before[1], after[0]) for before, after in pairwise(found) if before[1] < after[0]]
