"""The worker's process: a loop behind the socket pair, one thread that works. It ends as soon as its socket closes."""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tierd.base.disk import Disk
from tierd.base.errors import TierdError
from tierd.ipc.calls import failed
from tierd.ipc.channel import Channel, ChannelClosed
from tierd.storage.compaction.cleaner import Cleaner
from tierd.storage.compaction.job import CleanedGroup, CleanReport
from tierd.storage.disk import PosixDisk
from tierd.storage.look import Verdict, look_at_bytes
from tierd.worker import messages as m

log = logging.getLogger(__name__)

EXIT_FATAL = 70
_LOOKERS = 4
"""Batches looked at side by side: a small one does not wait for a large one's end."""


class Process:
    """Everything of one worker. *leave* ends the process; tests give one that does not."""

    def __init__(self, sock: socket.socket, disk: Disk, leave: Callable[[int], None]) -> None:
        self._disk = disk
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "work")
        self._lookers = ThreadPoolExecutor(_LOOKERS, "look")
        self._stopping: dict[int, threading.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._channel = Channel(sock, self._message, self._closed)

    def _message(self, body: bytes, fds: list[int]) -> None:
        message = m.unpack(body)
        match message:
            case m.Clean():
                self._stopping[message.call] = threading.Event()
                self._begin(self._clean(message))
            case m.LookAt():
                self._begin(self._look(message, fds[0]))
            case m.Ping():
                self._send(m.Pong(message.call))
            case m.Cancel():
                if message.call in self._stopping:
                    self._stopping[message.call].set()
            case _:
                raise TierdError(f"not for a worker: {type(message).__name__}")

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.fatal(task.exception())

    async def _clean(self, message: m.Clean) -> None:
        call = message.call
        stopping = self._stopping[call]

        def ready(group: CleanedGroup) -> None:
            """In the thread; the reply follows from the loop, behind all of these."""
            self._loop.call_soon_threadsafe(self._send, m.GroupReady(call, group))

        def work() -> CleanReport:
            return Cleaner(message.job, self._disk, ready, stopping.is_set).run()

        reply: m.Message
        try:
            reply = m.Cleaned(call, await self._loop.run_in_executor(self._thread, work))
        except (TierdError, OSError) as error:
            reply = failed(call, error)
        finally:
            del self._stopping[call]
        self._send(reply)

    async def _look(self, message: m.LookAt, fd: int) -> None:
        def work() -> Verdict:
            with open(fd, "rb", buffering=0) as shared:
                return look_at_bytes(memoryview(shared.readall()), message.look)

        reply: m.Message
        try:
            reply = m.Looked(message.call, await self._loop.run_in_executor(self._lookers, work))
        except (TierdError, OSError) as error:
            reply = failed(message.call, error)
        self._send(reply)

    def _send(self, message: m.Message) -> None:
        try:
            self._channel.send(m.pack(message))
        except ChannelClosed:
            log.debug("a reply has nobody to go to")  # the process is about to end

    def _closed(self) -> None:
        """The broker is gone: at once, whatever is under way; the next start removes what has no final name."""
        for stopping in self._stopping.values():
            stopping.set()
        self._leave(0)

    def fatal(self, error: BaseException | None) -> None:
        """Nobody expected this: end, the broker starts another worker when it needs one."""
        log.critical("the worker ends on an unexpected error", exc_info=error)
        self._leave(EXIT_FATAL)


async def serve(sock: socket.socket) -> None:
    process = Process(sock, PosixDisk(), leave=os._exit)

    def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.error("unhandled: %s", context.get("message"))
        process.fatal(error if isinstance(error, BaseException) else None)

    asyncio.get_running_loop().set_exception_handler(unhandled)
    await asyncio.Event().wait()


def main(fd: int, nice: int) -> None:
    """`python -m tierd.worker --fd N`. Signals are the broker's business: this process ends with its socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(nice)
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    asyncio.run(serve(sock))
