"""A copy of a partition's directory in another data directory, which follows the original until it takes its place.

Each `round` brings what has changed since the last one, durable when it returns, and runs in a thread; the last one
runs on the loop, when nothing can change any more. A `.log` only grows, so of it only what is new is copied; every
other file is small and comes whole. A file that was replaced by another (compaction) is known by its inode.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierd.base.disk import Disk, DiskFile
from tierd.base.errors import CorruptFile, DiskFull, TierdError
from tierd.storage.folders import make_folder
from tierd.storage.health import DirectoryHealth
from tierd.storage.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    Mark,
    Suffix,
    parse_segment_file,
)

_PIECE_BYTES = 1024 * 1024
_SETTLED_NS = 1_000_000_000
"""A file that was written less than this before it was copied may have changed again within one tick of mtime."""


class CopyStopped(TierdError):
    """The copy was given up because *stopping* said so."""


@dataclass(slots=True)
class _Log:
    """How much of a `.log` has been copied."""

    inode: int
    size_bytes: int


class FolderCopy:
    """*source* and *target* are partition directories; *disk* writes the target, *health* is of the source's disk."""

    def __init__(self, source: Path, target: Path, disk: Disk, health: DirectoryHealth, reserve_bytes: int) -> None:
        self.source = source
        self.target = target
        self._disk = disk
        self._health = health
        self._reserve_bytes = reserve_bytes
        self._logs: dict[str, _Log] = {}
        self._others: dict[str, tuple[int, int, int]] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes of batches copied so far."""
        return sum(log.size_bytes for log in list(self._logs.values()))

    def begin(self) -> None:
        """Make the empty folder. Raises DiskFull, OSError."""
        make_folder(self._disk, self.target)

    def round(self, active: str, active_bytes: int, stopping: Callable[[], bool] = lambda: False) -> int:
        """Make the copy like the original is now; give the bytes of batches that came.

        *active* names the `.log` being appended to, which counts up to *active_bytes*. Files that vanish meanwhile are
        left to the next round. Raises CopyStopped, DiskFull (before the reserve is touched), OSError.
        """
        try:
            with os.scandir(self.source) as entries:
                found = {entry.name: entry for entry in entries if _belongs(entry.name)}
        except OSError as error:
            self._health.note(error)
            raise
        for name in [name for name in (*self._logs, *self._others) if name not in found]:
            self._disk.unlink(self.target / name)
            self._logs.pop(name, None)
            self._others.pop(name, None)
        brought = 0
        for name in sorted(found):
            if stopping():
                raise CopyStopped(f"copy of {self.source} given up")
            is_log = name.endswith(Suffix.LOG)
            if is_log and name > active:
                continue  # begun during this round: only the log itself knows how much of it counts
            try:
                stat = found[name].stat()
                if is_log:
                    size = active_bytes if name == active else stat.st_size
                    brought += self._bring_log(name, stat, size, stopping)
                else:
                    self._bring_other(name, stat)
            except FileNotFoundError:
                continue
        self._disk.fsync_dir(self.target)
        return brought

    def _bring_log(self, name: str, stat: os.stat_result, size: int, stopping: Callable[[], bool]) -> int:
        inode, known = stat.st_ino, self._logs.get(name)
        if known is not None and known.inode == inode and known.size_bytes == size:
            return 0
        with self._opened(name) as fd:
            if os.fstat(fd).st_ino != inode:
                return 0  # replaced just now: the next round brings it
            if known is None or known.inode != inode or known.size_bytes > size:
                known = self._logs[name] = _Log(inode, 0)
                self._disk.write_new(self.target / name, b"")
            begun = known.size_bytes
            file = self._disk.open(self.target / name)
            try:
                while known.size_bytes < size:
                    if stopping():
                        raise CopyStopped(f"copy of {self.source} given up")
                    piece = self._read(fd, known.size_bytes, min(_PIECE_BYTES, size - known.size_bytes))
                    if not piece and size == stat.st_size:
                        return known.size_bytes - begun  # cut by a repair meanwhile: the next round takes it as it is
                    if not piece:
                        raise CorruptFile(str(self.source / name), known.size_bytes, f"the log says {size} bytes")
                    self._write(file, piece, known.size_bytes)
                    known.size_bytes += len(piece)
                file.fsync()
            finally:
                file.close()
        self._disk.set_mtime(self.target / name, stat.st_mtime_ns // 1_000_000)
        return size - begun

    def _bring_other(self, name: str, stat: os.stat_result) -> None:
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if self._others.get(name) == stamp:
            return
        settled = stat.st_mtime_ns + _SETTLED_NS < time.time_ns()
        self._others[name] = stamp if settled else (stat.st_ino, -1, 0)
        with self._opened(name) as fd:
            self._disk.write_new(self.target / name, b"")
            file = self._disk.open(self.target / name)
            try:
                for position, size in _extents(fd, stat.st_size):
                    piece = self._read(fd, position, size)
                    if len(piece) != size:
                        self._others[name] = (stat.st_ino, -1, 0)  # cut short meanwhile: the next round brings it anew
                        break
                    self._write(file, piece, position)
                file.truncate(stat.st_size)
                file.fsync()
            finally:
                file.close()
        self._disk.set_mtime(self.target / name, stat.st_mtime_ns // 1_000_000)

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        try:
            fd = os.open(self.source / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._health.note(error)
            raise
        try:
            yield fd
        finally:
            os.close(fd)

    def _read(self, fd: int, position: int, size: int) -> bytes:
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            self._health.note(error)
            raise

    def _write(self, file: DiskFile, piece: bytes, position: int) -> None:
        free = self._disk.free_bytes(self.target)
        if free - len(piece) < self._reserve_bytes:
            raise DiskFull(f"{self.target}: {free} bytes are free; the copy would cut into the reserve")
        file.pwrite(piece, position)


def _belongs(name: str) -> bool:
    if name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        return True
    file = parse_segment_file(name)
    return file is not None and file.mark is Mark.NONE


def _extents(fd: int, size_bytes: int) -> list[tuple[int, int]]:
    """(position, size) of what is data: index files have their room ahead of them as a hole."""
    found = []
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # only a hole is left
            raise
        stop = min(os.lseek(fd, start, os.SEEK_HOLE), size_bytes)
        while start < stop:
            piece = min(_PIECE_BYTES, stop - start)
            found.append((start, piece))
            start += piece
        position = stop
    return found
