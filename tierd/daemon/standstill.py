"""Says it when the loop stands still: then nobody is answered, and nothing on the loop could tell of it.

A thread looks whether the loop has come by lately. When that thread itself was late, neither had a processor: the
machine stood still, not the loop.
"""

import asyncio
import logging
import sys
import threading
import traceback
from typing import Final

from tierd.base.clock import Clock

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
LONG_MS: Final = 5_000
_FRAMES: Final = 4


class Standstill:
    """`start` and `stop` on the loop that is watched."""

    def __init__(self, clock: Clock, *, look_s: float = LOOK_S, long_ms: int = LONG_MS) -> None:
        self._clock = clock
        self._look_s = look_s
        self._long_ms = long_ms
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._seen_ms = clock.monotonic_ms()
        self._stopped = threading.Event()
        self._timer = self._loop.call_soon(self._come_by)
        self._thread = threading.Thread(target=self._run, name="standstill", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._timer.cancel()
        self._thread.join()

    def _come_by(self) -> None:
        self._seen_ms = self._clock.monotonic_ms()
        self._timer = self._loop.call_later(self._look_s, self._come_by)

    def _run(self) -> None:
        told_ms: int | None = None
        looked_ms = self._clock.monotonic_ms()
        while not self._stopped.wait(self._look_s):
            now_ms, seen_ms = self._clock.monotonic_ms(), self._seen_ms
            late_ms, looked_ms = now_ms - looked_ms, now_ms
            if late_ms >= self._long_ms:
                log.warning("this process had no processor", extra={"for_ms": late_ms})
                continue  # the loop has not had its turn either
            if told_ms is None and now_ms - seen_ms >= self._long_ms:
                told_ms = seen_ms
                facts = {"for_ms": now_ms - seen_ms, "at": self._stands_at()}
                log.warning("the loop stands still: nobody is answered", extra=facts)
            elif told_ms is not None and seen_ms != told_ms:
                log.warning("the loop goes on", extra={"stood_ms": seen_ms - told_ms})
                told_ms = None

    def _stands_at(self) -> str:
        """Innermost first."""
        frame = sys._current_frames().get(self._watched)
        steps = [] if frame is None else traceback.extract_stack(frame)[-_FRAMES:]
        return ", ".join(f"{step.name} ({step.filename.rpartition('/')[2]}:{step.lineno})" for step in reversed(steps))
