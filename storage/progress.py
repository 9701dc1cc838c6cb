"""How far the opening of a data directory is: what is left to read, counted by the threads that read it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tierd.base.errors import TierdError
from tierd.storage.scan import Read


class OpeningStopped(TierdError):
    """Somebody wants no log opened any more; the next start goes on from the files as they are."""


REPORT_BYTES = 8 * 1024 * 1024
"""A large segment reports this often."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of it."""

    directory: Path
    logs: int
    logs_left: int
    segments_left: int
    """Segments that an unclean stop makes be read again."""
    bytes_left: int


OnProgress = Callable[[Progress], None]
"""Called in the threads that read, one at a time; what it raises (OpeningStopped) ends the opening."""


def no_progress(_: Progress) -> None:
    return


class Meter:
    """Counts for one directory. Any thread."""

    def __init__(self, directory: Path, logs: int, on_progress: OnProgress = no_progress) -> None:
        self._directory = directory
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._logs = self._logs_left = logs
        self._segments_left = 0
        self._bytes_left = 0
        self._unreported_bytes = 0
        self._stopped = False
        self.segments_read = 0
        self.bytes_read = 0
        """What was read again so far."""

    def stop(self) -> None:
        """Let whoever counts next raise OpeningStopped."""
        self._stopped = True

    def expect(self, segments: int, size_bytes: int) -> None:
        """So much more is to be read."""
        with self._lock:
            self._segments_left += segments
            self._bytes_left += size_bytes

    def counted(self, read: Read) -> Read:
        """*read*, with what it reads taken off. It raises OpeningStopped after `stop`."""

        def reading(position: int, length: int) -> memoryview:
            found = memoryview(read(position, length))
            self._read(found.nbytes)
            return found

        return reading

    def _read(self, size_bytes: int) -> None:
        with self._lock:
            if self._stopped:
                raise OpeningStopped
            self._bytes_left = max(0, self._bytes_left - size_bytes)
            self.bytes_read += size_bytes
            self._unreported_bytes += size_bytes
            if self._unreported_bytes >= REPORT_BYTES:
                self._report()

    def begin(self) -> None:
        """All that is to be expected is known; report it."""
        with self._lock:
            self._report()

    def segment_done(self) -> None:
        with self._lock:
            self.segments_read += 1
            self._segments_left = max(0, self._segments_left - 1)
            self._report()

    def log_done(self) -> None:
        with self._lock:
            self._logs_left -= 1
            self._report()

    def _report(self) -> None:
        self._unreported_bytes = 0
        self._on_progress(Progress(self._directory, self._logs, self._logs_left, self._segments_left, self._bytes_left))
