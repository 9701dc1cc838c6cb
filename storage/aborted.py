"""The aborted transactions of one segment in memory: what its `.txnindex` holds, 32 bytes for each.

Markers ascend, and so do the last stable offsets behind them: a range is found without looking at what is before it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from tierd.base.errors import CorruptFile
from tierd.storage.txnindex import ENTRY_BYTES, AbortedEntry, encode_txn_index, parse_txn_index
from tierd.storage.view import AbortedTxn


class AbortedEntries:
    """Entries in marker order."""

    __slots__ = ("_firsts", "_markers", "_producers", "_stables")

    def __init__(self, entries: Iterable[AbortedEntry] = ()) -> None:
        self._producers = array("q")
        self._firsts = array("q")
        self._markers = array("q")
        self._stables = array("q")
        for entry in entries:
            self.add(entry)

    @classmethod
    def from_bytes(cls, raw: bytes, base: int, where: str, next_base: int | None) -> "AbortedEntries":
        """A whole file of a segment over offsets [base, next_base). Raises CorruptFile when it cannot be that, also
        when it is empty: a segment without aborts has no such file."""
        entries = parse_txn_index(raw, where)
        if not entries or entries[0].marker_offset < base:
            raise CorruptFile(where, 0, f"{len(entries)} entries, none begins the segment at {base}")
        if next_base is not None and entries[-1].marker_offset >= next_base:
            raise CorruptFile(where, len(raw) - ENTRY_BYTES, f"a marker beyond the segment's end at {next_base}")
        stable = 0
        for i, entry in enumerate(entries):
            if not stable <= entry.last_stable <= entry.marker_offset + 1:
                raise CorruptFile(where, i * ENTRY_BYTES, f"last stable offset {entry.last_stable} behind a marker")
            stable = entry.last_stable
        return cls(entries)

    def add(self, entry: AbortedEntry) -> None:
        self._producers.append(entry.producer_id)
        self._firsts.append(entry.first_offset)
        self._markers.append(entry.marker_offset)
        self._stables.append(entry.last_stable)

    def __len__(self) -> int:
        return len(self._markers)

    @property
    def size_bytes(self) -> int:
        """About what they take in memory."""
        return 512 + 32 * len(self)

    def since(self, marker_offset: int) -> Iterator[AbortedEntry]:
        """Those whose marker is at or above *marker_offset*."""
        for i in range(bisect_left(self._markers, marker_offset), len(self)):
            yield self._at(i)

    def find(self, start: int, stop: int, found: list[AbortedTxn]) -> bool:
        """Add to *found* those that begin below *stop* and whose marker is at or above *start*; True when no later
        marker can end another one."""
        firsts, stables, producers = self._firsts, self._stables, self._producers
        for i in range(bisect_left(self._markers, start), len(firsts)):
            if firsts[i] < stop:
                found.append(AbortedTxn(producers[i], firsts[i]))
            if stables[i] >= stop:
                return True
        return False

    def to_bytes(self, begin: int = 0) -> bytes:
        """The file from entry number *begin* on."""
        return encode_txn_index(map(self._at, range(begin, len(self))))

    def _at(self, i: int) -> AbortedEntry:
        return AbortedEntry(self._producers[i], self._firsts[i], self._markers[i], self._stables[i])
