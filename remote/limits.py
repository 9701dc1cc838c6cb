"""How fast the bucket may be used: bytes a second each way, requests a second. Any thread.

Bytes are earned before they go, so that not even the first ones are faster than the limit, and nothing to speak of is
saved up while nobody asks. Who waits is served in turn, a small piece at a time: each transfer gets the same part.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from tierd.base.clock import Clock
from tierd.base.errors import RemoteUnavailable

_CREDIT_MS = 100
"""So much that was not used may still be used: a thread that wakes up late loses nothing."""
_PIECES_A_SECOND = 8
_SAY_MS = 1000
_LEAST_PIECE_BYTES = 4096
_OLDEST_EVERY = 4
"""Of so many requests one is the oldest that waits, however little it hurries."""


class Urgency(IntEnum):
    """Whose requests go first."""

    CLIENT = 0
    """Somebody waits for it."""
    OWN = 1
    LATER = 2
    """A sweep."""


_own = threading.local()


def now_urgent(urgency: Urgency) -> None:
    """All that this thread asks of the bucket from now on; `Urgency.OWN` in a thread that never said."""
    _own.urgency = urgency


@contextmanager
def urgent(urgency: Urgency) -> Iterator[None]:
    """What is asked of the bucket inside, by this thread."""
    before: Urgency = getattr(_own, "urgency", Urgency.OWN)
    _own.urgency = urgency
    try:
        yield
    finally:
        _own.urgency = before


class Rate:
    """When the next amount is earned, at *per_second*. Not for several threads at once."""

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._earned_ms: float | None = None

    def take(self, now_ms: int, amount: int) -> float:
        """The time at which *amount* more is earned, behind all that was taken before."""
        begin_ms = now_ms if self._earned_ms is None else max(now_ms - _CREDIT_MS, self._earned_ms)
        self._earned_ms = begin_ms + amount * 1000 / self.per_second
        return self._earned_ms

    def free_ms(self, now_ms: int) -> float:
        """How long until all that was taken is earned; 0 when it is."""
        return 0.0 if self._earned_ms is None else max(0.0, self._earned_ms - now_ms)


class ByteLimit:
    """Of one direction."""

    def __init__(self, per_second: int, clock: Clock, closing: threading.Event) -> None:
        self._rate = Rate(per_second)
        self._clock = clock
        self._closing = closing
        self._lock = threading.Lock()
        self.piece_bytes = max(_LEAST_PIECE_BYTES, per_second // _PIECES_A_SECOND)

    def wait(self, size_bytes: int, waited: Callable[[int], None]) -> None:
        """Until *size_bytes* may go; *waited* is told each pause. Raises RemoteUnavailable when the store is closed."""
        while size_bytes > 0:
            piece = min(size_bytes, self.piece_bytes)
            size_bytes -= piece
            with self._lock:
                now_ms = self._clock.monotonic_ms()
                left_ms = self._rate.take(now_ms, piece) - now_ms
            if left_ms > 0 and self._closing.wait(left_ms / 1000):
                raise RemoteUnavailable("the store is closed")
            waited(max(0, int(left_ms)))


class RequestLimit:
    """Requests of all kinds; those of waiting clients first."""

    def __init__(self, per_second: int, clock: Clock, closing: threading.Event) -> None:
        self._rate = Rate(per_second)
        self._clock = clock
        self._closing = closing
        self._changed = threading.Condition()
        self._waiting: dict[Urgency, deque[int]] = {urgency: deque() for urgency in Urgency}
        self._taken = 0
        self._number = 0

    def wait(self, waited: Callable[[int], None]) -> None:
        """Until one more may be sent; *waited* is told now and then. Raises RemoteUnavailable when the store is
        closed."""
        queue = self._waiting[getattr(_own, "urgency", Urgency.OWN)]
        with self._changed:
            self._number += 1
            mine = self._number
            queue.append(mine)
            try:
                while (left_ms := self._left_ms(mine)) != 0:
                    if self._closing.is_set():
                        raise RemoteUnavailable("the store is closed")
                    self._changed.wait(_SAY_MS / 1000 if left_ms is None else min(left_ms, _SAY_MS) / 1000)
                    waited(0)
                self._rate.take(self._clock.monotonic_ms(), 1)
                self._taken += 1
            finally:
                queue.remove(mine)
                self._changed.notify_all()

    def _left_ms(self, mine: int) -> float | None:
        """How long the one whose turn it is has to wait; None: it is somebody else's."""
        return self._rate.free_ms(self._clock.monotonic_ms()) if self._next() == mine else None

    def _next(self) -> int:
        heads = [queue[0] for queue in self._waiting.values() if queue]
        return min(heads) if self._taken % _OLDEST_EVERY == _OLDEST_EVERY - 1 else heads[0]

    def close(self) -> None:
        """*closing* is set: all who wait are told."""
        with self._changed:
            self._changed.notify_all()


class Limits:
    """Of one store; each None is no limit."""

    def __init__(
        self,
        clock: Clock,
        *,
        upload: int | None = None,
        download: int | None = None,
        requests: int | None = None,
    ) -> None:
        """Bytes and requests a second."""
        self._closing = threading.Event()
        self._upload = None if upload is None else ByteLimit(upload, clock, self._closing)
        self._download = None if download is None else ByteLimit(download, clock, self._closing)
        self._requests = None if requests is None else RequestLimit(requests, clock, self._closing)
        self.told: list[Callable[[int], None]] = []
        """Called in a thread whose transfer goes on, with the ms that it has waited for a limit."""

    def request(self) -> None:
        """Before each request. Raises RemoteUnavailable when the store is closed, as the next two."""
        if self._requests is not None:
            self._requests.wait(self._waited)

    def upload(self, size_bytes: int) -> None:
        """Before these bytes are sent."""
        if self._upload is not None:
            self._upload.wait(size_bytes, self._waited)

    def download(self, size_bytes: int) -> None:
        """Before these bytes are taken from the connection."""
        if self._download is not None:
            self._download.wait(size_bytes, self._waited)

    def _waited(self, pause_ms: int) -> None:
        for told in self.told:
            told(pause_ms)

    def upload_piece(self, most_bytes: int) -> int:
        """How much to send at a time."""
        return most_bytes if self._upload is None else min(most_bytes, self._upload.piece_bytes)

    def download_piece(self, most_bytes: int) -> int:
        """How much to receive at a time."""
        return most_bytes if self._download is None else min(most_bytes, self._download.piece_bytes)

    @property
    def downloads_limited(self) -> bool:
        return self._download is not None

    @property
    def any(self) -> bool:
        return any((self._upload, self._download, self._requests))

    def close(self) -> None:
        """All waits end at once."""
        self._closing.set()
        if self._requests is not None:
            self._requests.close()
