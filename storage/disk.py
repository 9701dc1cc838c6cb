"""The real disk: every durable write, rename and unlink of tierd goes through PosixDisk (seam: tierd/base/disk.py)."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typing_extensions import Buffer

from tierd.base.errors import DiskFull

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FILE_MODE = 0o644


@contextmanager
def _full_is_disk_full(path: Path) -> Iterator[None]:
    """Turn "no space" and "over quota" into DiskFull; every other OSError passes as it is."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(f"{path}: {error.strerror}; free space on this file system") from error
        raise


class PosixFile:
    """An open file for reading and writing; see DiskFile."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    @property
    def fd(self) -> int:
        return self._fd

    def pwrite(self, data: Buffer, position: int) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull(f"{self._path}: {error.strerror}; free space on this file system") from error
            raise
        view = memoryview(data)
        if written < view.nbytes:
            self._finish(view.cast("B"), written, position)

    def _finish(self, view: memoryview, written: int, position: int) -> None:
        """Go on after a short write: either the rest fits or the error says why not."""
        with _full_is_disk_full(self._path):
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], position + written)

    def truncate(self, size_bytes: int) -> None:
        with _full_is_disk_full(self._path):
            os.ftruncate(self._fd, size_bytes)

    def fsync(self) -> None:
        with _full_is_disk_full(self._path):
            os.fsync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class PosixDisk:
    """Durable file operations on the machine's own file systems; safe to use from several threads."""

    def open(self, path: Path, *, create: bool = False) -> PosixFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _full_is_disk_full(path):
            return PosixFile(os.open(path, flags, _FILE_MODE), path)

    def write_new(self, path: Path, data: Buffer) -> None:
        with _full_is_disk_full(path):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        file = PosixFile(fd, path)
        try:
            file.pwrite(data, 0)
        finally:
            file.close()

    def fsync_file(self, path: Path) -> None:
        # Read-only is enough: fsync works on the inode, and a file that somebody made read-only can still be flushed.
        self._fsync(path, os.O_RDONLY | os.O_CLOEXEC)

    def fsync_dir(self, path: Path) -> None:
        self._fsync(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _fsync(self, path: Path, flags: int) -> None:
        with _full_is_disk_full(path):
            fd = os.open(path, flags)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        with _full_is_disk_full(target):
            os.replace(source, target)

    def link_new(self, source: Path, target: Path) -> None:
        with _full_is_disk_full(target):
            os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        with _full_is_disk_full(path):
            os.makedirs(path, exist_ok=True)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def set_mtime(self, path: Path, mtime_ms: int) -> None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def free_bytes(self, path: Path) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize
