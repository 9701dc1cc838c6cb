"""Open descriptors of log files under one limit: least recently used ones are closed, those in use never.

A reader takes a descriptor with `acquire`, holds it while bytes are being sent and gives it back with `release`; the
file may be renamed or unlinked meanwhile. Loop thread only.
"""

import os
from collections import OrderedDict
from pathlib import Path

from tierd.base import descriptors
from tierd.base.disk import Disk, DiskFile


class FileHandle:
    """One log file that is open now and then. Readers and the writer share one descriptor."""

    __slots__ = ("_cache", "_dropped", "_fd", "_file", "_refs", "path", "writable_by")

    def __init__(self, cache: "FdCache", path: Path, writable_by: Disk | None) -> None:
        self._cache = cache
        self.path = path
        self.writable_by = writable_by
        """Opens for writing too when set: the active segment. Reset to None when it is closed."""
        self._fd = -1
        self._file: DiskFile | None = None
        self._refs = 0
        self._dropped = False

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    @property
    def busy(self) -> bool:
        return self._refs > 0

    def acquire(self) -> int:
        """The descriptor, opened when it is not; give it back with `release`. Raises OSError."""
        if self._fd < 0:
            self._open()
        else:
            self._cache.touch(self)
        self._refs += 1
        return self._fd

    def release(self) -> None:
        self._refs -= 1
        if not self._refs and self._dropped:
            self._close()

    def writer(self) -> DiskFile:
        """The file open for writing; not held: use it at once. Only while `writable_by` is set."""
        file = self._file
        if file is None:
            self._open()
            file = self._file
            assert file is not None
        else:
            self._cache.touch(self)
        return file

    def drop(self) -> None:
        """Close now, or when the last reader has given it back. It opens again when used again."""
        if self._refs:
            self._dropped = True
        else:
            self._close()

    def _open(self) -> None:
        self._cache.make_room()
        if self.writable_by is None:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        else:
            self._file = self.writable_by.open(self.path)
            self._fd = self._file.fd
        self._dropped = False
        self._cache.add(self)

    def _close(self) -> None:
        self._cache.forget(self)
        self._dropped = False
        file, self._file = self._file, None
        fd, self._fd = self._fd, -1
        if file is not None:
            file.close()
        elif fd >= 0:
            os.close(fd)


class FdCache:
    """All file handles that are open, least recently used first."""

    def __init__(self, limit: int | None = None) -> None:
        """*limit* is by default what the process's own limit allows."""
        self._limit = descriptors.for_logs() if limit is None else limit
        self._open: OrderedDict[FileHandle, None] = OrderedDict()
        self.touch = self._open.move_to_end

    def __len__(self) -> int:
        return len(self._open)

    def handle(self, path: Path, writable_by: Disk | None = None) -> FileHandle:
        """A handle of *path*, not yet open."""
        return FileHandle(self, path, writable_by)

    def add(self, handle: FileHandle) -> None:
        self._open[handle] = None

    def forget(self, handle: FileHandle) -> None:
        self._open.pop(handle, None)

    def make_room(self) -> None:
        """Close the least recently used handle that nobody holds when the limit is reached; exceed it otherwise."""
        if len(self._open) < self._limit:
            return
        for handle in self._open:
            if not handle.busy:
                handle.drop()
                return

    def close(self) -> None:
        """Close all that nobody holds; the rest closes as it comes back."""
        for handle in list(self._open):
            handle.drop()
