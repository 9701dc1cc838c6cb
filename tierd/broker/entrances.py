"""A listening socket and what it asks of who comes in: sockets are accepted here, `server` welcomes them."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from tierd.base.errors import StartRefused
from tierd.broker.sasl.mechanisms import SaslSide
from tierd.broker.tls.contexts import TlsSide

log = logging.getLogger(__name__)

_KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
"""Seconds and tries until a silent peer that is no more is noticed."""
_BACKLOG = 1024
_ACCEPTS_A_TURN = 64
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Entrance:
    """A listener, as far as its connections are concerned."""

    name: str
    tls: TlsSide | None = None
    sasl: SaslSide | None = None


PLAIN = Entrance("PLAINTEXT")

Advertised = Callable[[str], tuple[str, int]]
"""What clients of the listener of this name are told to connect to."""

Welcome = Callable[[socket.socket, str, int, Entrance], None]
"""A socket, the address and port of its peer, and where it came in."""


class Door:
    """One listening socket. Loop thread only."""

    def __init__(self, entrance: Entrance, welcome: Welcome) -> None:
        self._entrance = entrance
        self._welcome = welcome
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None

    def open(self, host: str, port: int) -> tuple[str, int]:
        """Bind and accept; give the real address. Raises StartRefused when the address is taken or not ours."""
        try:
            family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, proto)
        except OSError as error:
            raise StartRefused(f"cannot listen on {host}:{port}: {error}") from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _set_for_clients(listener)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise StartRefused(f"cannot listen on {host}:{port}: {error}; choose another with --listen") from error
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._accept)
        bound = listener.getsockname()
        return str(bound[0]), int(bound[1])

    def close(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS_A_TURN):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                self._pause(error)
                return
            self._welcome(sock, address[0], address[1], self._entrance)

    def _pause(self, error: OSError) -> None:
        """Without descriptors the pending connection stays readable: look again in a second instead of spinning."""
        log.error("cannot accept connections", extra={"why": str(error), "listener": self._entrance.name})
        assert self._listener is not None
        self._loop.remove_reader(self._listener.fileno())
        self._loop.call_later(1.0, self._accept_again)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)


def _set_for_clients(listener: socket.socket) -> None:
    """What accepted sockets take over from the listener."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
