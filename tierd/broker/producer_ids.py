"""Ids for idempotent and transactional producers, never given twice.

An id lies above every id in the snapshots and logs that are there and is never below this start's time in ms << 16,
so that ids stay unique even when the registry was lost. A block is persisted before its first id is given.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from tierd.base.clock import Clock
from tierd.base.errors import DiskFull
from tierd.broker.registry import Registry

BLOCK = 1000
_FEW = 100
"""With fewer left the next block is fetched before the next id is given."""
_KEY = "producer.ids.next"
_TIME_SHIFT = 16
_MARGIN_MS = 3_600_000
"""236 billion ids: more than a run gives out."""


def stay_above(registry: Registry, begun_ms: int) -> None:
    """What a run that began at *begun_ms* by its host's clock has given out, no later one gives again: that run's
    registry is lost, and this host's clock may be behind. Raises DiskFull, OSError."""
    least = (begun_ms + _MARGIN_MS) << _TIME_SHIFT
    if int(registry.get(_KEY) or 0) < least:
        registry.put(_KEY, str(least))


class ProducerIds:
    """Gives them out. Loop thread only."""

    def __init__(self, registry: Registry, clock: Clock, largest_seen: Callable[[], int | None]) -> None:
        """*largest_seen* gives the largest id in the logs; asked once, before the first id."""
        self._registry = registry
        self._floor = clock.now_ms() << _TIME_SHIFT
        self._largest_seen = largest_seen
        self._next = self._stop = 0
        self._fetching = asyncio.Lock()
        self._persisting = threading.Lock()

    async def ready(self) -> None:
        """Return when there are ids that `next_id` gives without a wait for the disk, if there can be any."""
        if self._stop - self._next < _FEW:
            async with self._fetching:
                if self._stop - self._next < _FEW:
                    with suppress(DiskFull, OSError):  # `next_id` says it, to those who need one
                        self._add(await asyncio.to_thread(self._persist_block, self._least()))

    def next_id(self) -> int:
        """A new id; without `ready` before it, or when very many ask at once, it waits for the disk.

        Raises DiskFull, OSError when a new block cannot be persisted.
        """
        if self._next == self._stop:
            self._add(self._persist_block(self._least()))
        given = self._next
        self._next += 1
        return given

    def _least(self) -> int:
        """No id below it may be given."""
        return self._stop or max(self._floor, (self._largest_seen() or 0) + 1)

    def _persist_block(self, least: int) -> int:
        """The first id of a block that is ours alone. Any thread."""
        with self._persisting:
            start = max(int(self._registry.get(_KEY) or 0), least)
            self._registry.put(_KEY, str(start + BLOCK))
            return start

    def _add(self, start: int) -> None:
        """What is left of another block is given up."""
        if start != self._stop:
            self._next = start
        self._stop = start + BLOCK
