"""Indexes of closed segments that readers have in use, under one limit of memory. Loop thread only."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from tierd.base.errors import CorruptFile
from tierd.storage.aborted import AbortedEntries
from tierd.storage.remaking import Remade, RemadeAborted, RemadeIndexes
from tierd.storage.repairs import Repairs
from tierd.storage.segment import Indexes, Segment, read_aborted, read_indexes

DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024

_Key = tuple[Segment, bool]
"""With True what is held are its aborted transactions."""


class IndexCache:
    """Least recently used goes first; what is wrong on disk is rebuilt from the `.log` on first use, and until that is
    done Repairing is raised."""

    def __init__(
        self,
        remake: Callable[[Segment, int], RemadeIndexes],
        remake_aborted: Callable[[Segment, CorruptFile], RemadeAborted],
        repairs: Repairs,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        """*remake* and *remake_aborted* are called in any thread; the first one gets how much of the log counts."""
        self._remake = remake
        self._remake_aborted = remake_aborted
        self._repairs = repairs
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._held: OrderedDict[_Key, int] = OrderedDict()
        self._aborted: dict[Segment, AbortedEntries] = {}
        self._unsettled: dict[Segment, Remade] = {}

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
            return self.renew(segment)
        self.keep(segment, loaded)
        return loaded

    def renew(self, segment: Segment) -> Indexes:
        """An entry led astray: build the indexes again from the log; of the active segment, too."""
        self._let_go((segment, False))
        self._repairs.do(segment, partial(self._renewing, segment, segment.size_bytes))
        made = segment.loaded if segment.builder is None else segment.builder
        assert made is not None
        return Indexes(made.offsets, made.times)

    def _renewing(self, segment: Segment, size_bytes: int) -> Callable[[], None]:
        remade = self._remake(segment, size_bytes)
        return lambda: self.take(remade)

    def take(self, remade: RemadeIndexes) -> None:
        """They hold from now on, unless the segment is gone. Raises OSError."""
        segment, indexes = remade.files.segment, remade.indexes
        builder = segment.builder
        if builder is None and segment.size_bytes > remade.size_bytes:
            remade.files.discard()  # appended to and closed meanwhile: these lack the end
        elif not (segment.checked or segment.gone):
            self.keep(segment, indexes)
            self._unsettled[segment] = remade.files
        elif remade.files.put():
            if builder is None:
                self.keep(segment, indexes)
                return
            indexes.offsets.go_on_with(builder.offsets, remade.size_bytes)
            indexes.times.go_on_with(builder.times, remade.next_offset)
            builder.offsets, builder.times = indexes.offsets, indexes.times

    def unsettled(self, segment: Segment) -> Remade | None:
        """Index files that wait until *segment* is settled: until then those on the disk may tell of what is lost. Put
        them in place, then."""
        return self._unsettled.pop(segment, None)

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
            self._repairs.do(segment, partial(self._renewing_aborted, segment, error))
            return self._aborted[segment]
        self.keep_aborted(segment, entries)
        return entries

    def _renewing_aborted(self, segment: Segment, why: CorruptFile) -> Callable[[], None]:
        remade = self._remake_aborted(segment, why)

        def take() -> None:
            if remade.put():
                self.keep_aborted(segment, remade.entries)

        return take

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
        if (files := self._unsettled.pop(segment, None)) is not None:
            files.discard()

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
