"""The part of a file system that appends may not use, so that rolls, commits and evictions always have room.

Half of it is for what the broker itself appends: an open transaction that could not be ended would hold back the copies
and evictions that make room.
"""

from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.errors import DiskFull

_LOOK_EVERY_MS = 1000
_MORE = 8
"""Little room is over once that part of the limit more is free: no to and fro at the border."""


def is_scarce(free_bytes: int, limit_bytes: int | None, *, before: bool) -> bool:
    """Whether there is too little room now; *before*: whether there was at the last look."""
    if not limit_bytes:
        return False
    return free_bytes < limit_bytes + (limit_bytes // _MORE if before else 0)


class DiskReserve:
    """Asks the file system about once a second and counts what is written between."""

    def __init__(self, directory: Path, disk: Disk, clock: Clock, reserve_bytes: int) -> None:
        self._directory = directory
        self._disk = disk
        self._clock = clock
        self._reserve_bytes = reserve_bytes
        self._left_bytes = 0
        self._look_at_ms = -1

    def take(self, size_bytes: int, *, internal: bool = False) -> None:
        """Say that *size_bytes* are about to be written, by the broker itself if *internal*. Raises DiskFull when they
        would cut into the reserve."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + _LOOK_EVERY_MS
            self._left_bytes = self._disk.free_bytes(self._directory) - self._reserve_bytes
        if self._left_bytes + (self._reserve_bytes // 2 if internal else 0) < size_bytes:
            raise DiskFull(
                f"{self._directory}: {self._left_bytes + self._reserve_bytes} bytes are free, {self._reserve_bytes} of "
                "them are the reserve (tierd.disk.reserve.bytes); evict, delete or add space"
            )
        self._left_bytes -= size_bytes
