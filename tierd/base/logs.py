"""Log lines on stderr: time, weight, room, event, then the facts given as `extra={...}` as key=value.

Both processes call `to_stderr` once; library code only calls `logging.getLogger(__name__)`.
"""

import json
import logging
import sys
from collections.abc import Hashable
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FactFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        facts = "".join(f" {name}={_fact(value)}" for name, value in vars(record).items() if name not in _STANDARD)
        text = (
            f"{when}Z {record.levelname.lower():7} {record.name.removeprefix('tierd.')}: {record.getMessage()}{facts}"
        )
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def to_stderr(level: str) -> None:
    """Send tierd's log lines from *level* (debug, info, warning, error) on to stderr; of libraries, warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FactFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("tierd").setLevel(level.upper())
    # It warns of every job that is due again while it still runs, which is meant: the next run does the work of both.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)


def _fact(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text.isprintable() or not text or any(c in ' ="' for c in text) else text


_KEYS = 10_000


class Doubling:
    """Which of many equal failures are worth a line: the first, then each one that doubles their number."""

    def __init__(self, most: int = _KEYS) -> None:
        """At *most* keys; then all are forgotten, and counted anew."""
        self._most = most
        self._times: dict[int, int] = {}
        """By the key's hash: it may hold what a stranger has said, however long."""

    def failed(self, key: Hashable) -> int | None:
        """How often *key* has failed when that is to be said, else None. Any thread."""
        if len(self._times) >= self._most:
            self._times.clear()
        known = hash(key)
        times = self._times[known] = self._times.get(known, 0) + 1
        return times if times & (times - 1) == 0 else None

    def well(self, key: Hashable) -> None:
        """It works again."""
        self._times.pop(hash(key), None)
