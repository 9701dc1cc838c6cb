"""Topics change one after the other, whoever asks for it: in the registry first, by threads, then here.

Clients make, grow, delete and configure them; the bucket tells of settings and deletions that the registry has missed.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tierd.base.errors import DiskFull
from tierd.broker.ongoing import Ongoing

log = logging.getLogger(__name__)

_THREADS = 4
_T = TypeVar("_T")


class Changes:
    """Loop thread only."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held for a change, from what it is decided on to what it comes to; in the order in which it was asked for."""
        self._threads = ThreadPoolExecutor(_THREADS, "topics")
        self._ongoing = Ongoing()
        self._closed = False

    async def in_thread(self, work: Callable[..., _T], *args: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def whole(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run it and wait; who is cancelled in the wait leaves it running."""
        return await self._ongoing.whole(work)

    def begin(self, event: str, work: Coroutine[Any, Any, None]) -> None:
        """Run it; nobody waits. What the disk has no room for is logged as *event*: who told it tells it again at the
        next start, and so is what comes after `close`."""
        if self._closed:
            work.close()
            log.info("%s: not any more", event)
        else:
            self._ongoing.begin(_logged(event, work))

    async def settle(self) -> None:
        """Wait for all that is under way."""
        await self._ongoing.settle()

    async def close(self) -> None:
        """Finish what is under way; nothing begins any more."""
        self._closed = True
        await self._ongoing.settle()
        self._threads.shutdown()


async def _logged(event: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except (DiskFull, OSError) as error:
        log.error("%s: not noted", event, extra={"why": str(error)})
