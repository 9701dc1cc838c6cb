"""One walk over a segment for a cut: where it falls, and which transactions the segment has a part of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tierd.base.errors import CorruptFile
from tierd.storage.batch import ControlType, parse_control
from tierd.storage.header import BatchHeader
from tierd.storage.records import iter_records
from tierd.storage.snapshot import ProducerEntry
from tierd.tiering.restore.pieces import Batches
from tierd.tiering.restore.transactions import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a log is to end, unless a transaction is open there; one of both is given."""

    until_ms: int | None = None
    """At the first batch whose largest timestamp reaches this."""
    offset: int | None = None
    """Here, or at the beginning of the batch that holds it."""

    def reached_by(self, header: BatchHeader) -> bool:
        if self.offset is not None:
            return header.next_offset > self.offset
        return self.until_ms is not None and header.max_timestamp_ms >= self.until_ms

    def at(self, header: BatchHeader) -> int:
        """The cut, when that batch is the first to reach it."""
        return header.base_offset if self.offset is None else min(self.offset, header.base_offset)


@dataclass(slots=True)
class Walk:
    """What a walk has seen."""

    bound: Bound
    cut: int | None = None
    places: dict[int, int] = field(default_factory=dict)
    """Offset -> position, of all where a log may have to end."""
    ended: list[Transaction] = field(default_factory=list)
    """In log order."""
    open: dict[int, Transaction] = field(default_factory=dict)
    """By producer; at the end of the walk they are open still."""

    def run(self, producers: Iterable[ProducerEntry], batches: Batches) -> "Walk":
        """*producers*: as they are where *batches* begin. Raises what *batches* raises."""
        for entry in producers:
            if entry.txn_first_offset is not None:
                self.open[entry.producer_id] = Transaction(
                    producer_id=entry.producer_id,
                    epoch=entry.epoch,
                    open_ms=entry.timestamp_ms,
                    first=entry.txn_first_offset,
                    stop=None,
                )
        for position, header, batch in batches:
            if self.cut is None and self.bound.reached_by(header):
                self.cut = self.bound.at(header)
                self.places[self.cut] = position
            if header.control:
                self._end(header, batch)
            elif header.transactional and header.count and header.producer_id not in self.open:
                self._begin(position, header)
        return self

    @property
    def transactions(self) -> Mapping[tuple[int, int], Transaction]:
        """By producer and first offset."""
        return {(one.producer_id, one.first): one for one in (*self.open.values(), *self.ended)}

    def _begin(self, position: int, header: BatchHeader) -> None:
        self.places[header.base_offset] = position
        self.open[header.producer_id] = Transaction(
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            open_ms=header.max_timestamp_ms,
            began_ms=None if header.delete_horizon else min(header.base_timestamp_ms, header.max_timestamp_ms),
            first=header.base_offset,
            stop=None,
        )

    def _end(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        try:
            kind, _ = parse_control(next(iter_records(batch, header)))
        except (CorruptFile, StopIteration):
            return  # as everywhere: nobody knows more of it than that it is there
        if kind not in (ControlType.ABORT, ControlType.COMMIT) or header.producer_id not in self.open:
            return
        began = self.open.pop(header.producer_id)
        epoch, time_ms = header.producer_epoch, header.max_timestamp_ms
        self.ended.append(replace(began, stop=header.next_offset, ended_epoch=epoch, ended_ms=time_ms))
