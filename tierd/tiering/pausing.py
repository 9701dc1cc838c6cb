"""Copying that somebody has paused: kept in a file of the state directory, so that no restart and no new catalog
forgets it. Reads, evictions, retention and heads go on."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from tierd.base.clock import utc
from tierd.base.disk import Disk, publish

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    since_ms: int
    """By our clock."""
    why: str
    """As its operator said it; may be empty."""

    def __str__(self) -> str:
        since = utc(self.since_ms)
        return f"tierd pause holds all copies since {since}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """What `tierd pause` or `resume` has found, and what it leaves; None: copying goes on."""

    before: Pause | None
    after: Pause | None
    segments: int
    """Closed ones that are not in the bucket, and their bytes."""
    bytes: int
    under_way: int
    """Copies under way before: a pause gives them up, to be begun anew."""


def read_pause(path: Path) -> Pause | None:
    """A file that cannot be read holds copying, too: nobody has resumed it. Raises OSError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = json.loads(raw)
        return Pause(since_ms=int(found["since_ms"]), why=str(found["why"]))
    except (ValueError, KeyError, TypeError) as error:
        log.error("what says that copying is paused cannot be read; resume it: %s", error, extra={"path": str(path)})
        return Pause(since_ms=0, why=f"{path} cannot be read")


def keep_pause(path: Path, pause: Pause | None, disk: Disk) -> None:
    """Durable when it returns. Raises DiskFull, OSError."""
    if pause is not None:
        publish(disk, path, json.dumps(asdict(pause)).encode())
    elif path.exists():
        disk.unlink(path)
        disk.fsync_dir(path.parent)
