"""Ends requests that hang: one that moves too little, or lasts too long, loses its connection and is tried again.

The time-out of a socket is one between two bytes: a server that sends one now and then is never late. How many bytes
have moved is counted by the kernel (TCP_INFO), so that a request pays nothing for being watched.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tierd.base.clock import Clock
from tierd.base.errors import RemoteUnavailable
from tierd.config.topic import MIB

LEAST_BYTES = 64 * 1024
"""To be moved in QUIET time-outs; a request that needs fewer ends before that."""
QUIET = 2
LONGEST = 6
"""Time-outs that one try may last, and one more for each MiB: a slow line gets its parts through. Without a large body
it is, with all tries before it (`AGAIN_WITHIN`), less than what `TiererOptions.settle_ms` counts on."""
AGAIN_WITHIN = 3
"""Time-outs after the first try in which another one may begin: one that hangs until it is ended has a second."""

_LOOKS = 4
"""In a time-out."""
_LONGEST_PAUSE_S = 5.0
_COUNTS = struct.Struct("=QQ")
_COUNTS_AT = 120
"""Where `struct tcp_info` of Linux (since 4.1) has tcpi_bytes_acked and tcpi_bytes_received."""


@dataclass(slots=True, eq=False)
class Watched:
    """One request, or the reading of one piece of an answer. Times are monotonic."""

    begun_ms: int
    may_be_quiet: bool
    connection: socket.socket | None = None
    size_bytes: int = 0
    """Of its body, or of the piece."""
    since_ms: int = 0
    """When it had moved *moved* bytes; it has moved less than LEAST_BYTES since then."""
    moved: int = 0
    hung: str | None = None
    """Why it was ended."""


class _Here(threading.local):
    """What this thread asks for, and over what."""

    request: Watched | None = None
    connection: socket.socket | None = None


_HERE = _Here()


def why_hung(one: Watched, moved: int | None, now_ms: int, timeout_ms: int) -> str | None:
    """Why *one* is to be ended now, in words, or None. *moved*: bytes of its connection; None: nobody counts them."""
    if now_ms - one.begun_ms > (LONGEST + one.size_bytes // MIB) * timeout_ms:
        return f"not done after {now_ms - one.begun_ms} ms"
    quiet_ms = now_ms - one.since_ms
    if moved is None or one.may_be_quiet or quiet_ms <= QUIET * timeout_ms:
        return None
    return f"only {moved - one.moved} bytes moved in {quiet_ms} ms"


@dataclass(slots=True)
class Watchdog:
    """Watches the requests of one store; a thread of its own, while there are any."""

    clock: Clock
    timeout_ms: int
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _watched: set[Watched] = field(default_factory=set)
    _thread: threading.Thread | None = None
    _closed: bool = False

    @contextmanager
    def request(self, size_bytes: int, *, may_be_quiet: bool = False) -> Iterator[None]:
        """A request of this thread, with a body of *size_bytes*. Raises RemoteUnavailable when it hung and was ended.

        *may_be_quiet*: the server may think for long, and send blanks meanwhile.
        """
        _HERE.connection = None
        with self._one(size_bytes, may_be_quiet=may_be_quiet):
            yield

    @contextmanager
    def reading(self, size_bytes: int) -> Iterator[None]:
        """The same of *size_bytes* of the body that this thread's last request is answered with."""
        with self._one(size_bytes, may_be_quiet=False):
            yield

    @contextmanager
    def _one(self, size_bytes: int, *, may_be_quiet: bool) -> Iterator[None]:
        now_ms = self.clock.monotonic_ms()
        one = Watched(now_ms, may_be_quiet, _HERE.connection, size_bytes, now_ms, _moved(_HERE.connection) or 0)
        _HERE.request = one
        self._add(one)
        try:
            yield
        except Exception as error:
            if one.hung is not None:
                raise RemoteUnavailable(f"the bucket hangs: {one.hung}") from error
            raise
        finally:
            _HERE.request = None
            with self._changed:
                self._watched.discard(one)

    def _add(self, one: Watched) -> None:
        with self._changed:
            self._watched.add(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()
            elif len(self._watched) == 1:
                self._changed.notify()

    def _run(self) -> None:
        pause_s = min(self.timeout_ms / _LOOKS / 1000, _LONGEST_PAUSE_S)
        with self._changed:
            while not self._closed:
                self._changed.wait(pause_s if self._watched else None)
                for one in self._watched:
                    self.look(one)

    def look(self, one: Watched) -> None:
        """End *one* when it hangs."""
        now_ms, moved = self.clock.monotonic_ms(), _moved(one.connection)
        if moved is not None and moved - one.moved >= LEAST_BYTES:
            one.since_ms, one.moved = now_ms, moved
        one.hung = one.hung or why_hung(one, moved, now_ms, self.timeout_ms)
        if one.hung is not None and one.connection is not None:
            with suppress(OSError):  # not the SSLSocket's: its reader must see an end, no other error
                socket.socket.shutdown(one.connection, socket.SHUT_RDWR)

    def close(self) -> None:
        """Watch no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()


def _moved(connection: socket.socket | None) -> int | None:
    """Bytes that the other side has sent, and those of ours that it has got; None when nobody counts them."""
    if connection is None:
        return None
    try:
        raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS_AT + _COUNTS.size)
    except OSError:
        return None
    return sum(_COUNTS.unpack_from(raw, _COUNTS_AT)) if len(raw) == _COUNTS_AT + _COUNTS.size else None


def waited(pause_ms: int) -> None:
    """The request of this thread has waited so long for a limit of ours: that is not the bucket's time."""
    if (one := _HERE.request) is not None:
        one.begun_ms += pause_ms
        one.since_ms += pause_ms


def note(connection: socket.socket | None) -> None:
    """The request of this thread goes over *connection*; None: not yet over any."""
    if connection is None:
        return
    _HERE.connection = connection
    if (one := _HERE.request) is not None:
        one.moved, one.connection = _moved(connection) or 0, connection
