"""One segment of a log: its files, and what is known of them in memory.

The active segment has a `builder` and a file open for writing; a closed one never changes again (compaction and
healing replace it by another). Loop thread only; `paths` and `base` never change.
"""

import os
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile
from tierd.storage.aborted import AbortedEntries
from tierd.storage.fdcache import FdCache
from tierd.storage.header import HEADER_BYTES, BatchHeader, parse_header
from tierd.storage.index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from tierd.storage.indexing import NO_TIMESTAMP, IndexBuilder, room_bytes
from tierd.storage.names import Suffix, segment_file
from tierd.storage.sparse import OffsetEntries, TimeEntries
from tierd.storage.timeindex import ENTRY_BYTES as TIME_ENTRY_BYTES
from tierd.storage.timeindex import TimeIndex
from tierd.storage.txnindex import ENTRY_BYTES as TXN_ENTRY_BYTES
from tierd.storage.txnindex import AbortedEntry
from tierd.storage.view import SegmentView

_MAX_HINTS = 64


class Segment:
    __slots__ = (
        "_txn_written",
        "aborted",
        "append_ms",
        "base",
        "builder",
        "checked",
        "directory",
        "first_append_ms",
        "gone",
        "handle",
        "has_txn_index",
        "hints",
        "hollow",
        "largest",
        "loaded",
        "size_bytes",
        "view",
    )

    def __init__(self, directory: Path, base: int, fds: FdCache, size_bytes: int = 0, append_ms: int = 0) -> None:
        self.directory = directory
        self.base = base
        self.handle = fds.handle(directory / segment_file(base, Suffix.LOG))
        self.size_bytes = size_bytes
        """Bytes of batches; a preallocated file is longer."""
        self.append_ms = append_ms
        """Wall clock of the last append (kept as the file's mtime)."""
        self.first_append_ms: int | None = None
        """Wall clock of the first append, or an earlier time when that is not known; None while empty."""
        self.builder: IndexBuilder | None = None
        self.gone = False
        """Its log has it no more: dropped, replaced or closed."""
        self.checked = False
        """Written or read whole in this run, or looked at (settling.py): it ends where the next one begins."""
        self.hollow = False
        """Looked at alone it has lost all that it had: the one before it has to be looked at first."""
        self.loaded: Indexes | None = None
        """Indexes of a closed segment while in use (IndexCache)."""
        self.largest: tuple[int, int] | None = None
        """(largest timestamp, last offset of its batch) of a closed segment once asked for."""
        self.hints: dict[int, int] = {}
        """Offset -> position of the first batch at or above it, where readers stopped: most go on from there."""
        self.view: SegmentView | None = None
        """What log_views shows of it once closed."""
        self.has_txn_index = False
        """Whether a transaction has been aborted in it."""
        self.aborted: AbortedEntries | None = None
        """Those of the active segment; of a closed one IndexCache knows."""
        self._txn_written = 0

    def __repr__(self) -> str:
        return f"Segment({self.path(Suffix.LOG)}, {self.size_bytes} bytes)"

    def path(self, suffix: Suffix) -> Path:
        return self.directory / segment_file(self.base, suffix)

    def files(self) -> list[Path]:
        """Every path that may belong to it, the log first: without it the others are orphans, which a start removes."""
        return [
            self.path(suffix)
            for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX, Suffix.SNAPSHOT)
        ]

    @property
    def where(self) -> str:
        return str(self.handle.path)

    def hint(self, offset: int, position: int) -> None:
        if len(self.hints) >= _MAX_HINTS:
            self.hints.clear()
        self.hints[offset] = position

    def rehome(self, directory: Path, fds: FdCache, disk: Disk) -> None:
        """The same files lie in *directory* now; readers of the old ones keep their descriptors."""
        writable_by = None if self.handle.writable_by is None else disk
        self.handle.drop()
        self.directory = directory
        self.handle = fds.handle(directory / segment_file(self.base, Suffix.LOG), writable_by)

    # -- the active segment --

    def create_files(self, disk: Disk, index_bytes: int, preallocate_bytes: int | None) -> None:
        """Make the empty files of a new active segment; names last after fsync of the directory. Raises DiskFull."""
        for suffix, size_bytes in (
            (Suffix.LOG, preallocate_bytes or 0),
            (Suffix.INDEX, room_bytes(index_bytes, OFFSET_ENTRY_BYTES)),
            (Suffix.TIME_INDEX, room_bytes(index_bytes, TIME_ENTRY_BYTES)),
        ):
            file = disk.open(self.path(suffix), create=True)
            try:
                file.truncate(size_bytes)
            finally:
                file.close()
        self.activate(disk, IndexBuilder(self.base), AbortedEntries())

    def extend_indexes(self, disk: Disk, index_bytes: int) -> None:
        """Give the trimmed index files of a segment that becomes active again their room back."""
        for suffix, entry_bytes in ((Suffix.INDEX, OFFSET_ENTRY_BYTES), (Suffix.TIME_INDEX, TIME_ENTRY_BYTES)):
            path = self.path(suffix)
            file = disk.open(path)
            try:
                file.truncate(max(path.stat().st_size, room_bytes(index_bytes, entry_bytes)))
            finally:
                file.close()

    def activate(self, disk: Disk, builder: IndexBuilder, aborted: AbortedEntries) -> None:
        """Take appends from now on. *aborted* is what its `.txnindex` holds: nothing is read once a batch is written,
        for a read that failed would leave the log without what is in it."""
        self.aborted, self._txn_written = aborted, len(aborted)
        self.builder = builder
        self.checked = True
        self.loaded = None
        self.handle.drop()
        self.handle.writable_by = disk

    def note(self, header: BatchHeader, now_ms: int, interval_bytes: int) -> None:
        """A batch has been written at the end."""
        assert self.builder is not None
        self.builder.note(
            self.size_bytes, header.size_bytes, header.last_offset, header.max_timestamp_ms, interval_bytes
        )
        self.size_bytes += header.size_bytes
        if now_ms > self.append_ms:
            self.append_ms = now_ms
        if self.first_append_ms is None:
            self.first_append_ms = now_ms

    def note_aborted(self, entry: AbortedEntry) -> None:
        assert self.aborted is not None
        self.aborted.add(entry)
        self.has_txn_index = True

    def write_indexes(self, disk: Disk, *, trim: bool, anew: bool = False) -> None:
        """Bring the index files up to date; *anew* whatever is in them. They lag while the segment is active: after a
        crash it is read again."""
        assert self.builder is not None
        if trim:
            self.builder.note_time()
        for suffix, entries, entry_bytes in (
            (Suffix.INDEX, self.builder.offsets, OFFSET_ENTRY_BYTES),
            (Suffix.TIME_INDEX, self.builder.times, TIME_ENTRY_BYTES),
        ):
            if anew:
                disk.write_new(self.path(suffix), entries.to_bytes())
                entries.written = len(entries)
            else:
                self._write_index(disk, suffix, entries, entry_bytes, trim=trim)
        self._write_txn_index(disk)

    def _write_index(
        self, disk: Disk, suffix: Suffix, entries: OffsetEntries | TimeEntries, entry_bytes: int, *, trim: bool
    ) -> None:
        if not trim and entries.written == len(entries):
            return
        file = disk.open(self.path(suffix), create=True)
        try:
            if entries.written < len(entries):
                file.pwrite(entries.to_bytes(entries.written), entries.written * entry_bytes)
                entries.written = len(entries)
            if trim:
                file.truncate(entries.size_bytes)
        finally:
            file.close()

    def _write_txn_index(self, disk: Disk) -> None:
        entries = self.aborted
        if entries is None or self._txn_written >= len(entries):
            return
        file = disk.open(self.path(Suffix.TXN_INDEX), create=True)
        try:
            file.pwrite(entries.to_bytes(self._txn_written), self._txn_written * TXN_ENTRY_BYTES)
        finally:
            file.close()
        self._txn_written = len(entries)

    def seal(self, disk: Disk) -> None:
        """Trim the files to what they hold and keep the time of the last append as mtime. The builder stays."""
        self.write_indexes(disk, trim=True)
        if self.handle.path.stat().st_size > self.size_bytes:  # preallocated, whatever the settings say now
            self.handle.writer().truncate(self.size_bytes)
        disk.set_mtime(self.handle.path, self.append_ms)

    def close(self) -> None:
        """No more appends: the segment lives on as a closed one."""
        assert self.builder is not None
        pair = (self.builder.max_timestamp_ms, self.builder.max_offset)
        self.largest = pair if pair[0] > NO_TIMESTAMP else None
        self.loaded = Indexes(self.builder.offsets, self.builder.times)
        self.builder = None
        self.aborted = None
        self.handle.writable_by = None

    # -- both --

    def largest_timestamp(self) -> tuple[int, int] | None:
        """(largest timestamp, last offset of the first batch that has it); None without any. Raises OSError."""
        if self.builder is not None:
            pair = (self.builder.max_timestamp_ms, self.builder.max_offset)
            return pair if pair[0] > NO_TIMESTAMP else None
        if self.largest is None and self.size_bytes:
            last = TimeIndex(tail_of(self.path(Suffix.TIME_INDEX), TIME_ENTRY_BYTES), self.base).last
            if last is not None and last.timestamp_ms >= 0 and last.offset >= self.base:  # else it is none of ours
                self.largest = (last.timestamp_ms, last.offset)
        return self.largest

    def set_aborted(self, entries: list[AbortedEntry]) -> None:
        """Recovery found these; they are written with the indexes."""
        self.aborted = AbortedEntries(entries)
        self._txn_written = 0
        self.has_txn_index = bool(entries)


class Indexes:
    """Both indexes of a segment in memory."""

    __slots__ = ("offsets", "times")

    def __init__(self, offsets: OffsetEntries, times: TimeEntries) -> None:
        self.offsets = offsets
        self.times = times

    @property
    def size_bytes(self) -> int:
        """About what they take in memory."""
        return 256 + self.offsets.size_bytes + 16 * len(self.times)


def read_indexes(segment: Segment, next_base: int | None) -> Indexes:
    """Both index files, checked as far as they alone can be. Raises CorruptFile, also when one is missing."""
    raw = {}
    for suffix in (Suffix.INDEX, Suffix.TIME_INDEX):
        path = segment.path(suffix)
        try:
            raw[suffix] = path.read_bytes()
        except FileNotFoundError as error:
            raise CorruptFile(str(path), 0, "the file is missing") from error
    where = segment.where
    offsets = OffsetEntries.from_bytes(raw[Suffix.INDEX], segment.base, where, segment.size_bytes)
    times = TimeEntries.from_bytes(raw[Suffix.TIME_INDEX], segment.base, where, next_base)
    if not len(times) and segment.size_bytes and _has_time(segment):
        raise CorruptFile(str(segment.path(Suffix.TIME_INDEX)), 0, "it is empty, the segment is not")
    return Indexes(offsets, times)


def read_aborted(segment: Segment, next_base: int | None) -> AbortedEntries:
    """Aborted transactions whose marker lies in this segment, as its file says. Raises CorruptFile, OSError."""
    if not segment.has_txn_index:
        return AbortedEntries()
    path = segment.path(Suffix.TXN_INDEX)
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise CorruptFile(str(path), 0, "the file is missing") from error
    return AbortedEntries.from_bytes(raw, segment.base, str(path), next_base)


def _has_time(segment: Segment) -> bool:
    with segment.handle.path.open("rb", buffering=0) as file:
        return parse_header(os.pread(file.fileno(), HEADER_BYTES, 0), 0, segment.where).max_timestamp_ms > 0


def is_sealed(segment: Segment) -> bool:
    """Whether the last entry of its time index is the one that closing it has written. Only of a closed segment; an
    index that is damaged in another way is not judged. Raises OSError."""
    path = segment.path(Suffix.TIME_INDEX)
    if not path.exists():
        return True
    last = tail_of(path, TIME_ENTRY_BYTES)
    return any(last[-TIME_ENTRY_BYTES:]) if last else not (segment.size_bytes and _has_time(segment))


def tail_of(path: Path, entry_bytes: int) -> bytes:
    """The last entry of an index of a closed segment; all of it where it still ends in the room of an active one.

    Raises OSError.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        last = os.pread(file.fileno(), entry_bytes, max(0, size - entry_bytes))
        return last if any(last) and not size % entry_bytes else file.readall()
