"""The send side of one connection: bytes and file spans to a non-blocking socket, without waiting for a disk.

`sendfile` on a non-blocking socket still blocks on a disk read, so spans are probed first (RWF_NOWAIT, 1 us per
probe) and cold ones are read into the page cache by a thread. Small bodies are joined to their header: one send.
"""

import errno
import os
import socket
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from tierd.storage.view import FileSpan, LogSlice

Reply = bytes | list[bytes | LogSlice]
"""What goes out for one request; slices are released once sent, or when the connection closes."""

INLINE_BYTES = 16 * 1024
"""Bodies up to this are read and sent together with their header."""
WINDOW_BYTES = 4 * 1024 * 1024
"""Checked for residency and handed to sendfile at once."""
TURN_BYTES = WINDOW_BYTES
"""Sent of spans before others get their turn: a peer that takes as fast as it is sent to would keep the loop for all of
its answer. About a millisecond; a quarter of it costs a third more CPU at 50 MiB."""
PROBE_BYTES = 128 * 1024
COLD_BYTES = 1024 * 1024
"""Read by a thread at once when not in the page cache."""
_READ_BYTES = 256 * 1024
_ONE_SLICE = 3  # parts of an answer with records of one partition: what stands before them, they, what follows


class Pumped(Enum):
    DONE = auto()
    FULL = auto()
    COLD = auto()


class SpanCutShort(ConnectionError):
    """A file ended before its span did: the length already sent can no longer be kept, only closing helps."""


class ReadFailed(OSError):
    """The disk did not give the bytes of a span; `filename` says whose."""

    def __init__(self, error: OSError, fd: int) -> None:
        super().__init__(error.errno, error.strerror, os.readlink(f"/proc/self/fd/{fd}"))


_OF_THE_DISK = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.EUCLEAN, errno.EBADMSG})
"""What sendfile says of the file, not of the socket."""


@dataclass(slots=True)
class ColdRead:
    """Part of a span that is not in the page cache; `run` belongs into a thread. Raises ReadFailed."""

    fd: int
    position: int
    length: int

    def run(self) -> None:
        """Read it once, and let the kernel begin with what follows."""
        try:
            self._read()
        except OSError as error:
            raise ReadFailed(error, self.fd) from error

    def _read(self) -> None:
        os.posix_fadvise(self.fd, self.position, 2 * self.length, os.POSIX_FADV_WILLNEED)
        scratch = bytearray(min(self.length, _READ_BYTES))
        position, stop = self.position, self.position + self.length
        while position < stop:
            got = os.preadv(self.fd, [scratch], position)
            if got == 0:
                return
            position += got


class Sends(Protocol):
    """What is asked of a socket that does not block."""

    def fileno(self) -> int: ...
    def send(self, data: bytes | memoryview, flags: int = 0, /) -> int: ...


class Outgoing:
    """What waits to be sent on one socket, in order. Loop thread only."""

    turn_bytes = TURN_BYTES
    __slots__ = ("_position", "_sock", "_sock_fd", "_stop", "_turn_stop", "_warm", "items", "sent_bytes")

    def __init__(self, sock: Sends) -> None:
        self._sock = sock
        self._sock_fd = sock.fileno()
        self.items: deque[bytes | memoryview | FileSpan | LogSlice] = deque()
        # Of the span at the head: next byte, its end, and up to where pages are known to be in memory.
        self._position = self._stop = self._warm = 0
        self.sent_bytes = self._turn_stop = 0

    def send(self, reply: Reply) -> Pumped:
        """Queue *reply* and send what the socket takes. Raises OSError when the peer is gone."""
        if not isinstance(reply, bytes):
            if len(reply) == _ONE_SLICE and type(found := reply[1]) is LogSlice and self._goes_at_once(found):
                return self._send_records(reply[0], found, reply[2])  # type: ignore[arg-type]
            body = sum([part.length for part in reply if type(part) is LogSlice])
            data = self._inlined(reply) if body <= INLINE_BYTES else None
            if data is None:
                self._queue(reply)
                return self.pump()
            reply = data
        if not self.items:
            return self._send_now(reply)
        self.items.append(reply)
        return self.pump()

    def pump(self) -> Pumped:
        """Send until all is gone, the socket is full, pages must be read (see `cold`), or others must have a turn.

        After a turn that is FULL, too: the loop comes back at once when the socket is not.
        """
        items = self.items
        self._turn_stop = self.sent_bytes + self.turn_bytes
        while items:
            item = items[0]
            if type(item) is FileSpan:
                state = self._send_span(item)
                if state is not Pumped.DONE:
                    return state
            elif type(item) is LogSlice:
                item.release()
            elif not self._send_bytes(item):  # type: ignore[arg-type]
                return Pumped.FULL
            items.popleft()
        return Pumped.DONE

    def cold(self) -> ColdRead:
        """The read that `pump` waits for; after it call `warmed`."""
        span = self.items[0]
        assert isinstance(span, FileSpan)
        return ColdRead(span.fd, self._position, min(COLD_BYTES, self._stop - self._position))

    def warmed(self, read: ColdRead) -> None:
        self._warm = read.position + read.length

    @property
    def held_bytes(self) -> int:
        """Memory that waits to be sent, beside what is in files; of what was sent in part, all of it."""
        whole = [item.obj if type(item) is memoryview else item for item in self.items]
        return sum([len(item) for item in whole if isinstance(item, bytes)])

    def drop(self) -> None:
        """Forget everything; slices are released."""
        for item in self.items:
            if type(item) is LogSlice:
                item.release()
        self.items.clear()

    def _inlined(self, reply: list[bytes | LogSlice]) -> bytes | None:
        parts: list[bytes | bytearray] = []
        for part in reply:
            if type(part) is not LogSlice:
                parts.append(part)  # type: ignore[arg-type]
                continue
            for span in part.spans:
                body = bytearray(span.length)
                try:
                    if os.preadv(span.fd, [body], span.position, os.RWF_NOWAIT) != span.length:
                        return None
                except OSError:
                    return None  # Cold, or a file system without RWF_NOWAIT: the long way knows what to do.
                parts.append(body)
        for part in reply:
            if type(part) is LogSlice:
                part.release()
        return b"".join(parts)

    def _queue(self, reply: list[bytes | LogSlice]) -> None:
        for part in reply:
            if type(part) is LogSlice:
                self.items.extend(part.spans)
                self.items.append(part)
            elif part:
                self.items.append(part)

    def _goes_at_once(self, found: LogSlice) -> bool:
        return len(found.spans) == 1 and found.length > INLINE_BYTES and not self.items

    def _send_records(self, head: bytes, found: LogSlice, tail: bytes) -> Pumped:
        """An answer with records out of one file, as most are: what the socket does not take now is queued."""
        span = found.spans[0]
        state = self._send_now(head, socket.MSG_MORE)
        if state is Pumped.DONE:
            self._turn_stop = self.sent_bytes + self.turn_bytes
            try:
                state = self._send_span(span)
            except OSError:
                self.items.append(found)  # for `drop`
                raise
            if state is Pumped.DONE:
                found.release()
                return self._send_now(tail)
        self.items.extend((span, found, tail))
        return state

    def _send_now(self, data: bytes, flags: int = 0) -> Pumped:
        try:
            sent = self._sock.send(data, flags)
        except (BlockingIOError, InterruptedError):
            sent = 0
        self.sent_bytes += sent
        if sent == len(data):
            return Pumped.DONE
        self.items.append(memoryview(data)[sent:])
        return Pumped.FULL

    def _send_bytes(self, data: bytes | memoryview) -> bool:
        # A header waits for its records: by itself it would only wake the client once more.
        more = socket.MSG_MORE if len(self.items) > 1 and type(self.items[1]) is FileSpan else 0
        try:
            sent = self._sock.send(data, more)
        except (BlockingIOError, InterruptedError):
            return False
        self.sent_bytes += sent
        if sent < len(data):
            self.items[0] = memoryview(data)[sent:]
            return False
        return True

    def _send_span(self, span: FileSpan) -> Pumped:
        if self._stop == 0:
            self._position = self._warm = span.position
            self._stop = span.position + span.length
        while self._position < self._stop:
            left = self._turn_stop - self.sent_bytes
            if left <= 0:
                return Pumped.FULL
            if self._position >= self._warm:
                self._warm = resident_until(span.fd, self._position, min(self._stop, self._position + WINDOW_BYTES))
                if self._position >= self._warm:
                    return Pumped.COLD
            try:
                sent = os.sendfile(self._sock_fd, span.fd, self._position, min(self._warm - self._position, left))
            except (BlockingIOError, InterruptedError):
                return Pumped.FULL
            except OSError as error:
                if error.errno not in _OF_THE_DISK:
                    raise
                raise ReadFailed(error, span.fd) from error
            if sent == 0:
                raise SpanCutShort(f"file ends at or before {self._position}, span at {self._stop}")
            self._position += sent
            self.sent_bytes += sent
        self._stop = 0
        return Pumped.DONE


_ONE_BYTE = [bytearray(1)]


def resident_until(fd: int, position: int, stop: int) -> int:
    """Up to where [position, stop) is in the page cache, probed every 128 KiB."""
    at = position
    while True:
        try:
            os.preadv(fd, _ONE_BYTE, at, os.RWF_NOWAIT)
        except BlockingIOError:
            return at
        except OSError:
            return stop  # The file system has no RWF_NOWAIT (ENOTSUP) or the read fails: sendfile will say so.
        if at == stop - 1:
            return stop
        at = min(at + PROBE_BYTES, stop - 1)


def release(reply: Reply | None) -> None:
    """An answer that nobody will get."""
    if isinstance(reply, list):
        for part in reply:
            if not isinstance(part, bytes):
                part.release()
