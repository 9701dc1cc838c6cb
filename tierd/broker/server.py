"""All connections: who may connect, how much they may receive together, who idles or dawdles."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

from tierd.base import descriptors
from tierd.base.clock import Clock
from tierd.base.session import Principal, Session
from tierd.broker.connection import Connection, Serve
from tierd.broker.counters import Counters
from tierd.broker.entrances import PLAIN, Door, Entrance
from tierd.broker.host import Sock
from tierd.broker.refusals import Addresses, Refusals
from tierd.broker.room import Room
from tierd.broker.sasl.gate import SaslGate
from tierd.broker.sasl.mechanisms import SaslSide
from tierd.broker.security.audit import Audit
from tierd.broker.sending import ReadFailed
from tierd.broker.tls.channel import TlsSocket
from tierd.broker.tls.connection import TlsConnection
from tierd.broker.tls.handshakes import Handshakes, of_certificate, why
from tierd.broker.waits import Wait, Waits
from tierd.config.listeners import Listener
from tierd.wire.errors import BadFrame

log = logging.getLogger(__name__)

SWEEP_S = 5.0
SWEPT_A_TURN = 500
UNKNOWN_MS = 30_000
"""Who has not authenticated by then, where that is asked for, is closed."""
STALLED_MS = 10_000
"""While others wait for room, a request that came slower than SLOWEST over this time costs its connection."""
SLOWEST_BYTES_S = 16 * 1024
_TRIM_EVERY_S = 1.0


class Server:
    """The doors and the connections that came through them. Loop thread only."""

    def __init__(
        self,
        serve: Serve,
        limits: Listener,
        clock: Clock,
        readers: Executor,
        read_failed: Callable[[ReadFailed], None] = lambda _: None,
        counters: Counters | None = None,
    ) -> None:
        """*readers*: threads for reads of cold pages, not ours to shut down. *read_failed*: told of local files that
        could not be read."""
        self._serve = serve
        self._limits = limits
        self._clock = clock
        self._readers = readers
        self.counters = counters or Counters()
        self.read_failed = read_failed
        self._connections: dict[Connection, None] = {}
        self.room: Room[Connection] = Room(limits.max_in_flight_bytes, limits.max_frame_bytes)
        self._most = min(limits.max_connections, descriptors.for_sockets() or limits.max_connections)
        self._letting_in = False
        self._trimmed_s = -_TRIM_EVERY_S
        self._doors: list[Door] = []
        self._addresses = Addresses(limits.max_connections_per_ip)
        self._refusals = Refusals(clock)
        self._handshakes = Handshakes(self._handshake_failed, self._refusals)
        self.audit: Audit | None = None
        """Told of certificates that were refused, if somebody wants to know."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._waits = Waits()
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

    def listen(self, host: str, port: int, entrance: Entrance = PLAIN) -> tuple[str, int]:
        """Open a door, beside those that are open; give the real address. Raises StartRefused."""
        self.loop = asyncio.get_running_loop()
        door = Door(entrance, self._welcome)
        bound = door.open(host, port)
        self._doors.append(door)
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)
            if self._most < self._limits.max_connections:
                log.warning("fewer connections than set: the limit of open files is low", extra={"most": self._most})
        return bound

    async def stop(self, grace_s: float) -> None:
        """Take no new connection and no new request, let answers go out for *grace_s* at most, then close.

        A second call with less grace ends the first one's waiting.
        """
        while self._doors:
            self._doors.pop().close()
        self._handshakes.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._emptied = self._emptied or asyncio.Event()
        for connection in list(self._connections):
            connection.finish()
        if self._connections and grace_s > 0:
            try:
                async with asyncio.timeout(grace_s):
                    await self._emptied.wait()
            except TimeoutError:
                log.info("closing connections that are still busy", extra={"connections": len(self._connections)})
        for connection in list(self._connections):
            connection.close()

    def drop(self, users: Collection[str]) -> None:
        """Close the connections of those who are no users any more."""
        for connection in list(self._connections) if users else ():
            if connection.by_password and connection.session.principal.name in users:
                self._close(connection, "its user was removed")

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

    def bad_request(self, connection: Connection, error: BadFrame) -> None:
        self.counters.bad_requests += 1
        self._refusals.say(logging.WARNING, "bad request, connection closed", peer=connection.peer, why=str(error))

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._addresses.leave(connection.session.host)
        self.room.leave(connection)
        self.room_left()
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    def _let_in(self) -> None:
        self._letting_in = False
        for connection in self.room.next():
            connection.resume_reading()

    def _welcome(self, sock: socket.socket, host: str, port: int, entrance: Entrance) -> None:
        self.accepted += 1
        peer = f"{host}:{port}"
        if (limit := self._limit_reached(host)) is not None:
            self.refused += 1
            self._refusals.say(logging.WARNING, "connection refused, too many", peer=peer, limit=limit)
            sock.close()
            return
        sock.setblocking(False)
        session = Session(listener=entrance.name, host=host, tls=entrance.tls is not None)
        if entrance.tls is None:
            self._connect(Connection, sock, peer, session, entrance.sasl)
            return

        def done(secured: ssl.SSLSocket, principal: Principal) -> None:
            known = session if entrance.sasl is not None else replace(session, principal=principal)
            self._connect(TlsConnection, TlsSocket(secured), peer, known, entrance.sasl)

        self._handshakes.begin(sock, entrance.tls, peer, self._clock.monotonic_ms(), done)

    def _limit_reached(self, host: str) -> int | None:
        """Which limit lets nobody in any more; None: one more from *host* has entered."""
        if len(self._connections) + len(self._handshakes) >= self._most:
            return self._most
        return None if self._addresses.enter(host) else self._limits.max_connections_per_ip

    def _connect(self, kind: type[Connection], sock: Sock, peer: str, session: Session, sasl: SaslSide | None) -> None:
        most = self._limits.max_frame_bytes
        if sasl is None:
            connection = kind(sock, peer, session, self, self._serve, most)
        else:
            gate = SaslGate(self._serve, sasl, most)
            connection = kind(sock, peer, session, self, gate, min(sasl.settings.max_receive_bytes, most))
            connection.admitted = False
        self._connections[connection] = None
        connection.start()

    def _handshake_failed(self, peer: str, error: OSError | ValueError, times: int | None) -> None:
        self.counters.handshakes_failed += 1
        self._addresses.leave(peer.rpartition(":")[0])
        if self.audit is not None and times is not None and of_certificate(error):
            session = Session(host=peer.rpartition(":")[0], tls=True)
            self.audit.authentication_failed(session, None, why(error), times)

    def _sweep(self) -> None:
        """Close who was silent too long, and whose request comes too slowly while others wait for room."""
        now_ms = self._clock.monotonic_ms()
        self._refusals.sum_up()
        self._handshakes.sweep(now_ms)
        self._sweep_some(iter(list(self._connections)), now_ms, _Seen([], {}))

    def _sweep_some(self, left: Iterator[Connection], now_ms: int, seen: "_Seen") -> None:
        """Some in a turn: ten thousand at once would be felt."""
        for number, connection in enumerate(left, 1):
            if connection.open:
                self._look_at(connection, now_ms)
            seen.waits.extend(_waits(connection, now_ms))
            if connection.open and (held_bytes := connection.outgoing.held_bytes):
                seen.unsent[connection] = held_bytes
            if number == SWEPT_A_TURN:
                self._sweeper = self.loop.call_later(0, self._sweep_some, left, now_ms, seen)
                return
        self._waits.look(seen.waits)
        self._bound(seen.unsent)
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)

    def _bound(self, unsent: dict[Connection, int]) -> None:
        """Answers that nobody takes may have as much memory as requests have; who holds most of it goes first."""
        over_bytes = sum(unsent.values()) - self.room.bound_bytes
        for connection in sorted(unsent, key=lambda one: -unsent[one]) if over_bytes > 0 else ():
            if over_bytes > 0 and connection.open:
                self._close(connection, "answers that are not taken need too much memory")
                over_bytes -= unsent[connection]

    def _look_at(self, connection: Connection, now_ms: int) -> None:
        swept = connection.swept
        if swept.active_ms is None or connection.moved_bytes != swept.moved_bytes or connection.waiting:
            swept.active_ms, swept.moved_bytes = now_ms, connection.moved_bytes
        if swept.since_ms is None:
            swept.since_ms = now_ms
        silent_ms = now_ms - swept.active_ms
        if connection.peer_left():
            self._close(connection, "the peer has left")
        elif not connection.admitted and now_ms - swept.since_ms > UNKNOWN_MS:
            self._close(connection, f"not authenticated in {UNKNOWN_MS // 1000} s")
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
        self._refusals.say(logging.INFO, "connection closed", peer=connection.peer, why=why)
        connection.close()


class _Seen(NamedTuple):
    """What one sweep has found."""

    waits: list[Wait]
    unsent: dict[Connection, int]
    """Bytes of answers that their clients have not taken yet."""


def _waits(connection: Connection, now_ms: int) -> Iterator[Wait]:
    """Its request in work, if there is one."""
    swept, work = connection.swept, connection.work
    if swept.work is not work:
        swept.work, swept.work_ms = work, now_ms
    if work is not None:
        yield Wait(swept.api_key, (now_ms - swept.work_ms) / 1000, work.get_coro())
