"""What a start says of itself before it is ready: STATUS lines for systemd, log lines for people."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tierd.config.topic import MIB
from tierd.storage.progress import OpeningStopped, Progress
from tierd.web.notify import Notifier

log = logging.getLogger(__name__)

FIRST_LOOK_S = 0.1
LOOK_S = 1.0
SAY_EVERY_S = 10.0
"""Between two log lines; the first comes when a start has taken so long."""
EXTEND_MS = 90_000
"""Asked for whenever there was progress; as long as the unit's TimeoutStartSec."""


class Starting:
    """Told by the threads that open logs, and of what comes behind that; looked at by the loop."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._lock = threading.Lock()
        self._latest: dict[Path, Progress] = {}
        self._stopped = False
        self._now: Callable[[], str] = self._opening

    def goes_on_with(self, text: Callable[[], str]) -> None:
        """The logs are open. From now on *text* says how far it is: another one than before while it goes on."""
        self._now = text

    def told(self, progress: Progress) -> None:
        """Any thread. Raises OpeningStopped after `stop`."""
        if self._stopped:
            raise OpeningStopped("the start was stopped while logs were opened")
        with self._lock:
            self._latest[progress.directory] = progress

    def stop(self) -> None:
        """No log is to be opened any more."""
        self._stopped = True

    def text(self) -> str:
        """One line for people; empty before there is anything to say."""
        return self._now()

    def _opening(self) -> str:
        with self._lock:
            latest = list(self._latest.values())
        if not latest:
            return ""
        logs, logs_left = sum(one.logs for one in latest), sum(one.logs_left for one in latest)
        segments, left_bytes = sum(one.segments_left for one in latest), sum(one.bytes_left for one in latest)
        text = f"opening logs: {logs - logs_left} of {logs} done"
        if segments:
            text += f", {segments} segments and {left_bytes / MIB:.0f} MiB left to read again"
        return text

    async def follow(self, opening: "asyncio.Future[Any]") -> None:
        """Until *opening*, a part of the start, is done: say how far it is, ask for more time while it goes on."""
        said, quiet_s, look_s = "", 0.0, FIRST_LOOK_S
        while not opening.done():
            await asyncio.wait({opening}, timeout=look_s)
            text, quiet_s, look_s = self.text(), quiet_s + look_s, LOOK_S
            if opening.done() or text == said:
                continue
            said = text
            self._notifier.status(text)
            self._notifier.extend_timeout(EXTEND_MS)
            if quiet_s >= SAY_EVERY_S:
                log.info(text)
                quiet_s = 0.0
