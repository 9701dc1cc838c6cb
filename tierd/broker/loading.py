"""Something read on first use and then kept; whoever asks meanwhile waits for the same reading."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from tierd.base.clock import Clock
from tierd.base.errors import TierdError

_T = TypeVar("_T")

_FIRST_PAUSE_MS: Final = 100
_LAST_PAUSE_MS: Final = 60_000
"""Between two tries: what is read may be large."""


class OwnLog(Protocol):
    """A topic of the broker's own. Loop thread only."""

    def replay(self, partition: int) -> AsyncIterator[bytes]:
        """Whole batches from log start to log end, in pieces of about a MiB. Raises TierdError, OSError."""

    def told(self, partition: int, wrong: Iterable[str]) -> None:
        """What of that partition could not be read, for the list of what is wrong; nothing: all of it has been."""


class Replay(Protocol):
    """Makes of the batches of one partition what holds."""

    @property
    def wrong(self) -> Iterable[str]:
        """What could not be decoded, a line each."""

    def feed(self, chunk: bytes) -> None:
        """Runs in a thread. Raises DamagedRecords."""


async def read_all(log: OwnLog, partition: int, replay: Replay, what: str) -> None:
    """Feed *replay*; what is wrong is told, and what is then not served. Raises what reading raises."""
    try:
        async for chunk in log.replay(partition):
            await asyncio.to_thread(replay.feed, chunk)
    except (TierdError, OSError) as error:
        log.told(partition, [f"its {what} are not served: {error}"])
        raise
    log.told(partition, replay.wrong)


@dataclass(frozen=True, slots=True)
class _Failure:
    """The last try, and when (monotonic) the next may be."""

    error: TierdError | OSError
    pause_ms: int
    again_ms: int


class Loading(Generic[_T]):
    """By number. Loop thread only.

    A reading that fails is tried again by the next who asks, but not at once: whoever asks before hears the same.
    """

    def __init__(self, load: Callable[[int], Coroutine[Any, Any, _T]], clock: Clock) -> None:
        self.ready: dict[int, _T] = {}
        self._load = load
        self._clock = clock
        self._failed: dict[int, _Failure] = {}
        self._tasks: dict[int, asyncio.Task[_T]] = {}

    async def get(self, index: int) -> _T:
        """Raises what reading raises."""
        if index in self.ready:
            return self.ready[index]
        task = self._tasks.get(index)
        if task is None:
            failed = self._failed.get(index)
            if failed is not None and self._clock.monotonic_ms() < failed.again_ms:
                raise failed.error.with_traceback(None)
            task = self._tasks[index] = asyncio.create_task(self._read(index))
            task.add_done_callback(lambda done: self._done(index, done))
        # The first asker may go away; the others still wait for the same reading.
        return await asyncio.shield(task)

    def close(self) -> None:
        """Give up what is being read."""
        for task in self._tasks.values():
            task.cancel()

    async def _read(self, index: int) -> _T:
        try:
            self.ready[index] = found = await self._load(index)
        except (TierdError, OSError) as error:
            before = self._failed.get(index)
            pause_ms = _FIRST_PAUSE_MS if before is None else min(2 * before.pause_ms, _LAST_PAUSE_MS)
            self._failed[index] = _Failure(error, pause_ms, self._clock.monotonic_ms() + pause_ms)
            raise
        self._failed.pop(index, None)
        return found

    def _done(self, index: int, task: "asyncio.Task[_T]") -> None:
        self._tasks.pop(index, None)
        if not task.cancelled():
            # Logged where it happened; when every asker has gone away nobody else looks at it.
            task.exception()
