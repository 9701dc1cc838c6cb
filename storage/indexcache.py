"""Indexes of closed segments that readers have in use, under one limit of memory. Loop thread only."""

from collections import OrderedDict
from collections.abc import Callable

from tierd.base.errors import CorruptFile
from tierd.storage.segment import Indexes, Segment, read_indexes

DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024


class IndexCache:
    """Least recently used goes first; what is wrong on disk is rebuilt from the `.log` on first use."""

    def __init__(self, rebuild: Callable[[Segment], Indexes], limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._rebuild = rebuild
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._held: OrderedDict[Segment, int] = OrderedDict()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def of(self, segment: Segment) -> Indexes:
        """The indexes of a closed segment. Raises OSError, and CorruptFile when the log itself is corrupt."""
        loaded = segment.loaded
        if loaded is not None:
            if segment in self._held:
                self._held.move_to_end(segment)
            return loaded
        try:
            loaded = read_indexes(segment, None)
        except CorruptFile:
            loaded = self._rebuild(segment)
        self.keep(segment, loaded)
        return loaded

    def renew(self, segment: Segment) -> Indexes:
        """An entry led astray: build the indexes again from the log."""
        self.forget(segment)
        loaded = self._rebuild(segment)
        self.keep(segment, loaded)
        return loaded

    def keep(self, segment: Segment, loaded: Indexes) -> None:
        """Hold *loaded* for *segment* and let go of others beyond the limit."""
        self.forget(segment)
        segment.loaded = loaded
        self._held[segment] = loaded.size_bytes
        self._used_bytes += loaded.size_bytes
        while self._used_bytes > self._limit_bytes and len(self._held) > 1:
            self.forget(next(iter(self._held)))

    def forget(self, segment: Segment) -> None:
        self._used_bytes -= self._held.pop(segment, 0)
        segment.loaded = None
