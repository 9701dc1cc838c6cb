"""Work that goes on whoever waits for it: a client that leaves does not leave a topic half made."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tierd.base.errors import TierdError

_T = TypeVar("_T")


def _handled_by_the_loop(error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": "work that nobody waits for failed", "exception": error}
    )


class Ongoing:
    """The tasks of one owner; it waits for them at its end. Loop thread only.

    An error that is none of *expected* is a fault of ours, of which somebody must hear although the one who waited may
    be gone: *broken* gets it, by default the loop's exception handler.
    """

    def __init__(
        self,
        broken: Callable[[BaseException], None] = _handled_by_the_loop,
        expected: tuple[type[BaseException], ...] = (TierdError, OSError),
    ) -> None:
        self._broken = broken
        self._expected = expected
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Run it; whoever awaits the task itself can cancel it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def whole(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run it and wait; who is cancelled in the wait leaves it running."""
        return await asyncio.shield(self.begin(work))

    async def settle(self, timeout_s: float | None = None) -> None:
        """Wait until all have ended, also those that begin meanwhile; give up those that have not in *timeout_s*."""
        while self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in late:
                task.cancel()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, self._expected):
            self._broken(error)
