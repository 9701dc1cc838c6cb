"""One client connection on the loop: receive, hand frames on in order, one request in work at a time, send.

Backpressure: while a request is in work or its answer is not wholly sent, nothing more is read from that client; nor
while there is no room for the request that it sends (`room`). An idle connection costs a table entry and a few KiB, no
timer and no task.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from tierd.base.session import Session
from tierd.broker.fetch_again import FetchAgain
from tierd.broker.host import Host, Sock, Swept
from tierd.broker.receiving import Got, Incoming
from tierd.broker.sending import Outgoing, Pumped, ReadFailed, Reply, release
from tierd.wire.errors import BadFrame
from tierd.wire.produce_shape import ProduceShapes

log = logging.getLogger(__name__)

Answer = Reply | Coroutine[Any, Any, Reply | None] | None
"""An answer now, one to wait for, or none at all (Produce with acks=0)."""
FRAMES_A_TURN = 64
"""Frames of one connection handled before others get their turn."""
RECEIVES_A_TURN = 4


class Serve(Protocol):
    """Answers one frame. The frame is valid until it returns; after `hold_frame`, until `frame_read` or the answer."""

    def __call__(self, frame: memoryview, connection: "Connection") -> Answer: ...


class CloseQuietly(Exception):
    """A handler asks for the connection to be closed without an answer, as Kafka does (failed acks=0 requests)."""


class Connection:
    """Owns the socket. Loop thread only."""

    __slots__ = (
        "_close_when_sent",
        "_frame_held",
        "_host",
        "_pause_s",
        "_reading",
        "_resting",
        "_sock",
        "_task",
        "_turn_over",
        "_warming",
        "_writing",
        "admitted",
        "by_password",
        "fetched",
        "incoming",
        "open",
        "outgoing",
        "peer",
        "produced",
        "serve",
        "session",
        "swept",
    )

    def __init__(self, sock: Sock, peer: str, session: Session, host: Host, serve: Serve, max_frame_bytes: int) -> None:
        """*peer*: its address and port, for log lines."""
        self._sock = sock
        self.peer = peer
        self.session = session
        self._host = host
        self.serve = serve
        self.incoming, self.outgoing = self._sides(sock, max_frame_bytes)
        self._task: asyncio.Task[Reply | None] | None = None
        self._warming = self._reading = self._writing = False
        self._turn_over = self._close_when_sent = self._frame_held = False
        self._pause_s, self._resting = 0.0, False
        self.open = True
        self.admitted = True
        """Whether its client is authenticated, where that is asked for."""
        self.by_password = False
        """Whether its client is a user whose password is kept here."""
        self.produced: ProduceShapes | None = None
        """What the Produce requests of this client look like, once it has sent one."""
        self.fetched: FetchAgain | None = None
        """What its last Fetch was like, if it was of a common form."""
        self.swept = Swept()

    def _sides(self, sock: Any, max_frame_bytes: int) -> "tuple[Incoming[Connection], Outgoing]":
        return Incoming(sock, max_frame_bytes, self._host.room, self), Outgoing(sock)

    def start(self) -> None:
        self._read(True)
        self._take_hidden()

    @property
    def busy(self) -> bool:
        """A request is in work or an answer on its way."""
        return self._task is not None or self._warming or bool(self.outgoing.items)

    @property
    def waiting(self) -> bool:
        """A request is in work."""
        return self._task is not None or self._warming

    @property
    def work(self) -> "asyncio.Task[Reply | None] | None":
        """What the answer is waited for from; None also while its client is only to pause."""
        return None if self._resting else self._task

    @property
    def moved_bytes(self) -> int:
        """Received and sent."""
        return self.incoming.received_bytes + self.outgoing.sent_bytes

    def fileno(self) -> int:
        return self._sock.fileno()

    def finish(self) -> None:
        """Close once the request in work is answered; at once when there is none."""
        self._close_when_sent = True
        if not self.busy or self._resting:
            self.close()

    def close(self) -> None:
        """Close now; slices that wait are released, a request in work is cancelled."""
        if not self.open:
            return
        self.open = False
        self._read(False)
        self._write(False)
        if self._task is not None:
            self._task.cancel()
        if not self._warming:
            self.outgoing.drop()
        self._sock.close()
        self.incoming.frames.discard()
        self._host.closed(self)

    def pause(self, for_s: float) -> None:
        """Handle nothing more of this client for so long, once the request in work is answered."""
        self._pause_s = max(self._pause_s, for_s)

    def resume_reading(self) -> None:
        """There is room for the request that is being received."""
        if self.open:
            self.incoming.resume()
            if not self.busy:
                self._read(True)
                self._take_hidden()

    def hold_frame(self) -> None:
        """The answer that is being begun still reads the frame."""
        self._frame_held = True

    def frame_read(self) -> None:
        """The frame is no longer looked at."""
        self._frame_held = False
        self._settle()

    def _settle(self) -> None:
        if self.open and not self._frame_held and self.incoming.settle():
            self._host.room_left()

    def peer_left(self) -> bool:
        """Whether the peer has gone, though nothing is read that would say so."""
        watched = self._reading and not self._host.room.waits(self)
        return not watched and self.incoming.peer_left(waits_for_answer=self.waiting)

    def trim(self) -> None:
        """Give back the receive buffer when nothing is in it."""
        if not self.busy and self.incoming.trim():
            self._host.room_left()

    def _readable(self) -> None:
        if self._task is not None or self._warming or self.outgoing.items:
            self._look_for_end()
            return
        if self._turn_over:
            return  # What has come is still being worked off.
        for _ in range(RECEIVES_A_TURN):
            got = self.incoming.receive()
            if got is not Got.SOME and got is not Got.FULL:
                self._received_none(got)
                return
            self._advance()
            self._settle()
            # A full buffer means that more is waiting: take it without a round through the loop.
            if got is Got.SOME or self._turn_over or not self.open or self.busy:
                return
        self._take_hidden()

    def _take_hidden(self) -> None:
        """Go on soon with bytes that no event tells of."""
        if self.incoming.hidden:
            self._host.loop.call_soon(self._hidden_readable)

    def _hidden_readable(self) -> None:
        if self.open and self._reading and not self.busy:
            self._readable()

    def _received_none(self, got: Got) -> None:
        if got is Got.END:
            self.close()
        elif got is Got.MUST_SEND:
            self._read(False)
            self._write(True)
        elif got is not Got.NOTHING:
            self._read(got is Got.REST_WAITED_FOR)
            self._host.no_room()

    def _look_for_end(self) -> None:
        """Bytes or the end came while a request is in work: stop watching, unless the peer has gone."""
        try:
            ahead = self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ahead = b""
        if ahead:
            self._read(False)
        else:
            self.close()

    def _advance(self) -> None:
        """Handle the frames that are there; an error that is no fault of the client's goes up to the loop."""
        settled = False
        try:
            self._handle_frames()
            settled = True
        except BadFrame as error:
            self._host.bad_request(self, error)
        except CloseQuietly:
            pass
        except OSError as error:
            self._gone(error)
        finally:
            if not settled:
                self.close()

    def _handle_frames(self) -> None:
        """Answers that are plain bytes go out together."""
        ready: list[bytes] = []
        self._turn_over = False
        try:
            for _ in range(FRAMES_A_TURN):
                if self._close_when_sent or self._pause_s:
                    return
                frame = self.incoming.frames.next_frame()
                if frame is None:
                    return
                answer = self.serve(frame, self)
                if type(answer) is bytes:
                    ready.append(answer)
                elif answer is not None and not self._begin(answer, ready):
                    return
            self._turn_over = True
            self._host.loop.call_soon(self._next_turn)
        finally:
            if ready:
                self._flush(ready)
            if self._close_when_sent:
                self.finish()
            elif self._pause_s and not self.busy:
                self._rest()

    def _rest(self) -> None:
        """The pause is a request in work, to which there is no answer."""
        self._task = self._host.loop.create_task(asyncio.sleep(self._pause_s))
        self._pause_s, self._resting = 0.0, True
        self._task.add_done_callback(self._answered)

    def _begin(self, answer: Reply | Coroutine[Any, Any, Reply | None], ready: list[bytes]) -> bool:
        """An answer with records or one to wait for; False when nothing more is to be handled until it is out."""
        if ready:
            self._flush(ready)
            ready.clear()
        if isinstance(answer, (bytes, list)):
            state = self.outgoing.send(answer)
            return (state is Pumped.DONE and not self._writing) or self._sent(state)
        self._task = self._host.loop.create_task(answer)
        self._task.add_done_callback(self._answered)
        return False

    def _flush(self, ready: list[bytes]) -> None:
        state = self.outgoing.send(ready[0] if len(ready) == 1 else b"".join(ready))
        if state is not Pumped.DONE:
            self._sent(state)

    def _next_turn(self) -> None:
        if self.open and not self.busy:
            self._advance()
            if self.open and not self._turn_over:
                self._take_hidden()

    def _answered(self, task: "asyncio.Task[Reply | None]") -> None:
        self._task, self._resting = None, False
        if self._frame_held:
            self.frame_read()
        reply = None
        if not task.cancelled():
            error = task.exception()
            if error is None:
                reply = task.result()
            else:
                self._failed(error)
        elif self.open:  # Not by `close`: no answer comes, and its client must not wait for one.
            self._failed(asyncio.CancelledError())
        if not self.open:
            release(reply)
            return
        try:
            if reply is not None and not self._sent(self.outgoing.send(reply)):
                return
        except OSError as error:
            self._gone(error)
            self.close()
            return
        self._go_on()

    def _failed(self, error: BaseException) -> None:
        self.close()
        if isinstance(error, BadFrame):
            self._host.bad_request(self, error)
        elif not isinstance(error, CloseQuietly):
            self._host.loop.call_exception_handler({"message": f"request of {self.peer} failed", "exception": error})

    def _writable(self) -> None:
        try:
            if self._sent(self.outgoing.pump()):
                self._go_on()
        except OSError as error:
            self._gone(error)
            self.close()

    def _gone(self, error: OSError) -> None:
        """The peer is gone, or the bytes that it was promised are not to be had."""
        if isinstance(error, ReadFailed):
            log.error("local read failed, connection closed", extra={"peer": self.peer, "why": str(error)})
            self._host.read_failed(error)
        else:
            log.debug("peer gone", extra={"peer": self.peer, "why": str(error)})

    def _go_on(self) -> None:
        """What waited is out: the next frames, then more bytes."""
        if self._task is not None:
            return
        if self._close_when_sent:
            self.close()
            return
        if self._pause_s:
            self._rest()
            return
        self._advance()
        if self.open and not self.busy:
            self._read(True)
            self._take_hidden()

    def _sent(self, state: Pumped) -> bool:
        """Watch for what is needed to go on sending; True when all is sent."""
        self._write(state is Pumped.FULL)
        if state is Pumped.COLD:
            read = self.outgoing.cold()
            self._warming = True
            future = self._host.loop.run_in_executor(self._host.readers, read.run)
            future.add_done_callback(lambda done: self._warmed(done, lambda: self.outgoing.warmed(read)))
        return state is Pumped.DONE

    def _warmed(self, done: Awaitable[None], accept: Callable[[], None]) -> None:
        assert isinstance(done, asyncio.Future)
        self._warming = False
        error = None if done.cancelled() else done.exception()
        if not self.open:
            self.outgoing.drop()
            return
        if error is not None:
            self._gone(error if isinstance(error, OSError) else OSError(str(error)))
            self.close()
            return
        accept()
        self._writable()

    def _read(self, on: bool) -> None:
        if on is not self._reading:
            self._reading = on
            if on:
                self._host.loop.add_reader(self._sock.fileno(), self._readable)
            else:
                self._host.loop.remove_reader(self._sock.fileno())

    def _write(self, on: bool) -> None:
        if on is not self._writing:
            self._writing = on
            if on:
                self._host.loop.add_writer(self._sock.fileno(), self._writable)
            else:
                self._host.loop.remove_writer(self._sock.fileno())
