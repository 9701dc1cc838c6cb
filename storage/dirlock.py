"""The lock of a data directory, the one that Kafka's Java sees: `fcntl.lockf` on `.lock` (`flock` is another one)."""

import errno
import fcntl
import os
from pathlib import Path

from tierd.base.errors import StartRefused
from tierd.storage.names import LOCK


class DirectoryLock:
    """Held from construction to `release`. The file is opened once and never again in this process: closing any other
    descriptor of it would give the lock away."""

    def __init__(self, directory: Path) -> None:
        """Raises StartRefused when another process holds it; OSError when the directory cannot be used."""
        path = directory / LOCK
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise StartRefused(
                f"{directory} is in use: another tierd or a Kafka broker holds {LOCK}; stop it or use another directory"
            ) from error

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
