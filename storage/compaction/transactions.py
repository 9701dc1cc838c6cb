"""Which batches of a walk belong to aborted transactions, and which markers nothing refers to any more.

A marker may go once a walk over everything below it has met no batch of its transaction. Its entry in the `.txnindex`
goes with the last batch of the data, before the marker does: so no index ever names a transaction without a marker.
"""

from collections.abc import Iterable
from heapq import heapify, heappop

from tierd.base.errors import CorruptFile
from tierd.storage.batch import ControlType, parse_control
from tierd.storage.header import BatchHeader
from tierd.storage.records import iter_records
from tierd.storage.txnindex import AbortedEntry

UNNAMED = "no .txnindex names the transaction that is aborted here"
"""Reason of a CorruptFile whose position is the offset of the marker."""


class _Open:
    """An aborted transaction that the walk is in."""

    __slots__ = ("marker_offset", "met")

    def __init__(self, marker_offset: int) -> None:
        self.marker_offset = marker_offset
        self.met = False
        """Whether a batch of it was met."""


class Transactions:
    """Fed with every batch of a walk in offset order. *aborted*: all aborted transactions that reach into the walk."""

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        entries = list(aborted)
        self._by_marker = {entry.marker_offset: entry for entry in entries}
        self._ahead = [(entry.first_offset, entry.producer_id, entry.marker_offset) for entry in entries]
        heapify(self._ahead)
        self._aborted: dict[int, _Open] = {}
        """By producer."""
        self._committed: set[int] = set()
        """Producers with batches met of a transaction that was not aborted."""

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch was aborted."""
        if not header.transactional:
            return False
        self._advance(header.last_offset)
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None and header.base_offset < aborted.marker_offset:
            aborted.met = True
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, batch: memoryview, where: str) -> bool:
        """Whether no batch of the marker's transaction was met. Raises CorruptFile, also when records were taken for
        committed that it aborts: they would take the place of what was committed."""
        self._advance(header.last_offset)
        if not header.count:
            return True  # it was emptied when nothing referred to it any more
        kind, _ = parse_control(next(iter_records(batch, header, where)))
        if kind == ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is None and header.producer_id in self._committed:
                raise CorruptFile(where, header.base_offset, UNNAMED)
            return aborted is None or not aborted.met
        if kind == ControlType.COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.discard(header.producer_id)
        return False

    def entry_of(self, marker_offset: int) -> AbortedEntry | None:
        """The index entry of the abort marker at this offset."""
        return self._by_marker.get(marker_offset)

    def _advance(self, offset: int) -> None:
        """Enter the transactions that have begun; of two of one producer the later, for the earlier has ended."""
        while self._ahead and self._ahead[0][0] <= offset:
            _, producer_id, marker_offset = heappop(self._ahead)
            self._aborted[producer_id] = _Open(marker_offset)
