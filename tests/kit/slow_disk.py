"""A disk that takes its time, or stands still."""

import threading
import time
from pathlib import Path

from tierd.storage.disk import PosixDisk


class SlowDisk(PosixDisk):
    """Every fsync of a name or a file takes `delay_s` longer, and as long as `go` is cleared."""

    def __init__(self, whose: str = "") -> None:
        """*whose*: how the names of the threads begin that `stands` is about."""
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

    def fsync_file(self, path: Path) -> None:
        self._wait()
        super().fsync_file(path)

    def fsync_dir(self, path: Path) -> None:
        self._wait()
        super().fsync_dir(path)
