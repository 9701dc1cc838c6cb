"""What a connection needs of its server, and what the server sees of it."""

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tierd.broker.room import Room
from tierd.broker.sending import ReadFailed
from tierd.wire.errors import BadFrame

if TYPE_CHECKING:
    from tierd.broker.connection import Connection


class Sock(Protocol):
    """What a connection itself asks of its socket."""

    def fileno(self) -> int: ...
    def recv(self, size: int, flags: int, /) -> bytes: ...
    def close(self) -> None: ...


class Host(Protocol):
    """What a connection needs of its server."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def readers(self) -> Executor:
        """Threads for reads of cold pages."""

    @property
    def room(self) -> "Room[Connection]": ...

    def no_room(self) -> None:
        """A connection waits for room; `resume_reading` is called when it has got it."""

    def room_left(self) -> None:
        """Others may go on now."""

    def bad_request(self, connection: "Connection", error: BadFrame) -> None:
        """It is closed for what it has sent."""

    def closed(self, connection: "Connection") -> None: ...

    def read_failed(self, error: ReadFailed) -> None:
        """A local file could not be read while it was being sent; the connection is closed."""


@dataclass(slots=True)
class Swept:
    """What the server's sweep saw of a connection."""

    since_ms: int | None = None
    """Monotonic time of the first sweep; None before it."""
    moved_bytes: int = 0
    """Received and sent."""
    active_ms: int | None = None
    """Monotonic time of the last sweep that saw anything move; None before the first."""
    begun_ms: int | None = None
    """Since when the request that is being received is watched; None when there is none."""
    begun_bytes: int = 0
    """What had been received then."""
    api_key: int | None = None
    """Of the request that came last; None before it, and before its client is authenticated."""
    held_to: int = 0
    """Which quotas it was held to when it first asked for something that they limit; bits of `throttle`."""
    work: object = None
    """What the answer was waited for from."""
    work_ms: int = 0
    """Monotonic time of the first sweep that saw that."""
