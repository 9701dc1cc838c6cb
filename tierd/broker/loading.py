"""Something read on first use and then kept; whoever asks meanwhile waits for the same reading."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Loading(Generic[_T]):
    """By number. A reading that fails is tried again by the next who asks. Loop thread only."""

    def __init__(self, load: Callable[[int], Coroutine[Any, Any, _T]]) -> None:
        self.ready: dict[int, _T] = {}
        self._load = load
        self._tasks: dict[int, asyncio.Task[_T]] = {}

    async def get(self, index: int) -> _T:
        """Raises what reading raises."""
        if index in self.ready:
            return self.ready[index]
        task = self._tasks.get(index)
        if task is None:
            task = self._tasks[index] = asyncio.create_task(self._read(index))
            task.add_done_callback(lambda done: self._done(index, done))
        # The first asker may go away; the others still wait for the same reading.
        return await asyncio.shield(task)

    def close(self) -> None:
        """Give up what is being read."""
        for task in self._tasks.values():
            task.cancel()

    async def _read(self, index: int) -> _T:
        self.ready[index] = found = await self._load(index)
        return found

    def _done(self, index: int, task: "asyncio.Task[_T]") -> None:
        self._tasks.pop(index, None)
        if not task.cancelled():
            # Logged where it happened; when every asker has gone away nobody else looks at it.
            task.exception()
