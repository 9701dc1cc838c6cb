"""A child process at the other end of a socket pair: started, started again with back-off, ended. Loop thread only."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence

from tierd.base.clock import Clock
from tierd.ipc.channel import Channel, ChannelClosed, OnMessage, pair

log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_STEADY_MS = 60_000
"""A child that lived so long is started again without a pause."""
STOP_S = 5.0


class Child:
    """Runs *command* with `--fd N`, the number of its end of the pair. *on_gone* is called when it goes."""

    def __init__(
        self, name: str, command: Sequence[str], clock: Clock, on_message: OnMessage, on_gone: Callable[[], None]
    ) -> None:
        self.name = name
        self.gone = asyncio.Event()
        """Set while none runs."""
        self.gone.set()
        self._command = command
        self._clock = clock
        self._on_message = on_message
        self._on_gone = on_gone
        self._process: asyncio.subprocess.Process | None = None
        self.channel: Channel | None = None

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Raises OSError."""
        ours, theirs = pair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                "--fd",
                str(theirs.fileno()),
                "--log-level",
                logging.getLevelName(logging.getLogger("tierd").getEffectiveLevel()).lower(),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                # Many threads with large buffers: one arena each would keep twice the memory (measured).
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            )
        self.gone.clear()
        self.channel = Channel(ours, self._on_message, self._closed)

    def _closed(self) -> None:
        self.gone.set()
        self._on_gone()

    def tell(self, packed: bytes) -> bool:
        """Send a message; False when there is nobody to send it to."""
        if self.channel is None or self.gone.is_set():
            return False
        try:
            self.channel.send(packed)
        except ChannelClosed:
            return False
        return True

    def let_go(self) -> None:
        """Close our end: the child ends with its own."""
        if self.channel is not None:
            self.channel.close()
        self.gone.set()

    def kill(self) -> None:
        """End the process that hangs; its socket closes with it, and `keep` starts another."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def reap(self) -> int | None:
        """Wait for the end of a child whose socket is closed; killed when it takes its time. Its exit code.

        Cancelled while it waits, it can be called again.
        """
        process = self._process
        if process is None:
            return None
        try:
            async with asyncio.timeout(STOP_S):  # `wait_for` of Python 3.11 loses a cancellation when both come at once
                code = await process.wait()
        except TimeoutError:
            process.kill()
            code = await process.wait()
        self._process = None
        return code

    async def keep(self, start_again: Callable[[], Awaitable[None]]) -> None:
        """Whenever it is gone, *start_again*, for ever; pauses double while it does not live long."""
        pause_s = _FIRST_PAUSE_S
        begun_ms = self._clock.monotonic_ms()
        while True:
            await self.gone.wait()
            await self.reap()
            if self._clock.monotonic_ms() - begun_ms > _STEADY_MS:
                pause_s = _FIRST_PAUSE_S
            log.error("%s is gone; it is started again", self.name, extra={"pause_s": pause_s})
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            begun_ms = self._clock.monotonic_ms()
            await start_again()
