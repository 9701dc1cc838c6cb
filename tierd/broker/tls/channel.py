"""The two sides of a TLS connection: as `receiving` and `sending`, but what OpenSSL holds back is looked after.

Bytes go through Python instead of `sendfile`: read from the file, encrypted, sent, a record (16 KiB) at a time.
"""

import os
import socket
import ssl
from contextlib import suppress
from typing import Final

from tierd.broker.receiving import Got, Incoming
from tierd.broker.room import Room, Who
from tierd.broker.sending import WINDOW_BYTES, Outgoing, Pumped, ReadFailed, SpanCutShort, resident_until
from tierd.storage.view import FileSpan

RECORD_BYTES: Final = 16 * 1024
"""Most that one TLS record holds; OpenSSL reads and writes one at a time."""
RECORDS_AT_ONCE: Final = 32
"""Received before the frames in them are looked at, and soon others get their turn: a record may hold but a byte."""
_HELD_BYTES: Final = RECORD_BYTES + 512
"""At most so much of what has come is neither in the kernel nor received: a record that is not whole."""
_SCRATCH: Final = memoryview(bytearray(8 * RECORD_BYTES))
"""Of all connections: what the socket does not take is read again, so that slow ones cost no memory."""


class TlsSocket:
    """What a connection needs of a socket, with the ways of a plain one. Never blocks."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.tls = sock

    def fileno(self) -> int:
        return self.tls.fileno()

    def recv(self, size: int, flags: int) -> bytes:
        """Of what came over the network, not of what is in it: only to peek."""
        return socket.socket.recv(self.tls, size, flags)

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """How much was taken. What was not must come again, at least a record of it."""
        view = memoryview(data)
        sent = 0
        while sent < len(view):
            try:
                sent += self.tls.send(view[sent : sent + RECORD_BYTES])
            except ssl.SSLWantWriteError:
                break
        return sent

    def close(self) -> None:
        """With a word to the peer, if it can be said at once."""
        with suppress(OSError, ValueError):
            self.tls.unwrap()
        self.tls.close()


class TlsIncoming(Incoming[Who]):
    """The receive side. Loop thread only."""

    __slots__ = ("_tls",)

    def __init__(self, sock: ssl.SSLSocket, max_frame_bytes: int, room: Room[Who], who: Who) -> None:
        super().__init__(sock, max_frame_bytes, room, who)
        self._tls = sock

    @property
    def hidden(self) -> bool:  # type: ignore[override]
        """Whether bytes wait that no event will tell of."""
        return self._tls.pending() > 0

    def receive(self) -> Got:
        frames = self.frames
        if frames.wanted_bytes > self._capacity and not self._may_grow():
            return Got.END if self.peer_left(waits_for_answer=False) else Got.NO_ROOM
        space = frames.space()
        came, end = self._fill(space)
        if came == 0:
            return end or Got.NOTHING
        self.received_bytes += came
        frames.received(came)
        return Got.SOME if end is not None or (came < len(space) and not self.hidden) else Got.FULL

    def _fill(self, space: memoryview) -> tuple[int, Got | None]:
        """How much came, record after record; and why no more."""
        came = 0
        for _ in range(RECORDS_AT_ONCE):
            try:
                got = self._tls.recv_into(space[came:])
            except ssl.SSLWantReadError:
                return came, Got.NOTHING
            except ssl.SSLWantWriteError:
                return came, Got.MUST_SEND
            except OSError:
                return came, Got.END
            if got == 0:
                return came, Got.END
            came += got
            # Some clients make a record of each message: to ask costs less than an event for each, or a try in vain.
            if came == len(space) or (got < RECORD_BYTES and self.unread_bytes == 0):
                break
        return came, None

    @property
    def unread_bytes(self) -> int:
        return super().unread_bytes + self._tls.pending()

    def _may_have_come(self, size_bytes: int) -> bool:
        return super().unread_bytes + _HELD_BYTES >= size_bytes

    def _is_whole(self, needed_bytes: int) -> bool:
        """Nobody knows how much there is in what has come: it waits for room as large ones do."""
        return False


class TlsOutgoing(Outgoing):
    """The send side. Loop thread only."""

    __slots__ = ()

    turn_bytes = 1024 * 1024
    """Encrypting costs more than `sendfile`: about as long as a turn of that takes."""

    def _send_span(self, span: FileSpan) -> Pumped:
        if self._stop == 0:
            self._position = self._warm = span.position
            self._stop = span.position + span.length
        while self._position < self._stop:
            # No shorter try may follow one that the socket did not take: only here a turn ends, and _warm only grows.
            if self.sent_bytes >= self._turn_stop:
                return Pumped.FULL
            if self._position >= self._warm:
                self._warm = resident_until(span.fd, self._position, min(self._stop, self._position + WINDOW_BYTES))
                if self._position >= self._warm:
                    return Pumped.COLD
            part = _SCRATCH[: self._warm - self._position]
            try:
                got = os.preadv(span.fd, [part], self._position)
            except OSError as error:
                raise ReadFailed(error, span.fd) from error
            if got == 0:
                raise SpanCutShort(f"file ends at or before {self._position}, span at {self._stop}")
            sent = self._sock.send(part[:got])
            self._position += sent
            self.sent_bytes += sent
            if sent < got:
                return Pumped.FULL
        self._stop = 0
        return Pumped.DONE
