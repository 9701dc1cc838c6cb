"""The folders and locks of a `file:` bucket, and what its OSErrors mean. All durable work goes through Disk."""

import errno
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from typing_extensions import Buffer

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.errors import DiskFull
from tierd.remote import crc
from tierd.remote.errors import AccessRefused, BucketFull, BucketMissing, NotFound, RemoteUnavailable, RequestRefused
from tierd.remote.file_meta import Meta, encode_meta
from tierd.remote.file_names import META_FOLDER, path_parts

_LOCKS = 64
_TRIES = 100
_TMP_AGE_MS = 86_400_000


@contextmanager
def mapped(key: str) -> Iterator[None]:
    """OSErrors become the store's errors here and nowhere else."""
    try:
        yield
    except DiskFull as error:
        raise BucketFull(str(error)) from error
    except FileNotFoundError as error:
        raise NotFound(key) from error
    except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        raise RequestRefused(key, "KeyConflict", "a key cannot be an object and a folder at once") from error
    except PermissionError as error:
        raise AccessRefused(f"{key}: {error.strerror}; check owner and mode of the bucket's directory") from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise AccessRefused(f"{key}: {error.strerror}") from error
        raise RemoteUnavailable(f"{key}: {error.strerror}") from error


class Folders:
    """Paths, locks and durable writes below the bucket's directory. Any thread, several processes."""

    def __init__(self, root: Path, disk: Disk, clock: Clock) -> None:
        self.root = root
        self.disk = disk
        self._clock = clock
        self.uploads = root / META_FOLDER / "uploads"
        self._tmp = root / META_FOLDER / "tmp"
        self._locks = root / META_FOLDER / "locks"
        self._seen = False
        self._swept = False

    def data(self, key: str) -> Path:
        return self.root.joinpath(*path_parts(key))

    def meta(self, key: str) -> Path:
        path = self.root.joinpath(META_FOLDER, "objects", *path_parts(key))
        return path.with_name(path.name + ".json")

    def check_there(self) -> None:
        """Raises BucketMissing when a bucket that was there is gone: an unmounted disk is not an empty bucket."""
        seen = self._seen  # before looking: another thread may just be making it
        there = (self.root / META_FOLDER).is_dir()
        if seen and not there:
            raise self._gone()
        if there:
            self._seen = True

    def _gone(self) -> BucketMissing:
        return BucketMissing(f"{self.root}: the bucket's directory is gone; is its file system mounted?")

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Exclusive among all threads and processes that write *key* (and some others: locks are shared by hash)."""
        self.make_folder(self._locks)
        self._seen = True
        name = f"{crc.crc32c(os.fsencode(key)) % _LOCKS:02x}"
        fd = os.open(self._locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def make_folder(self, path: Path) -> None:
        """Make *path* and what is missing above it, each name durable.

        Raises BucketMissing instead of making a bucket anew that was there: it may go at any moment.
        """
        seen = self._seen  # before looking, too
        if path.is_dir():
            return
        if seen and path in (self.root, self.root / META_FOLDER):
            raise self._gone()
        if not path.parent.is_dir():
            self.make_folder(path.parent)
        self.disk.mkdir(path)
        self.disk.fsync_dir(path.parent)

    def new_tmp(self) -> Path:
        """A free path on the bucket's file system. The first one sweeps what crashed writers left long ago."""
        if not self._swept:
            self._swept = True
            self._sweep_tmp()
        self.make_folder(self._tmp)
        return self._tmp / secrets.token_hex(12)

    def _sweep_tmp(self) -> None:
        oldest_ms = self._clock.now_ms() - _TMP_AGE_MS
        for path in self._tmp.glob("*"):
            with suppress(FileNotFoundError):
                if path.stat().st_mtime_ns // 1_000_000 < oldest_ms:
                    self.disk.unlink(path)
        for folder in self.uploads.glob("*"):
            with suppress(OSError):  # not empty: an upload
                if folder.stat().st_mtime_ns // 1_000_000 < oldest_ms:
                    self.disk.rmdir(folder)

    def write_tmp(self, tmp: Path, data: Buffer) -> None:
        """Durable content without a name in the bucket yet."""
        self.disk.write_new(tmp, data)
        self.disk.fsync_file(tmp)

    def write_meta(self, key: str, meta: Meta) -> None:
        tmp = self.new_tmp()  # not beside the note: there nobody would sweep what a crash leaves
        try:
            self.write_tmp(tmp, encode_meta(meta))
            self.name(tmp, self.meta(key))
        finally:
            self.remove(tmp)

    def name(self, tmp: Path, path: Path) -> None:
        """Give *tmp* its key's name, durably."""
        self._in_folder(path.parent, lambda: self.disk.replace(tmp, path))
        self.disk.fsync_dir(path.parent)

    def _in_folder(self, folder: Path, step: Callable[[], None]) -> None:
        """Do *step* with *folder* there. A delete beside us may remove an empty folder at any moment: make it again."""
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):
                self.make_folder(folder)
                return step()
        raise RemoteUnavailable(f"{folder}: the folder is removed again and again")

    def remove(self, path: Path) -> None:
        """Unlink, fine when it is not there."""
        with suppress(FileNotFoundError):
            self.disk.unlink(path)

    def settle(self, folders: set[Path]) -> None:
        """Make removals in *folders* durable and drop folders that became empty."""
        for folder in folders:
            with suppress(FileNotFoundError):
                self.disk.fsync_dir(folder)
        for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
            self._drop_empty(folder)

    def _drop_empty(self, folder: Path) -> None:
        while folder != self.root and self.root in folder.parents and folder.name != META_FOLDER:
            try:
                self.disk.rmdir(folder)
            except FileNotFoundError:
                pass  # somebody else was first; the one above may be empty
            except OSError:
                return  # not empty, or not ours to remove: an empty folder does no harm
            folder = folder.parent
