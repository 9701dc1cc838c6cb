"""The receive side of one connection: bytes into its frame buffer, as far as there is room for what it sends.

A request that gets no room is not read: it waits in the kernel, and its sender with it.
"""

import fcntl
import socket
import termios
from enum import Enum, auto
from typing import Generic

from tierd.broker.room import Room, Who
from tierd.wire.frame import FIRST_BYTES, FrameBuffer

SMALL_BYTES = 64 * 1024
"""A request up to this is taken without any room once the kernel has the whole of it: it stays for one turn only."""
_ESTABLISHED, _CLOSED = 1, 7  # tcpi_state


class Got(Enum):
    SOME = auto()
    FULL = auto()
    """As much as was asked for: more is waiting."""
    NOTHING = auto()
    END = auto()
    """Of the stream, or of the connection."""
    NO_ROOM = auto()
    """Stop reading until `resume`."""
    REST_WAITED_FOR = auto()
    """Go on reading: the kernel says when there is something to do."""
    MUST_SEND = auto()
    """Nothing comes before something was sent (TLS)."""


class Incoming(Generic[Who]):
    """Loop thread only. *Who* is the connection, as the room knows it."""

    hidden = False
    """Whether bytes wait that no event will tell of."""
    __slots__ = ("_capacity", "_room", "_seated", "_sock", "_waits_for_rest", "_who", "frames", "received_bytes")

    def __init__(self, sock: socket.socket, max_frame_bytes: int, room: Room[Who], who: Who) -> None:
        self._sock = sock
        self._room = room
        self._who = who
        self.frames = FrameBuffer(max_frame_bytes)
        self.received_bytes = 0
        self._capacity = 0
        self._seated = False  # there is room for all of the request that is being received
        self._waits_for_rest = False

    def receive(self) -> Got:
        """Take what is there; then take the frames, and call `settle`."""
        frames = self.frames
        if frames.wanted_bytes > self._capacity and not self._may_grow():
            return self._without_room()
        space = frames.space()
        try:
            got = self._sock.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return Got.NOTHING
        except OSError:
            return Got.END
        if got == 0:
            return Got.END
        self.received_bytes += got
        frames.received(got)
        return Got.FULL if got == len(space) else Got.SOME

    def settle(self) -> bool:
        """After the frames were taken: whether room has become free.

        Who had room for a whole request and no longer needs it keeps only what came behind that request.
        """
        frames = self.frames
        if frames.capacity_bytes == self._capacity and not self._seated:
            return False
        if self._seated and not frames.begun:
            self._seated = False
            frames.shrink()
        self._capacity = frames.capacity_bytes
        if self._seated:
            return False
        self._room.settle(self._who, self._capacity)
        return True

    def trim(self) -> bool:
        """Give back the buffer when nothing is in it; whether room has become free."""
        if self.frames.pending_bytes:
            return False
        self.frames.release_idle()
        return self.settle()

    def resume(self) -> None:
        """There is room now."""
        if self._waits_for_rest:
            self._waits_for_rest = False
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    @property
    def unread_bytes(self) -> int:
        """What has come and was not received."""
        return int.from_bytes(fcntl.ioctl(self._sock, termios.FIONREAD, bytes(4)), "little")

    def peer_left(self, *, waits_for_answer: bool) -> bool:
        """Whether the peer of a socket that is not read has reset the connection, or ended it too early.

        Too early: before the request that it began was whole, or before the answer that it *waits_for*.
        """
        state = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state == _ESTABLISHED:
            return False
        return state == _CLOSED or waits_for_answer or not self._may_have_come(self._rest_bytes)

    def _may_have_come(self, size_bytes: int) -> bool:
        return self.unread_bytes >= size_bytes

    def _is_whole(self, needed_bytes: int) -> bool:
        """Whether a small request can be received in one turn."""
        return needed_bytes <= SMALL_BYTES and self.unread_bytes >= self._rest_bytes

    @property
    def _rest_bytes(self) -> int:
        return self.frames.needed_bytes - self.frames.pending_bytes

    def _may_grow(self) -> bool:
        frames, room = self.frames, self._room
        wanted, needed = frames.wanted_bytes, frames.needed_bytes
        if wanted <= FIRST_BYTES:
            return True
        if needed == 0:
            if not room.like(self._who, wanted):
                frames.stay()
            return True
        if not room.grow(self._who, wanted, needed):
            if not self._is_whole(needed):
                return False
            room.lend(self._who, needed)
        if room.seated(self._who):
            self._seated = True
            frames.take_whole()
        self.resume()
        return True

    def _without_room(self) -> Got:
        if self.frames.needed_bytes <= SMALL_BYTES and not self._waits_for_rest:
            self._waits_for_rest = True
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._rest_bytes)
            return Got.REST_WAITED_FOR
        return Got.END if self.peer_left(waits_for_answer=False) else Got.NO_ROOM
