"""A disk that takes its time, or stands still."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tierd.storage.disk import PosixDisk, PosixFile


class _SlowFile(PosixFile):
    __slots__ = ("before",)
    before: Callable[[], None]

    def fsync(self) -> None:
        self.before()
        super().fsync()


class SlowDisk(PosixDisk):
    """Every fsync of a name or a file takes `delay_s` longer, and as long as `go` is cleared."""

    def __init__(self, whose: str = "", *, open_files: bool = False) -> None:
        """*whose*: how the names of the threads begin that `stands` is about. *open_files*: an fsync of these, too."""
        self._open_files = open_files
        self.delay_s = 0.0
        self.whose = whose
        self.go = threading.Event()
        self.go.set()
        self.stands = threading.Event()
        """Set as soon as one of those threads waits for `go`."""
        self.threads: set[int] = set()
        """Those that have waited."""

    def _wait(self) -> None:
        self.threads.add(threading.get_ident())
        if not self.go.is_set() and threading.current_thread().name.startswith(self.whose):
            self.stands.set()
        self.go.wait()
        time.sleep(self.delay_s)

    def open(self, path: Path, *, create: bool = False) -> PosixFile:
        file = super().open(path, create=create)
        if not self._open_files:
            return file
        slow = _SlowFile(os.dup(file.fd), path)
        slow.before = self._wait
        file.close()
        return slow

    def fsync_file(self, path: Path) -> None:
        self._wait()
        super().fsync_file(path)

    def fsync_dir(self, path: Path) -> None:
        self._wait()
        super().fsync_dir(path)
