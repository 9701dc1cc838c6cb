"""Batches whose records take long to look at: looked at beside the loop, appended in the order in which they came.

Behind one of them every later batch of its partition waits here. What has been received is appended even when its
client has gone meanwhile, as with acks=0 it may at once.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from tierd.base.errors import TierdError
from tierd.broker.partition import Partition
from tierd.broker.ports import Looker
from tierd.storage.header import BatchHeader
from tierd.storage.look import LongLook, Look, Looking, Verdict, look_at_bytes, look_briefly

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of all batches that wait here; one alone may be larger."""

_Done = TypeVar("_Done")
Append = Callable[[memoryview, Looking], Coroutine[Any, Any, _Done]]
"""Appends a batch with that way to look at its records; may raise LongLook, and is then called again."""


class TooMuchWaits(TierdError):
    """No more batches can be kept until some have been looked at; the sender may try again."""


class InThread:
    """Looks in a thread: without another process, and at the price of the interpreter lock."""

    async def look(self, batch: memoryview, look: Look) -> Verdict:
        return await asyncio.to_thread(look_at_bytes, batch, look)

    async def close(self) -> None:
        """Nothing is left to close."""


class Behind(Generic[_Done]):
    """Loop thread only. What comes of a batch is a _Done."""

    def __init__(self, looker: Looker) -> None:
        self._looker = looker
        self.last: dict[Partition, asyncio.Task[_Done]] = {}
        """The last batch that waits, of each partition where the next one must wait behind it."""
        self._tasks: set[asyncio.Task[_Done]] = set()
        self._held_bytes = 0

    def put(
        self,
        partition: Partition,
        batch: memoryview,
        look: Look | None,
        append: Append[_Done],
    ) -> "asyncio.Future[_Done]":
        """*append* a copy of the batch in its turn, when what *look* asks for is known. Raises TooMuchWaits.

        The result, or the TierdError that it came to, may be waited for or left alone.
        """
        if self._held_bytes and self._held_bytes + len(batch) > MOST_BYTES:
            raise TooMuchWaits(f"{self._held_bytes} bytes of batches are being looked at; try again")
        self._held_bytes += len(batch)
        own = memoryview(bytearray(batch))
        task = asyncio.create_task(self._run(own, look, self.last.get(partition), append))
        self.last[partition] = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(partition, done, len(own)))
        result = asyncio.shield(task)
        result.add_done_callback(_seen)
        return result

    async def _run(
        self,
        batch: memoryview,
        look: Look | None,
        before: "asyncio.Task[_Done] | None",
        append: Append[_Done],
    ) -> _Done:
        looking: Looking = look_briefly
        try:
            if look is not None:
                looking = _known(look, await self._looker.look(batch, look))
        finally:
            if before is not None:
                await asyncio.wait({before})
        while True:
            try:
                return await append(batch, looking)
            except LongLook as error:  # only behind others, or other settings have come meanwhile
                looking = _known(error.look, await self._looker.look(batch, error.look))

    def _ended(self, partition: Partition, task: "asyncio.Task[_Done]", size_bytes: int) -> None:
        self._held_bytes -= size_bytes
        self._tasks.discard(task)
        if self.last.get(partition) is task:
            del self.last[partition]

    async def close(self) -> None:
        """Return when all that came has been appended."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._looker.close()


def _seen(result: "asyncio.Future[_Done]") -> None:
    """Whoever waited may be gone: what nobody expected must be heard of all the same."""
    error = None if result.cancelled() else result.exception()
    if error is not None and not isinstance(error, (TierdError, OSError)):
        result.get_loop().call_exception_handler({"message": "an append failed", "exception": error})


def _known(asked: Look, verdict: Verdict) -> Looking:
    def looking(batch: memoryview, header: BatchHeader, look: Look) -> Verdict:
        if look != asked:
            raise LongLook(look)
        return verdict

    return looking
