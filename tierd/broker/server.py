"""The listener and its connections: who may connect, how much they may buffer together, who idles too long."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from tierd.base.clock import Clock
from tierd.base.errors import StartRefused
from tierd.broker.connection import Connection, Serve
from tierd.broker.sending import ReadFailed
from tierd.wire.frame import STEADY_BYTES

log = logging.getLogger(__name__)

SWEEP_S = 5.0
STALLED_MS = 10_000
"""While buffers are over their limit, a large frame that has not grown for this long costs its connection."""
_BACKLOG = 1024
_ACCEPTS_A_TURN = 64
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What all clients together and each alone may take."""

    max_connections: int = 10_000
    max_frame_bytes: int = 100 * 1024 * 1024
    max_buffered_bytes: int = 512 * 1024 * 1024
    """Receive buffers of large frames over all connections; beyond it only one large frame at a time goes on."""
    idle_ms: int = 600_000


class Server:
    """One listening socket. Loop thread only."""

    def __init__(
        self,
        serve: Serve,
        limits: Limits,
        clock: Clock,
        readers: Executor,
        read_failed: Callable[[ReadFailed], None] = lambda _: None,
    ) -> None:
        """*readers*: threads for reads of cold pages, not ours to shut down. *read_failed*: told of local files that
        could not be read."""
        self._serve = serve
        self._limits = limits
        self._clock = clock
        self._readers = readers
        self.read_failed = read_failed
        self._connections: dict[Connection, None] = {}
        self._large: dict[Connection, None] = {}  # in the order in which they became large
        self._held: set[Connection] = set()
        self._buffered_bytes = 0
        self._listener: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None
        self.accepted = 0
        self.refused = 0
        self.loop: asyncio.AbstractEventLoop

    @property
    def readers(self) -> Executor:
        return self._readers

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def buffered_bytes(self) -> int:
        return self._buffered_bytes

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Bind and accept; give the real address. Raises StartRefused when the address is taken or not ours."""
        self.loop = asyncio.get_running_loop()
        try:
            family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, kind, proto)
        except OSError as error:
            raise StartRefused(f"cannot listen on {host}:{port}: {error}") from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise StartRefused(f"cannot listen on {host}:{port}: {error}; choose another with --listen") from error
        self._listener = listener
        self.loop.add_reader(listener.fileno(), self._accept)
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)
        bound = listener.getsockname()
        return str(bound[0]), int(bound[1])

    async def stop(self, grace_s: float) -> None:
        """Take no new connection and no new request, let answers go out for *grace_s* at most, then close.

        A second call with less grace ends the first one's waiting.
        """
        if self._listener is not None:
            self.loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._emptied = self._emptied or asyncio.Event()
        for connection in list(self._connections):
            connection.finish()
        if self._connections and grace_s > 0:
            try:
                await asyncio.wait_for(self._emptied.wait(), grace_s)
            except TimeoutError:
                log.info("closing connections that are still busy", extra={"connections": len(self._connections)})
        for connection in list(self._connections):
            connection.close()

    # What connections ask of their host.

    def may_buffer(self, connection: Connection) -> bool:
        if self._buffered_bytes <= self._limits.max_buffered_bytes or next(iter(self._large), None) is connection:
            return True
        self._held.add(connection)
        return False

    def buffer_changed(self, connection: Connection, by_bytes: int) -> None:
        if not by_bytes:
            return
        over = self._buffered_bytes > self._limits.max_buffered_bytes
        self._buffered_bytes += by_bytes
        if connection.open and connection.frames.capacity_bytes > STEADY_BYTES:
            self._large.setdefault(connection)
        else:
            self._large.pop(connection, None)
        if self._buffered_bytes > self._limits.max_buffered_bytes:
            if not over:
                self._trim_all()
        elif self._held:
            self._release_held()

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._held.discard(connection)
        self._large.pop(connection, None)
        if self._held:
            self._release_held()
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    def _release_held(self) -> None:
        held, self._held = self._held, set()
        for connection in held:
            connection.resume_reading()  # Those that still may not are held again on their next readable event.

    def _trim_all(self) -> None:
        for connection in list(self._large):
            connection.trim()

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
                self._pause_accepting(error)
                return
            self._welcome(sock, f"{address[0]}:{address[1]}")

    def _pause_accepting(self, error: OSError) -> None:
        """Without descriptors the pending connection stays readable: look again in a second instead of spinning."""
        log.error("cannot accept connections", extra={"why": str(error), "connections": len(self._connections)})
        listener = self._listener
        assert listener is not None
        self.loop.remove_reader(listener.fileno())
        self.loop.call_later(1.0, self._accept_again)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.add_reader(self._listener.fileno(), self._accept)

    def _welcome(self, sock: socket.socket, peer: str) -> None:
        self.accepted += 1
        if len(self._connections) >= self._limits.max_connections:
            self.refused += 1
            log.warning("connection refused, too many", extra={"peer": peer, "limit": self._limits.max_connections})
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = Connection(sock, peer, self, self._serve, self._limits.max_frame_bytes)
        self._connections[connection] = None
        connection.start()

    def _sweep(self) -> None:
        """Close who was silent too long, and large frames that stand still while others wait for room."""
        now = self._clock.monotonic_ms()
        over = self._buffered_bytes > self._limits.max_buffered_bytes
        for connection in list(self._connections):
            sent, connection.swept_bytes = connection.sent_bytes - connection.swept_bytes, connection.sent_bytes
            if connection.active_ms < 0 or sent or connection.waiting:
                connection.active_ms = now
            silent_ms = now - connection.active_ms
            if silent_ms > self._limits.idle_ms:
                self._close_silent(connection, "an answer was not taken" if connection.busy else "idle")
            elif connection.busy:
                continue
            elif over and silent_ms > STALLED_MS and connection.frames.pending_bytes > STEADY_BYTES:
                if connection not in self._held:
                    self._close_silent(connection, "a large request stood still while others waited for memory")
            elif silent_ms > SWEEP_S * 1000:
                connection.trim()
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)

    def _close_silent(self, connection: Connection, why: str) -> None:
        log.info("connection closed", extra={"peer": connection.peer, "why": why})
        connection.close()
