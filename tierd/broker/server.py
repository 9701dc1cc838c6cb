"""The listener and its connections: who may connect, how much they may receive together, who idles or dawdles."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from tierd.base import descriptors
from tierd.base.clock import Clock
from tierd.base.errors import StartRefused
from tierd.base.session import Session
from tierd.broker.connection import Connection, Serve
from tierd.broker.room import Room
from tierd.broker.sending import ReadFailed
from tierd.config.listeners import Listener

log = logging.getLogger(__name__)

LISTENER = "PLAINTEXT"
"""Its name, as Kafka calls the only one."""
SWEEP_S = 5.0
SWEPT_A_TURN = 500
STALLED_MS = 10_000
"""While others wait for room, a request that came slower than SLOWEST over this time costs its connection."""
SLOWEST_BYTES_S = 16 * 1024
_TRIM_EVERY_S = 1.0
_KEEPALIVE = {socket.TCP_KEEPIDLE: 60, socket.TCP_KEEPINTVL: 15, socket.TCP_KEEPCNT: 4}
"""Seconds and tries until a silent peer that is no more is noticed."""
_BACKLOG = 1024
_ACCEPTS_A_TURN = 64
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Server:
    """One listening socket. Loop thread only."""

    def __init__(
        self,
        serve: Serve,
        limits: Listener,
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
        self.room: Room[Connection] = Room(limits.max_in_flight_bytes, limits.max_frame_bytes)
        self._most = min(limits.max_connections, descriptors.for_sockets() or limits.max_connections)
        self._letting_in = False
        self._trimmed_s = -_TRIM_EVERY_S
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
        return self.room.used_bytes

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
            _set_for_clients(listener)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise StartRefused(f"cannot listen on {host}:{port}: {error}; choose another with --listen") from error
        self._listener = listener
        if self._most < self._limits.max_connections:
            log.warning("fewer connections than set: the limit of open files is low", extra={"most": self._most})
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

    def no_room(self) -> None:
        """Those who only keep a buffer for the next request give it back."""
        now_s = self.loop.time()
        if now_s - self._trimmed_s >= _TRIM_EVERY_S:
            self._trimmed_s = now_s
            for connection in list(self._connections):
                if self.room.holds(connection):
                    connection.trim()

    def room_left(self) -> None:
        """Those who wait are let in, once in a turn, however much has become free."""
        if self.room.waiting and not self._letting_in:
            self._letting_in = True
            self.loop.call_soon(self._let_in)

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self.room.leave(connection)
        self.room_left()
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    def _let_in(self) -> None:
        self._letting_in = False
        for connection in self.room.next():
            connection.resume_reading()

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
            self._welcome(sock, address[0], address[1])

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

    def _welcome(self, sock: socket.socket, host: str, port: int) -> None:
        self.accepted += 1
        peer = f"{host}:{port}"
        if len(self._connections) >= self._most:
            self.refused += 1
            log.warning("connection refused, too many", extra={"peer": peer, "limit": self._most})
            sock.close()
            return
        sock.setblocking(False)
        session = Session(listener=LISTENER, host=host)
        connection = Connection(sock, peer, session, self, self._serve, self._limits.max_frame_bytes)
        self._connections[connection] = None
        connection.start()

    def _sweep(self) -> None:
        """Close who was silent too long, and whose request comes too slowly while others wait for room."""
        self._sweep_some(iter(list(self._connections)), self._clock.monotonic_ms())

    def _sweep_some(self, left: Iterator[Connection], now_ms: int) -> None:
        """Some in a turn: ten thousand at once would be felt."""
        for number, connection in enumerate(left, 1):
            if connection.open:
                self._look_at(connection, now_ms)
            if number == SWEPT_A_TURN:
                self._sweeper = self.loop.call_later(0, self._sweep_some, left, now_ms)
                return
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)

    def _look_at(self, connection: Connection, now_ms: int) -> None:
        swept = connection.swept
        if swept.active_ms is None or connection.moved_bytes != swept.moved_bytes or connection.waiting:
            swept.active_ms, swept.moved_bytes = now_ms, connection.moved_bytes
        silent_ms = now_ms - swept.active_ms
        if connection.peer_left():
            self._close(connection, "the peer has left")
        elif silent_ms > self._limits.idle_ms:
            self._close(connection, "an answer was not taken" if connection.busy else "idle")
        elif connection.busy or connection.incoming.frames.pending_bytes == 0:
            swept.begun_ms = None
            if silent_ms > SWEEP_S * 1000:
                connection.trim()
        elif self._dawdles(connection, now_ms):
            self._close(connection, "a request came too slowly")

    def _dawdles(self, connection: Connection, now_ms: int) -> bool:
        """A request must come at some speed: soon when it takes room for which others wait, within idle_ms always."""
        swept = connection.swept
        if swept.begun_ms is not None:
            for_ms = now_ms - swept.begun_ms
            in_the_way = self.room.waiting and self.room.holds(connection)
            if for_ms < (STALLED_MS if in_the_way else self._limits.idle_ms):
                return False
            came_bytes = connection.incoming.received_bytes - swept.begun_bytes
            held_back = self.room.waits(connection) and connection.incoming.unread_bytes > 0
            if came_bytes * 1000 < SLOWEST_BYTES_S * for_ms and not held_back:
                return True
        swept.begun_ms, swept.begun_bytes = now_ms, connection.incoming.received_bytes
        return False

    def _close(self, connection: Connection, why: str) -> None:
        log.info("connection closed", extra={"peer": connection.peer, "why": why})
        connection.close()


def _set_for_clients(listener: socket.socket) -> None:
    """What accepted sockets take over from the listener."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
