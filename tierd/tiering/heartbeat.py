"""Asks the tierer again and again whether it is alive; ends one that hangs. Loop thread only.

A process that answers nothing, or whose call of the bucket never comes back, would otherwise hold copies up for ever
while everything looks well.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tierd.base.errors import TierdError
from tierd.tiering.messages import Alive

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Far above what a busy machine needs: a tierer that is ended too early begins its copies anew."""

    every_ms: int = 5_000
    look_ms: int = 1_000
    silent_ms: int = 10_000
    """So long without an answer of the tierer, and it is said."""
    end_ms: int = 60_000
    """So long, and it is ended."""
    bucket_silent_ms: int = 60_000
    """So long without an answer of the bucket, and it is said."""
    bucket_end_ms: int = 1_800_000
    """A single call of the bucket under way for so long: the tierer is ended, and the call with it."""


class Heartbeat:
    """*ask* is one question, *end* ends the process that does not answer; `run` goes on until it is cancelled."""

    def __init__(self, ask: Callable[[], Awaitable[Alive]], end: Callable[[], None], patience: Patience) -> None:
        self._ask = ask
        self._end = end
        self._patience = patience
        self._last = Alive(0, 0, 0)
        self.silent_ms = 0
        """How long the tierer has not answered. Counted in looks: a broker that stood still itself accuses nobody."""

    @property
    def bucket_silent_ms(self) -> int:
        """As the tierer last said it."""
        return self._last.bucket_silent_ms

    @property
    def paused(self) -> bool:
        """`tierd pause` holds all copies."""
        return self._last.paused

    @property
    def silence(self) -> str | None:
        """What is wrong with the tierer, in a sentence."""
        if self.silent_ms < self._patience.silent_ms:
            return None
        seconds, limit = self.silent_ms // 1000, self._patience.end_ms // 1000
        return f"the tierer has not answered for {seconds} s; at {limit} s it is ended and started again"

    @property
    def trouble(self) -> str | None:
        """What is wrong with tierer or bucket, in a sentence."""
        if self.silence is not None:
            return self.silence
        if self._last.bucket_silent_ms >= self._patience.bucket_silent_ms:
            return f"the bucket has not answered for {self._last.bucket_silent_ms // 1000} s"
        if self._last.oldest_call_ms >= 2 * self._patience.bucket_silent_ms:
            return f"a call of the bucket has not come back for {self._last.oldest_call_ms // 1000} s"
        return None

    async def run(self) -> None:
        while True:
            await self._beat()
            await asyncio.sleep(self._patience.every_ms / 1000)

    async def _beat(self) -> None:
        asking = asyncio.ensure_future(self._ask())
        try:
            while not (await asyncio.wait({asking}, timeout=self._patience.look_ms / 1000))[0]:
                self.silent_ms += self._patience.look_ms
                if self.silent_ms >= self._patience.end_ms:
                    log.error("the tierer does not answer: it is ended", extra={"silent_ms": self.silent_ms})
                    self._end()
                    break
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        self.silent_ms = 0
        self._take(asking)

    def _take(self, asked: "asyncio.Future[Alive]") -> None:
        self._last = Alive(0, 0, 0)
        if asked.cancelled() or isinstance(asked.exception(), TierdError):
            return  # none runs, or it has just ended: `TierLink` starts another
        self._last = asked.result()
        if self._last.oldest_call_ms >= self._patience.bucket_end_ms:
            log.error(
                "a call of the bucket does not come back: the tierer is ended",
                extra={"since_ms": self._last.oldest_call_ms},
            )
            self._end()
