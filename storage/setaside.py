"""Where bytes and files go that the log has no use for but that nobody may throw away: a folder in the state directory.

Unsure means keep: recovery cuts nothing that it has not copied here first.
"""

import errno
import os
import threading
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.ids import TopicPartition, Uuid
from tierd.storage.folders import make_folder
from tierd.storage.gaps import GapFile
from tierd.storage.names import partition_directory
from tierd.storage.txn_listed import TxnListed

TXN_LISTED = "txnindexes"
"""Folder beside that of what is set aside."""
_PIECE_BYTES = 1024 * 1024


class SetAside:
    """One folder per partition below *root*; names say where the bytes came from. Any thread."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._lock = threading.Lock()
        self.count = 0
        """How many files were set aside in this run."""

    def cut(self, tp: TopicPartition, path: Path, position: int, size_bytes: int) -> Path | None:
        """Copy [position, size_bytes) of *path*, durable when this returns. None when there is nothing but zeros."""
        with path.open("rb") as source:
            if _only_zeros(source.fileno(), position, size_bytes):
                return None
            return self._copy(tp, f"{path.name}.{position}-{size_bytes}", source.fileno(), position, size_bytes)

    def holds(self, path: Path) -> bool:
        """Whether *path* has bytes that somebody may want: there is one, and not only zeros. Raises OSError."""
        with path.open("rb") as source:
            return not _only_zeros(source.fileno(), 0, path.stat().st_size)

    def move(self, tp: TopicPartition, path: Path) -> Path:
        """Take the file *path* itself out of the log."""
        folder = self._folder(tp)
        target = _free_name(folder, path.name)
        try:
            self._disk.replace(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with path.open("rb") as source:
                self._copy(tp, path.name, source.fileno(), 0, path.stat().st_size)
            self._disk.unlink(path)
        else:
            self._disk.fsync_dir(folder)
            self._count()
        return target

    def keep(self, tp: TopicPartition, name: str, raw: bytes) -> Path:
        """Write *raw*, which is nobody's file here, under *name* or the next free one; durable when this returns."""
        folder = self._folder(tp)
        target = _free_name(folder, name)
        publish(self._disk, target, raw)
        self._count()
        return target

    def gap_file(self, tp: TopicPartition, topic_id: Uuid) -> GapFile:
        """Where the offsets are written down that the partition has lost."""
        return GapFile(self._root, self._disk, tp, topic_id)

    def txn_listed(self, tp: TopicPartition, topic_id: Uuid) -> TxnListed:
        """Which segments of the partition have a transaction index."""
        folder = self._root.parent / TXN_LISTED / partition_directory(tp)
        return TxnListed(folder / f"{topic_id}.json", self._disk)

    def _copy(self, tp: TopicPartition, name: str, fd: int, position: int, stop: int) -> Path:
        folder = self._folder(tp)
        target = _free_name(folder, name)
        file = self._disk.open(target, create=True)
        try:
            written = 0
            while piece := os.pread(fd, min(_PIECE_BYTES, stop - position - written), position + written):
                file.pwrite(piece, written)
                written += len(piece)
            file.fsync()
        finally:
            file.close()
        self._disk.fsync_dir(folder)
        self._count()
        return target

    def _count(self) -> None:
        with self._lock:
            self.count += 1

    def _folder(self, tp: TopicPartition) -> Path:
        folder = self._root / partition_directory(tp)
        make_folder(self._disk, folder)
        return folder


def _only_zeros(fd: int, position: int, stop: int) -> bool:
    while piece := os.pread(fd, min(_PIECE_BYTES, stop - position), position):
        if piece.count(0) != len(piece):
            return False
        position += len(piece)
    return True


def _free_name(folder: Path, name: str) -> Path:
    target, number = folder / name, 1
    while target.exists():
        target = folder / f"{name}.{number}"
        number += 1
    return target
