"""Which data directories have so little room that what the bucket has leaves them early, against local retention."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tierd.base.clock import Clock
from tierd.config.topic import MIB
from tierd.storage.reserve import is_scarce
from tierd.storage.view import SegmentView

log = logging.getLogger(__name__)

_LOOK_MS = 1000


@dataclass(slots=True)
class _Seen:
    looked_ms: int
    free_bytes: int
    scarce: bool


class Room:
    """Each data directory for itself. Loop thread only."""

    def __init__(self, limit_bytes: int | None, clock: Clock, free_bytes: Callable[[Path], int]) -> None:
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._free_bytes = free_bytes
        self._seen: dict[Path, _Seen] = {}

    def scarce(self, directory: Path) -> bool:
        """Looked at once a second at most. A disk that cannot be asked is no reason: its health is the broker's."""
        if not self._limit_bytes:
            return False
        seen, now_ms = self._seen.get(directory), self._clock.monotonic_ms()
        if seen is not None and now_ms < seen.looked_ms + _LOOK_MS:
            return seen.scarce
        before = seen is not None and seen.scarce
        try:
            free_bytes = self._free_bytes(directory)
        except OSError as error:
            log.warning("free room cannot be asked: %s", error, extra={"directory": str(directory)})
            return before
        scarce = is_scarce(free_bytes, self._limit_bytes, before=before)
        self._seen[directory] = _Seen(now_ms, free_bytes, scarce)
        if scarce != before:
            what = "little room: what the bucket has leaves the disk early" if scarce else "there is room again"
            log.warning(what, extra={"directory": str(directory), "free_bytes": free_bytes})
        return scarce

    def note(self, directory: Path, backlog: Iterable[tuple[str, SegmentView]]) -> str | None:
        """What is going on there, in a sentence, with the closed segments that wait for their copies, by partition's
        name; None while there is room."""
        if not self.scarce(directory):
            return None
        by_name: dict[str, int] = {}
        for name, segment in backlog:
            by_name[name] = by_name.get(name, 0) + segment.size_bytes
        little = f"{_mib(self._seen[directory].free_bytes)} are free, less than tierd.disk.evict.bytes"
        said = f"{directory}: {little}: what the bucket has leaves this disk early"
        if not by_name:
            return f"{said}; no closed segment waits for its copy"
        most = max(by_name, key=lambda name: by_name[name])
        waits = f"{_mib(sum(by_name.values()))} of {len(by_name)} partitions wait for their copies"
        return f"{said}; {waits}, most of it {most}'s: {_mib(by_name[most])} (tierd why {most})"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f} MiB"
