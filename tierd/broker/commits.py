"""Group commit: who must not be answered before the disk has it waits here, and one fsync answers all who wait.

One thread for each data directory. While it syncs, more is appended and more wait: all of them are in the next round.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tierd.broker.counters import Counters
from tierd.broker.partition import Partition
from tierd.storage.errors import FlushPutOff, StorageFailed
from tierd.storage.flush import FlushJob

log = logging.getLogger(__name__)

_PUT_OFF_S = 0.1
"""Between two tries of a flush for which there is no descriptor."""

Waiter = tuple[int, "asyncio.Future[None]"]
"""(log end that must be on the disk, whom to tell)."""


class Commits:
    """Loop thread only."""

    def __init__(
        self,
        counters: Counters,
        *,
        committed: Callable[[Partition], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        """*committed* hears of each flush; *broken* of an error that nobody expected, which must end the daemon."""
        self._counters = counters
        self._committed = committed
        self._broken = broken
        self._rounds: dict[Path, _Rounds] = {}

    def wait(self, partition: Partition) -> "asyncio.Future[None]":
        """Done when all that the partition's log holds now is on the disk; StorageFailed when it never will be.

        The caller retrieves it or not, as it likes.
        """
        place = partition.log.directory.parent
        rounds = self._rounds.get(place)
        if rounds is None:
            rounds = self._rounds[place] = _Rounds(self._counters, self._committed, self._broken)
        return rounds.wait(partition)

    async def close(self) -> None:
        """Finish what is under way."""
        for rounds in self._rounds.values():
            await rounds.close()


class _Rounds:
    """Of one data directory."""

    def __init__(
        self, counters: Counters, committed: Callable[[Partition], None], broken: Callable[[BaseException], None]
    ) -> None:
        self._counters = counters
        self._committed = committed
        self._broken = broken
        self._thread = ThreadPoolExecutor(1, "commit")
        self._waiting: dict[Partition, list[Waiter]] = {}
        self._task: asyncio.Task[None] | None = None

    def wait(self, partition: Partition) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiter.add_done_callback(_retrieved)
        self._waiting.setdefault(partition, []).append((partition.log.log_end, waiter))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
            self._task.add_done_callback(self._ended)
        return waiter

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})
        self._thread.shutdown(wait=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broken(error)

    async def _run(self) -> None:
        while self._waiting:
            now, self._waiting = self._waiting, {}
            if not await self._round(now):
                await asyncio.sleep(_PUT_OFF_S)

    async def _round(self, now: dict[Partition, list[Waiter]]) -> bool:
        """False when some of it is put off to the next round."""
        loop = asyncio.get_running_loop()
        jobs: list[tuple[Partition, FlushJob | None]] = [(p, p.log.unflushed(active=True)) for p in now]
        # All of them at once: the thread goes from one to the next without a look at the loop.
        running = [None if job is None else loop.run_in_executor(self._thread, job.run) for _, job in jobs]
        for flushing in running:
            if flushing is not None:
                flushing.add_done_callback(_retrieved)
        whole = True
        for (partition, job), flushing in zip(jobs, running, strict=True):
            if job is not None and flushing is not None:
                await self._flushed(partition, job, flushing)
            if job is not None and job.put_off and not partition.deleted:
                self._waiting.setdefault(partition, [])[:0] = now[partition]
                whole = False
            else:
                self._answer(partition, now[partition])
        return whole

    async def _flushed(self, partition: Partition, job: FlushJob, running: "asyncio.Future[None]") -> None:
        try:
            await running
        except FlushPutOff as error:
            log.warning("flush is put off", extra={"partition": str(partition), "why": str(error)})
            return
        except StorageFailed as error:
            log.error("flush failed", extra={"partition": str(partition), "why": str(error)})
        self._counters.commits += 1
        partition.log.flushed(job)
        self._committed(partition)

    def _answer(self, partition: Partition, waiters: list[Waiter]) -> None:
        logged = partition.log
        for end, waiter in waiters:
            if waiter.done():
                continue  # the client has gone
            if logged.recovery_point >= end:
                waiter.set_result(None)
                self._counters.committed_requests += 1
            else:
                waiter.set_exception(StorageFailed(logged.failed or f"{logged.directory}: it is not on the disk"))


def _retrieved(done: "asyncio.Future[None]") -> None:
    """Nobody may look at the outcome: of a flush it is logged, and who does not wait does not need it."""
    if not done.cancelled():
        done.exception()
