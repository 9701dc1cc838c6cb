"""Memory for requests that are being received, over all connections: who may grow, who waits, who comes next.

Three parts, so that neither half-received requests block each other nor large ones the small:

- what all share: a buffer grows with what really came. Beyond a steady buffer only half of it may be used.
- seats: a request that gets no more of the shared part waits for a seat, which holds all of it, so that it can finish
  whatever the others do. The smallest comes first.
- the large seat, for one request of any size, in order of arrival. Who sits may finish, so there is always a next.

What a connection has anyway (FIRST_BYTES) is not counted: it is bounded by the number of connections.
"""

from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from tierd.wire.frame import FIRST_BYTES, LENGTH_BYTES, STEADY_BYTES

Who = TypeVar("Who")
_PART = 8  # the seats have this part of the limit


class _Place(Enum):
    SHARED = auto()
    SEAT = auto()
    LARGE_SEAT = auto()
    LENT = auto()


class _Waits(NamedTuple):
    needed_bytes: int
    capacity_bytes: int


class Room(Generic[Who]):
    """Bookkeeping only. *Who* receives: compared and hashed, never called."""

    def __init__(self, limit_bytes: int, max_frame_bytes: int) -> None:
        self._large_bytes = max_frame_bytes + LENGTH_BYTES
        self._seats_bytes = limit_bytes // _PART
        self._shared_bytes = max(limit_bytes - self._large_bytes - self._seats_bytes, self._seats_bytes)
        self._held: dict[Who, tuple[_Place, int]] = {}
        self._waiting: dict[Who, _Waits] = {}
        self._used = dict.fromkeys(_Place, 0)

    @property
    def bound_bytes(self) -> int:
        """Most that is given out: the limit, or little more than the largest request where the limit is no more."""
        return self._shared_bytes + self._seats_bytes + self._large_bytes

    @property
    def used_bytes(self) -> int:
        return sum(self._used.values())

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def waits(self, who: Who) -> bool:
        return who in self._waiting

    def holds(self, who: Who) -> bool:
        """Whether *who* has more than what everybody has."""
        return who in self._held

    def seated(self, who: Who) -> bool:
        """Whether there is room for the whole request of *who*."""
        return who in self._held and self._held[who][0] is not _Place.SHARED

    def like(self, who: Who, capacity_bytes: int) -> bool:
        """Growth for speed alone: only while there is plenty."""
        return not self._waiting and self._share(who, capacity_bytes, self._shared_bytes // 2)

    def grow(self, who: Who, capacity_bytes: int, needed_bytes: int) -> bool:
        """Whether *who* may have a buffer of *capacity_bytes* for a request of *needed_bytes*; else it waits."""
        if self.seated(who) or self._give(who, _Waits(needed_bytes, capacity_bytes)):
            self._waiting.pop(who, None)
            return True
        if not self._used[_Place.LARGE_SEAT] and not self._waiting:
            self._put(who, _Place.LARGE_SEAT, needed_bytes)
            return True
        self._waiting.setdefault(who, _Waits(needed_bytes, capacity_bytes))
        return False

    def lend(self, who: Who, needed_bytes: int) -> None:
        """Beyond every limit: only for what is received, answered and given back within this turn."""
        self._waiting.pop(who, None)
        self._put(who, _Place.LENT, needed_bytes)

    def settle(self, who: Who, capacity_bytes: int) -> None:
        """*who* has this much and needs no more for the moment: it leaves its seat and waits for nothing."""
        self._waiting.pop(who, None)
        self._put(who, _Place.SHARED, capacity_bytes)

    def leave(self, who: Who) -> None:
        """Everything of *who* is free again."""
        self.settle(who, 0)

    def next(self) -> list[Who]:
        """Those that waited and may go on now."""
        found = []
        for who, waits in sorted(self._waiting.items(), key=lambda item: item[1]):
            if self._give(who, waits):
                found.append(who)
            elif waits.needed_bytes > self._seats_bytes - self._used[_Place.SEAT]:
                break  # Those behind it need more.
        for who in found:
            del self._waiting[who]
        if self._waiting and not self._used[_Place.LARGE_SEAT]:
            who = next(iter(self._waiting))
            self._put(who, _Place.LARGE_SEAT, self._waiting.pop(who).needed_bytes)
            found.append(who)
        return found

    def _give(self, who: Who, waits: _Waits) -> bool:
        """Of the shared part, or a seat."""
        most = self._shared_bytes if waits.capacity_bytes <= STEADY_BYTES else self._shared_bytes // 2
        if self._share(who, waits.capacity_bytes, most):
            return True
        if self._used[_Place.SEAT] + waits.needed_bytes > self._seats_bytes:
            return False
        self._put(who, _Place.SEAT, waits.needed_bytes)
        return True

    def _share(self, who: Who, capacity_bytes: int, most_bytes: int) -> bool:
        place, held = self._held.get(who, (_Place.SHARED, 0))
        more = capacity_bytes - FIRST_BYTES - held
        if more > 0 and self._used[_Place.SHARED] + more > most_bytes:
            return False
        if place is _Place.SHARED:
            self._put(who, place, capacity_bytes)
        return True

    def _put(self, who: Who, place: _Place, size_bytes: int) -> None:
        before, held = self._held.pop(who, (place, 0))
        self._used[before] -= held
        counted = max(size_bytes - FIRST_BYTES, 0)
        if counted:
            self._held[who] = (place, counted)
            self._used[place] += counted
