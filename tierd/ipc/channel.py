"""One end of the socket pair between two of our processes: messages with descriptors over SOCK_SEQPACKET.

A message is cut into packets of at most PACKET_BYTES; each begins with a byte that says whether more follow.
Descriptors travel with the first packet. Loop thread only.
"""

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from tierd.base.errors import TierdError

PACKET_BYTES = 64 * 1024
MAX_FDS = 250
"""The kernel takes 253 descriptors in one packet."""
_LAST, _MORE = b"\0", b"\1"

OnMessage = Callable[[bytes, list[int]], None]
"""Body and descriptors; the receiver owns the descriptors."""


class ChannelClosed(TierdError):
    """The other process is gone; whatever was asked of it will not be answered."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends, not blocking, not inherited."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


class Channel:
    """Give it a non-blocking socket; it owns it from now on. *on_closed* is called once."""

    def __init__(self, sock: socket.socket, on_message: OnMessage, on_closed: Callable[[], None]) -> None:
        self._sock = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._out: deque[tuple[bytes, Sequence[int]]] = deque()
        self._in = bytearray()
        self._fds: list[int] = []
        self._closed = False
        self._loop.add_reader(sock.fileno(), self._readable)

    def send(self, body: bytes, fds: Sequence[int] = ()) -> None:
        """Queue a message; *fds* must stay open until it is sent (the kernel then holds its own).

        Raises ChannelClosed, or ValueError for more than MAX_FDS descriptors.
        """
        if self._closed:
            raise ChannelClosed("the other process is gone")
        if len(fds) > MAX_FDS:
            raise ValueError(f"{len(fds)} descriptors in one message, the limit is {MAX_FDS}")
        idle = not self._out
        room = PACKET_BYTES - 1
        for at in range(0, max(1, len(body)), room):
            flag = _LAST if at + room >= len(body) else _MORE
            self._out.append((flag + body[at : at + room], fds if at == 0 else ()))
        if idle:
            self._flush()

    def _flush(self) -> None:
        while self._out:
            packet, fds = self._out[0]
            control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                self._sock.sendmsg([packet], control)
            except BlockingIOError:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            except (BrokenPipeError, ConnectionResetError):
                self.close()
                return
            self._out.popleft()
        self._loop.remove_writer(self._sock.fileno())

    def _readable(self) -> None:
        while not self._closed:
            try:
                packet, fds = self._receive()
            except BlockingIOError:
                return
            except ConnectionResetError:
                packet, fds = b"", []
            if not packet:
                self.close()
                return
            self._fds += fds
            self._in += packet[1:]
            if packet[:1] == _LAST:
                body, received = bytes(self._in), self._fds
                self._in.clear()
                self._fds = []
                self._on_message(body, received)

    def _receive(self) -> tuple[bytes, list[int]]:
        space = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
        packet, control, _, _ = self._sock.recvmsg(PACKET_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        return packet, list(fds)

    def close(self) -> None:
        """Let the socket go; what was not sent is lost. Calling it again is fine."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        for fd in self._fds:
            os.close(fd)
        self._out.clear()
        self._on_closed()
