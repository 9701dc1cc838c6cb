"""What a log should hold, as plain lists and numbers; the engine must say the same (storage/engine/test_model.py)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tierd.storage.batch import encode_batch, parse_header
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

    def again(self) -> memoryview:
        return memoryview(bytearray(self.raw))

    def records(self) -> list[Record]:
        """As the log has them."""
        found = iter_records(self.raw, parse_header(self.raw))
        return [replace(record, offset=self.first + i) for i, record in enumerate(found)]


def client_batch(
    keys: Iterable[int], *, size: int, at_ms: int, codec: int, producer: int | None, sequence: int
) -> bytes:
    """Records of the given keys, a millisecond apart."""
    records = [Record(i, at_ms + i, b"k%d" % key, b"v" * size) for i, key in enumerate(keys)]
    if producer is None:
        return encode_batch(records, codec=codec)
    return encode_batch(records, codec=codec, producer_id=producer, producer_epoch=0, base_sequence=sequence)


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

    # -- what is done: told before, and after it has been done --

    def sending(self, raw: bytes, producer: int | None, sequence: int) -> Sent:
        self.under_way = Sent(raw, producer, sequence, self.end, self.end + parse_header(raw).count)
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
        latest = {record.key: offset for offset, record in self.records.items() if first_dirty <= offset < stop}
        self.doubtful = frozenset(
            offset for offset, record in self.records.items() if start <= offset < latest.get(record.key, -1)
        )

    def cleaned(self) -> None:
        self.records = {offset: record for offset, record in self.records.items() if offset not in self.doubtful}
        self.doubtful = frozenset()

    def moved(self, log_start: int) -> None:
        self.log_start, self.moving_to = log_start, None

    def skip_to(self, log_start: int) -> None:
        """A log that has lost records which nobody may read any more goes on behind them."""
        self.end = max(self.end, log_start)

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
