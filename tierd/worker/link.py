"""The broker's end: a worker is started when there is work and kept for more; when it dies the work has failed.

Loop thread only.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from tierd.base.clock import Clock
from tierd.base.errors import WorkerGone
from tierd.ipc.calls import Calls
from tierd.ipc.channel import Channel, ChannelClosed
from tierd.ipc.child import Child
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport
from tierd.storage.look import Look, Verdict
from tierd.worker import messages as m

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "tierd.worker")
CLEANING = (*COMMAND, "--nice", "10")
"""For work that can wait: it takes what clients leave of the processors."""

LOOK_S: Final = 10.0
"""A look that takes longer: the worker is asked whether it is alive."""
SILENT_S: Final = 60.0
"""Without an answer for so long it is ended: behind a batch that nobody looks at all others of its partition wait."""

Take = Callable[[CleanedGroup], bool]
"""Swap a cleaned group in; False gives the rest of its job up."""


class WorkerLink:
    """The broker's `Worker` (broker/ports.py)."""

    def __init__(self, clock: Clock, *, command: Sequence[str] = COMMAND) -> None:
        self.look_s, self.silent_s = LOOK_S, SILENT_S
        self._calls = Calls(m.pack, gone=WorkerGone)
        self._child = Child("the worker", command, clock, self._message, self._closed)
        self._starting = asyncio.Lock()
        self._takers: dict[int, Take] = {}
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Of the worker that runs now."""
        return self._child.pid

    async def clean(self, job: CleanJob, take: Take) -> CleanReport:
        """*take* is called for each group as it is ready, in offset order, before this returns.

        Raises CorruptFile, DiskFull, WorkerGone, CallFailed. Cancelling the call stops the worker's part soon.
        """
        channel = await self._running()
        numbers: list[int] = []

        def make(number: int) -> m.Message:
            numbers.append(number)
            self._takers[number] = take
            return m.Clean(number, job)

        try:
            reply: Any
            reply, _ = await self._calls.ask(channel, make, self._cancel)
        except ChannelClosed as error:
            raise WorkerGone("the worker is gone") from error
        finally:
            for number in numbers:
                self._takers.pop(number, None)
        report: CleanReport = reply.report
        return report

    async def look(self, batch: memoryview, look: Look) -> Verdict:
        """Have the records of *batch* looked at. Raises WorkerGone, CallFailed."""
        channel = await self._running()
        try:
            with os.fdopen(os.memfd_create("batch"), "wb+") as shared:
                shared.write(batch)
                shared.seek(0)
                fd = shared.fileno()
                reply: Any
                asking = self._calls.ask(channel, lambda number: m.LookAt(number, look), fds=[fd])
                reply, _ = await self._while_alive(channel, asking)
        except ChannelClosed as error:
            raise WorkerGone("the worker is gone") from error
        except OSError as error:
            raise WorkerGone(f"no memory to share with the worker: {error}") from error
        verdict: Verdict = reply.verdict
        return verdict

    async def _while_alive(self, channel: Channel, asking: Coroutine[Any, Any, Any]) -> Any:
        """What *asking* gives. Raises what it does, WorkerGone when the worker hangs."""
        task = asyncio.ensure_future(asking)
        try:
            while not (await asyncio.wait({task}, timeout=self.look_s))[0]:
                await self._end_if_silent(channel)
            return task.result()
        finally:
            task.cancel()

    async def _end_if_silent(self, channel: Channel) -> None:
        try:
            async with asyncio.timeout(self.silent_s):
                await self._calls.ask(channel, m.Ping)
        except TimeoutError:
            log.error("the worker does not answer: it is ended", extra={"pid": self.pid})
            self._child.kill()
        except (ChannelClosed, WorkerGone):
            return  # the call that waits hears of it, too

    async def _running(self) -> Channel:
        async with self._starting:
            if self._child.gone.is_set():
                await self._child.reap()
                self.starts += 1
                try:
                    await self._child.start()
                except OSError as error:
                    raise WorkerGone(f"the worker does not start: {error}") from error
            assert self._child.channel is not None
            return self._child.channel

    def _message(self, body: bytes, fds: list[int]) -> None:
        message = m.unpack(body)
        if not isinstance(message, m.GroupReady):
            self._calls.reply(message, fds)
            return
        take = self._takers.get(message.call)
        if take is not None and not take(message.group):
            del self._takers[message.call]
            self._cancel(message.call)

    def _cancel(self, call: int) -> None:
        self._child.tell(m.pack(m.Cancel(call)))

    def _closed(self) -> None:
        self._calls.drop_all("the worker is gone")

    async def close(self) -> None:
        """The worker ends with its socket; what it was writing is swept at the next start."""
        self._child.let_go()
        await self._child.reap()
