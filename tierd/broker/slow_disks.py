"""Producers to a disk with little room are slowed, as quotas slow them: the fuller it is, the longer each pause.

So the bucket, or who looks after the disk, has more time before Produce is refused. Loop thread only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tierd.base.clock import Clock
from tierd.broker.homes import Home, Homes
from tierd.broker.partition import Partition
from tierd.storage.reserve import is_scarce

MOST_MS: Final = 1000
LEAST_MS: Final = 20
_LOOK_MS: Final = 1000


def pause_ms(free_bytes: int, limit_bytes: int, reserve_bytes: int) -> int:
    """After one request: from LEAST_MS at *limit_bytes* of free room to MOST_MS at the reserve."""
    if free_bytes <= reserve_bytes or limit_bytes <= reserve_bytes:
        return MOST_MS
    share = (limit_bytes - free_bytes) / (limit_bytes - reserve_bytes)
    return max(LEAST_MS, int(MOST_MS * share))


@dataclass(slots=True)
class _Seen:
    looked_ms: int
    scarce: bool
    pause_ms: int


class SlowDisks:
    """Each data directory for itself."""

    def __init__(self, homes: Homes, clock: Clock, limit_bytes: int | None, reserve_bytes: int) -> None:
        self._homes = homes
        self._clock = clock
        self._limit_bytes = limit_bytes or 0
        self._reserve_bytes = reserve_bytes
        self._seen: dict[Home, _Seen] = {}
        self._due_ms = 0
        self.on = self._limit_bytes > 0
        """Otherwise nobody is ever slowed."""

    def appended(self, then: Callable[[Partition], None]) -> Callable[[Partition], None]:
        """*then*, and the pause of the disk is due for the request that the append belongs to."""
        if not self.on:
            return then

        def tell(partition: Partition) -> None:
            self._due_ms = max(self._due_ms, self.pause_of(self._homes.of(partition.log)))
            then(partition)

        return tell

    def due_ms(self) -> int:
        """The longest pause since the last call."""
        due_ms, self._due_ms = self._due_ms, 0
        return due_ms

    def pause_of(self, home: Home) -> int:
        """0 while there is room; looked at once a second at most."""
        seen, now_ms = self._seen.get(home), self._clock.monotonic_ms()
        if seen is None or now_ms >= seen.looked_ms + _LOOK_MS:
            seen = self._seen[home] = self._look(home, now_ms, before=seen is not None and seen.scarce)
        return seen.pause_ms

    def _look(self, home: Home, now_ms: int, *, before: bool) -> _Seen:
        space = home.space()
        if space is None or not is_scarce(space[1], self._limit_bytes, before=before):
            return _Seen(now_ms, False, 0)
        return _Seen(now_ms, True, pause_ms(space[1], self._limit_bytes, self._reserve_bytes))

    def slowed(self) -> list[Home]:
        """Directories whose producers are slowed now."""
        return [home for home in self._homes if self.on and self.pause_of(home)]
