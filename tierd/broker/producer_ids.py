"""Ids for idempotent and transactional producers, never given twice.

An id lies above every id in the snapshots and logs that are there and is never below this start's time in ms << 16,
so that ids stay unique even when the registry was lost. A block is persisted before its first id is given.
"""

from collections.abc import Callable

from tierd.base.clock import Clock
from tierd.broker.registry import Registry

BLOCK = 1000
_KEY = "producer.ids.next"
_TIME_SHIFT = 16


class ProducerIds:
    """Gives them out. Loop thread only."""

    def __init__(self, registry: Registry, clock: Clock, largest_seen: Callable[[], int | None]) -> None:
        """*largest_seen* gives the largest id in the logs; asked once, before the first id."""
        self._registry = registry
        self._floor = clock.now_ms() << _TIME_SHIFT
        self._largest_seen = largest_seen
        self._next = self._stop = 0

    def next_id(self) -> int:
        """A new id. Raises DiskFull when a new block cannot be persisted."""
        if self._next == self._stop:
            self._take_block()
        given = self._next
        self._next += 1
        return given

    def _take_block(self) -> None:
        persisted = int(self._registry.get(_KEY) or 0)
        start = max(persisted, self._stop)
        if self._stop == 0:
            start = max(start, self._floor, (self._largest_seen() or 0) + 1)
        self._registry.put(_KEY, str(start + BLOCK))
        self._next, self._stop = start, start + BLOCK
