"""The broker's end: a worker is started when there is work and kept for more; when it dies the work has failed.

Loop thread only.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tierd.base.clock import Clock
from tierd.base.errors import WorkerGone
from tierd.ipc.calls import Calls
from tierd.ipc.channel import ChannelClosed
from tierd.ipc.child import Child
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport
from tierd.worker import messages as m

COMMAND = (sys.executable, "-P", "-m", "tierd.worker")

Take = Callable[[CleanedGroup], bool]
"""Swap a cleaned group in; False gives the rest of its job up."""


class WorkerLink:
    """The broker's `Worker` (broker/ports.py)."""

    def __init__(self, clock: Clock, *, command: Sequence[str] = COMMAND) -> None:
        self._calls = Calls(m.pack, gone=WorkerGone)
        self._child = Child("the worker", command, clock, self._message, self._closed)
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
        await self._running()
        numbers: list[int] = []

        def make(number: int) -> m.Message:
            numbers.append(number)
            self._takers[number] = take
            return m.Clean(number, job)

        channel = self._child.channel
        assert channel is not None
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

    async def _running(self) -> None:
        if not self._child.gone.is_set():
            return
        await self._child.reap()
        self.starts += 1
        try:
            await self._child.start()
        except OSError as error:
            raise WorkerGone(f"the worker does not start: {error}") from error

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
