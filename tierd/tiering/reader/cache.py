"""The reader's files on disk under one budget: least recently used go first, files that are out never.

Nothing here must survive: a file appears under its name only when it is whole, its content is checked again before it
is used after a restart, and what is lost is fetched again. So files are written without fsync and without the Disk
seam, which is for what has to last. A full disk is DiskFull.
"""

import asyncio
import errno
import itertools
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Buffer

from tierd.base.errors import DiskFull

log = logging.getLogger(__name__)

_TMP = ".tmp"
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(slots=True, eq=False)
class CacheFile:
    """A whole file in the cache. `fd` is open while it is pinned."""

    name: str
    size_bytes: int
    on_gone: Callable[[], None]
    """Called when it leaves the cache, in the loop's thread; pins that are out stay good."""
    fd: int = -1
    pins: int = 0
    gone: bool = False


class DiskCache:
    """Event loop only, except `write`. Bytes of pinned files count until they are released, also after a drop."""

    def __init__(self, directory: Path, budget_bytes: int, max_open: int, unlinker: Executor) -> None:
        self.directory = directory
        self._folder = str(directory)
        self._budget_bytes = budget_bytes
        self._max_open = max_open
        self._unlinker = unlinker
        self._files: dict[str, CacheFile] = {}
        self._idle: OrderedDict[CacheFile, None] = OrderedDict()
        self._open = 0
        self._numbers = itertools.count()
        self._released: list[asyncio.Future[None]] = []
        self.used_bytes = 0

    def found(self) -> Iterator[tuple[str, int]]:
        """Names and sizes of the files that an earlier run left, oldest first; half-written ones are swept."""
        self.directory.mkdir(parents=True, exist_ok=True)
        entries = [(entry.stat(), entry) for entry in os.scandir(self.directory) if entry.is_file()]
        for stat, entry in sorted(entries, key=lambda pair: pair[0].st_mtime_ns):
            if entry.name.endswith(_TMP):
                os.unlink(entry.path)
            else:
                yield entry.name, stat.st_size

    def path(self, name: str) -> Path:
        return self.directory / name

    def write(self, name: str | Callable[[], str], pieces: Iterator[Buffer]) -> None:
        """Make file *name* (asked for once all pieces are there) hold *pieces*, or leave nothing. Any thread.

        Raises DiskFull and what *pieces* raises.
        """
        tmp = self._tmp()
        fd = self._new(tmp)
        try:
            for piece in pieces:
                _write_all(fd, memoryview(piece).cast("B"))
            os.rename(tmp, self.path(name if isinstance(name, str) else name()))
        except OSError as error:
            os.unlink(tmp)
            if error.errno in _NO_ROOM:
                raise DiskFull(f"{self.directory}: no room for the read cache; set remote.cache.bytes lower") from error
            raise
        except BaseException:
            os.unlink(tmp)
            raise
        finally:
            os.close(fd)

    def _new(self, tmp: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            return os.open(tmp, flags, 0o600)
        except FileNotFoundError:  # somebody has removed the whole folder
            self.directory.mkdir(parents=True, exist_ok=True)
            return os.open(tmp, flags, 0o600)

    def add(self, name: str, size_bytes: int, on_gone: Callable[[], None]) -> CacheFile:
        """Take in a file that is written; the oldest idle ones make room for it."""
        file = CacheFile(name, size_bytes, on_gone)
        self._files[name] = file
        self._idle[file] = None
        self.used_bytes += size_bytes
        self._make_room(0, spare=file)
        return file

    def get(self, name: str) -> CacheFile | None:
        return self._files.get(name)

    def pin(self, file: CacheFile) -> int:
        """Keep *file* until `unpin`, as often as it is pinned. Its descriptor; OSError when it cannot be opened."""
        if file.pins == 0:
            file.fd = os.open(f"{self._folder}/{file.name}", os.O_RDONLY | os.O_CLOEXEC)
            self._open += 1
            self._idle.pop(file, None)
        file.pins += 1
        return file.fd

    def pin_if_there(self, file: CacheFile) -> int | None:
        """As `pin`. None when somebody has removed the file: it has left the cache then."""
        try:
            return self.pin(file)
        except FileNotFoundError:
            self.drop(file)
            return None

    def unpin(self, file: CacheFile) -> None:
        file.pins -= 1
        if file.pins:
            return
        os.close(file.fd)
        file.fd = -1
        self._open -= 1
        if file.gone:
            self.used_bytes -= file.size_bytes
        else:
            self._idle[file] = None
            self._make_room(0)
        self._wake()

    def drop(self, file: CacheFile) -> None:
        """Unlink *file* now; whoever has it pinned goes on reading it."""
        if file.gone:
            return
        file.gone = True
        del self._files[file.name]
        self._idle.pop(file, None)
        if file.pins == 0:
            self.used_bytes -= file.size_bytes
        self._discard(self.path(file.name))
        file.on_gone()

    async def reserve(self, size_bytes: int, *, wait: bool) -> bool:
        """Set *size_bytes* aside for a file to come. Give them back with `unreserve` just before `add`.

        When what is pinned leaves no room: wait for a release, or say False at once. A file that is larger than the
        whole budget gets its room when nothing else has any.
        """
        while not self._make_room(size_bytes) and self.used_bytes:
            if not wait:
                return False
            await self._release()
        self.used_bytes += size_bytes
        return True

    def unreserve(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        self._wake()

    async def descriptors(self) -> None:
        """Wait until another descriptor may be out."""
        while self._open >= self._max_open:
            await self._release()

    def room_for_descriptors(self) -> int:
        return self._max_open - self._open

    def _discard(self, path: Path) -> None:
        """Free the name at once (it may be written again soon) and the bytes in a thread: that takes its time."""
        trash = self._tmp()
        try:
            os.rename(path, trash)
        except FileNotFoundError:
            return
        self._unlinker.submit(_unlink, trash)

    def _tmp(self) -> Path:
        """A name that nobody else uses, in any thread."""
        return self.path(f"{next(self._numbers)}{_TMP}")

    def _make_room(self, size_bytes: int, spare: CacheFile | None = None) -> bool:
        while self.used_bytes + size_bytes > self._budget_bytes:
            oldest = next(iter(self._idle), None)
            if oldest is None or oldest is spare:
                return False
            self.drop(oldest)
        return True

    async def _release(self) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._released.append(woken)
        await woken

    def _wake(self) -> None:
        released, self._released = self._released, []
        for woken in released:
            if not woken.done():
                woken.set_result(None)


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cache file stays", extra={"path": str(path), "error": str(error)})
