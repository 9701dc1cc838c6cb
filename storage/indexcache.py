"""Indexes of closed segments that readers have in use, under one limit of memory. Loop thread only."""

from collections import OrderedDict
from collections.abc import Callable

from tierd.base.errors import CorruptFile
from tierd.storage.aborted import AbortedEntries
from tierd.storage.segment import Indexes, Segment, read_aborted, read_indexes

DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024

_Key = tuple[Segment, bool]
"""With True what is held are its aborted transactions."""


class IndexCache:
    """Least recently used goes first; what is wrong on disk is rebuilt from the `.log` on first use."""

    def __init__(
        self,
        rebuild: Callable[[Segment], Indexes],
        rebuild_aborted: Callable[[Segment, CorruptFile], AbortedEntries],
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._rebuild = rebuild
        self._rebuild_aborted = rebuild_aborted
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._held: OrderedDict[_Key, int] = OrderedDict()
        self._aborted: dict[Segment, AbortedEntries] = {}

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def of(self, segment: Segment) -> Indexes:
        """The indexes of a closed segment. Raises OSError, and CorruptFile when the log itself is corrupt."""
        loaded = segment.loaded
        if loaded is not None:
            if (segment, False) in self._held:
                self._held.move_to_end((segment, False))
            return loaded
        try:
            loaded = read_indexes(segment, None)
        except CorruptFile:
            loaded = self._rebuild(segment)
        self.keep(segment, loaded)
        return loaded

    def renew(self, segment: Segment) -> Indexes:
        """An entry led astray: build the indexes again from the log; of the active segment, too."""
        self._let_go((segment, False))
        loaded = self._rebuild(segment)
        if segment.builder is None:
            self.keep(segment, loaded)
        else:
            segment.builder.offsets, segment.builder.times = loaded.offsets, loaded.times
        return loaded

    def aborted(self, segment: Segment, next_base: int | None) -> AbortedEntries:
        """Aborted transactions whose marker lies in *segment*, closed or not, which ends at *next_base*. Raises
        OSError, and CorruptFile when they are lost and the log itself does not tell."""
        if segment.aborted is not None:
            return segment.aborted
        entries = self._aborted.get(segment)
        if entries is not None:
            self._held.move_to_end((segment, True))
            return entries
        try:
            entries = read_aborted(segment, next_base)
        except CorruptFile as error:
            entries = self._rebuild_aborted(segment, error)
        self.keep_aborted(segment, entries)
        return entries

    def keep(self, segment: Segment, loaded: Indexes) -> None:
        """Hold *loaded* for *segment* and let go of others beyond the limit."""
        self._let_go((segment, False))
        segment.loaded = loaded
        self._hold((segment, False), loaded.size_bytes)

    def keep_aborted(self, segment: Segment, entries: AbortedEntries) -> None:
        """The same for the aborted transactions of a closed segment."""
        self._let_go((segment, True))
        self._aborted[segment] = entries
        self._hold((segment, True), entries.size_bytes)

    def forget(self, segment: Segment) -> None:
        self._let_go((segment, False))
        self._let_go((segment, True))

    def _hold(self, key: _Key, size_bytes: int) -> None:
        self._held[key] = size_bytes
        self._used_bytes += size_bytes
        while self._used_bytes > self._limit_bytes and len(self._held) > 1:
            self._let_go(next(iter(self._held)))

    def _let_go(self, key: _Key) -> None:
        self._used_bytes -= self._held.pop(key, 0)
        segment, aborted = key
        if aborted:
            self._aborted.pop(segment, None)
        else:
            segment.loaded = None
