"""Who is to be looked at when: one timer of the loop, whatever the number of those who wait for their time."""

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Who = TypeVar("Who")


class Alarms(Generic[Who]):
    """Loop thread only. Nothing is taken back: whoever is no longer of interest when its time comes is passed over."""

    def __init__(self, now_ms: Callable[[], int], ring: Callable[[], None]) -> None:
        """*ring* is called when somebody's time has come, and then exhausts `due`."""
        self._now_ms = now_ms
        self._ring = ring
        self._heap: list[tuple[int, int, Who]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at_ms: int, who: Who) -> None:
        heapq.heappush(self._heap, (at_ms, next(self._order), who))
        if self._heap[0][0] == at_ms:
            self._schedule()

    def due(self, now_ms: int) -> Iterator[tuple[int, Who]]:
        """Those whose time has come, with that time, the earliest first; then the timer is set for the next."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, who = heapq.heappop(self._heap)
            yield at_ms, who
        self._schedule()

    def close(self) -> None:
        """Nobody's time comes any more."""
        self._heap.clear()
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            delay_ms = max(self._heap[0][0] - self._now_ms(), 1)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._ring)
