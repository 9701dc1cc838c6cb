"""Calls over a channel: numbers them, waits for replies, and carries errors across by their class's name."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tierd.base.errors import Archived, CorruptFile, DiskFull, RemoteUnavailable, StartRefused, TierdError, Usage
from tierd.ipc.channel import Channel

_KINDS: dict[str, type[TierdError]] = {
    "RemoteUnavailable": RemoteUnavailable,
    "StartRefused": StartRefused,
    "Archived": Archived,
    "DiskFull": DiskFull,
    "Usage": Usage,
}


@dataclass(frozen=True, slots=True)
class Failed:
    """A reply. *kind* names the error class that the caller raises again."""

    call: int
    kind: str
    detail: str
    where: str = ""
    position: int = 0


class CallFailed(TierdError):
    """The other process answered with an error that has no class of its own here."""


def failed(call: int, error: BaseException) -> Failed:
    """*error* as a reply; the nearest known class decides what is raised on the other side."""
    if isinstance(error, CorruptFile):
        return Failed(call, "CorruptFile", error.reason, error.where, error.position)
    for name, kind in _KINDS.items():
        if isinstance(error, kind):
            return Failed(call, name, str(error))
    return Failed(call, type(error).__name__, str(error))


def raised(message: Failed) -> TierdError:
    """The inverse of `failed`."""
    if message.kind == "CorruptFile":
        return CorruptFile(message.where, message.position, message.detail)
    kind = _KINDS.get(message.kind)
    return CallFailed(f"{message.kind}: {message.detail}") if kind is None else kind(message.detail)


class Calls:
    """Outstanding calls of one side. Loop thread only.

    *pack* makes bytes of its messages; *gone* is what callers get when the other side goes meanwhile.
    """

    def __init__(self, pack: Callable[[Any], bytes], gone: type[TierdError] = RemoteUnavailable) -> None:
        self._pack = pack
        self._gone = gone
        self._next = 1
        self._waiting: dict[int, asyncio.Future[tuple[Any, list[int]]]] = {}

    async def ask(
        self,
        channel: Channel,
        make: Callable[[int], Any],
        on_cancel: Callable[[int], None] | None = None,
        fds: Sequence[int] = (),
    ) -> tuple[Any, list[int]]:
        """Send `make(number)`, with *fds*, and give the reply and its descriptors.

        Raises what the reply says, ChannelClosed before sending, *gone* when the other side goes meanwhile.
        """
        number = self._next
        self._next += 1
        future: asyncio.Future[tuple[Any, list[int]]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            channel.send(self._pack(make(number)), fds)
            return await future
        except asyncio.CancelledError:
            if on_cancel is not None:
                on_cancel(number)
            raise
        finally:
            self._waiting.pop(number, None)

    def reply(self, message: Any, fds: list[int]) -> bool:
        """Hand a reply to its caller; False when nobody waits for it any more (the descriptors are then still ours)."""
        future = self._waiting.get(message.call)
        if future is None or future.done():
            return False
        if isinstance(message, Failed):
            future.set_exception(raised(message))
        else:
            future.set_result((message, fds))
        return True

    def drop_all(self, why: str) -> None:
        """The other side is gone."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._gone(why))
