"""Writes one cleaned segment: the files of a closed segment, under `.cleaned` names."""

import os
from pathlib import Path

from typing_extensions import Buffer

from tierd.base.disk import Disk
from tierd.storage.header import BatchHeader
from tierd.storage.indexing import IndexBuilder
from tierd.storage.names import Mark, Suffix, parse_segment_file, segment_file
from tierd.storage.txnindex import AbortedEntry, encode_txn_index

_PIECE_BYTES = 1024 * 1024


class CleanedSegment:
    """Takes batches in order; `finish` makes all of it durable."""

    def __init__(self, disk: Disk, directory: Path, base: int, interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._base = base
        self._interval_bytes = interval_bytes
        self._builder = IndexBuilder(base)
        self._aborted: list[AbortedEntry] = []
        self._waiting = bytearray()
        self.size_bytes = 0
        disk.write_new(self._path(Suffix.LOG), b"")
        self._file = disk.open(self._path(Suffix.LOG))

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """*header* is the batch's own. Raises DiskFull, OSError."""
        self._builder.note(
            self.size_bytes, header.size_bytes, header.last_offset, header.max_timestamp_ms, self._interval_bytes
        )
        self.size_bytes += header.size_bytes
        self._waiting += memoryview(batch)
        if len(self._waiting) >= _PIECE_BYTES:
            self._write()

    def note_aborted(self, entry: AbortedEntry) -> None:
        """The marker appended last is of this transaction."""
        self._aborted.append(entry)

    @property
    def has_txn_index(self) -> bool:
        return bool(self._aborted)

    def finish(self, append_ms: int) -> None:
        """Durable with its indexes when this returns; the log's time is *append_ms*. Raises DiskFull, OSError."""
        self._write()
        self._file.fsync()
        self._disk.set_mtime(self._path(Suffix.LOG), append_ms)
        self.close()
        self._builder.note_time()
        contents = {
            Suffix.INDEX: self._builder.offsets.to_bytes(),
            Suffix.TIME_INDEX: self._builder.times.to_bytes(),
        }
        if self._aborted:
            contents[Suffix.TXN_INDEX] = encode_txn_index(self._aborted)
        for suffix, raw in contents.items():
            self._disk.write_new(self._path(suffix), raw)
            self._disk.fsync_file(self._path(suffix))

    def close(self) -> None:
        self._file.close()

    def _write(self) -> None:
        self._file.pwrite(self._waiting, self.size_bytes - len(self._waiting))
        self._waiting.clear()

    def _path(self, suffix: Suffix) -> Path:
        return self._directory / segment_file(self._base, suffix, Mark.CLEANED)


def drop_files(disk: Disk, directory: Path, base: int, mark: Mark) -> None:
    """Remove the files of a cleaned segment that is not wanted any more, those with *mark*. Raises OSError."""
    for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX):
        try:
            disk.unlink(directory / segment_file(base, suffix, mark))
        except FileNotFoundError:
            continue


def sweep_cleaned(disk: Disk, directory: Path) -> None:
    """Remove what earlier cleanings left: a start would take it for the beginning of a swap. Raises OSError."""
    for name in sorted(os.listdir(directory)):
        file = parse_segment_file(name)
        if file is not None and file.mark is Mark.CLEANED:
            disk.unlink(directory / name)
