"""Whether a data directory can be used: the first error of its disk takes it offline, until a restart looks again.

WatchedDisk sees every durable write; who reads tells `DirectoryHealth.note` itself. Any thread may tell.
"""

import errno
import logging
from collections.abc import Callable
from pathlib import Path

from typing_extensions import Buffer

from tierd.base.disk import Disk, DiskFile
from tierd.base.errors import DiskFull

log = logging.getLogger(__name__)

_NOT_THE_DISK = frozenset(
    {
        errno.EEXIST,
        errno.ENOTEMPTY,
        errno.EXDEV,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EINTR,
        errno.EAGAIN,
        errno.EPIPE,
        errno.ECONNRESET,
    }
)
"""These say nothing about the disk; every other error does (Kafka takes a directory offline for any)."""


class DirectoryHealth:
    """Of one data directory. The first failure stays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reason: str | None = None
        """Why the directory is offline; None while it is not."""
        self.on_failure: Callable[[], None] | None = None
        """Called once, in the thread that met the error; must be quick."""

    def note(self, error: BaseException) -> bool:
        """Tell of an error met in this directory; whether it is one of its disk."""
        if not isinstance(error, OSError) or not self._counts(error):
            return False
        self.fail(str(error))
        return True

    def _counts(self, error: OSError) -> bool:
        if error.errno == errno.ENOENT:
            return not self.path.is_dir()  # single files go and come; without the directory itself nothing is left
        return error.errno not in _NOT_THE_DISK

    def fail(self, reason: str) -> None:
        if self.reason is not None:
            return
        self.reason = reason
        log.error("data directory failed, it is offline until the next start", extra={"path": self.path, "why": reason})
        if self.on_failure is not None:
            self.on_failure()


class WatchedDisk:
    """A Disk that tells *health* of every error below its directory; the error is raised all the same."""

    def __init__(self, disk: Disk, health: DirectoryHealth) -> None:
        self._disk = disk
        self._health = health

    def _met(self, error: OSError, path: Path) -> None:
        if path.is_relative_to(self._health.path):
            self._health.note(error)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        try:
            file = self._disk.open(path, create=create)
        except OSError as error:
            self._met(error, path)
            raise
        return WatchedFile(file, self._health) if path.is_relative_to(self._health.path) else file

    def write_new(self, path: Path, data: Buffer) -> None:
        try:
            self._disk.write_new(path, data)
        except OSError as error:
            self._met(error, path)
            raise

    def fsync_file(self, path: Path) -> None:
        self._fsync(path, self._disk.fsync_file)

    def fsync_dir(self, path: Path) -> None:
        self._fsync(path, self._disk.fsync_dir)

    def _fsync(self, path: Path, fsync: Callable[[Path], None]) -> None:
        try:
            fsync(path)
        except OSError as error:
            self._met(error, path)
            raise
        except DiskFull as error:
            # Space that was promised is not there: what the file holds now is as unknown as after any failed fsync.
            if path.is_relative_to(self._health.path):
                self._health.fail(f"fsync failed: {error}")
            raise

    def replace(self, source: Path, target: Path) -> None:
        try:
            self._disk.replace(source, target)
        except OSError as error:
            self._met(error, source)
            self._met(error, target)
            raise

    def link_new(self, source: Path, target: Path) -> None:
        try:
            self._disk.link_new(source, target)
        except OSError as error:
            self._met(error, target)
            raise

    def unlink(self, path: Path) -> None:
        self._plain(path, self._disk.unlink)

    def mkdir(self, path: Path) -> None:
        self._plain(path, self._disk.mkdir)

    def rmdir(self, path: Path) -> None:
        self._plain(path, self._disk.rmdir)

    def _plain(self, path: Path, work: Callable[[Path], None]) -> None:
        try:
            work(path)
        except OSError as error:
            self._met(error, path)
            raise

    def set_mtime(self, path: Path, mtime_ms: int) -> None:
        try:
            self._disk.set_mtime(path, mtime_ms)
        except OSError as error:
            self._met(error, path)
            raise

    def free_bytes(self, path: Path) -> int:
        try:
            return self._disk.free_bytes(path)
        except OSError as error:
            self._met(error, path)
            raise


class WatchedFile:
    """A DiskFile of a WatchedDisk."""

    __slots__ = ("_file", "_health", "fd")

    def __init__(self, file: DiskFile, health: DirectoryHealth) -> None:
        self._file = file
        self._health = health
        self.fd = file.fd

    def pwrite(self, data: Buffer, position: int) -> None:
        try:
            self._file.pwrite(data, position)
        except OSError as error:
            self._health.note(error)
            raise

    def truncate(self, size_bytes: int) -> None:
        try:
            self._file.truncate(size_bytes)
        except OSError as error:
            self._health.note(error)
            raise

    def fsync(self) -> None:
        try:
            self._file.fsync()
        except OSError as error:
            self._health.note(error)
            raise
        except DiskFull as error:
            self._health.fail(f"fsync failed: {error}")
            raise

    def close(self) -> None:
        self._file.close()
