"""The index files that go into a segment's `.indexes`: the local ones, and what is missing or broken made anew.

The originals are trimmed and checked against the segment; a rebuild follows storage/FORMAT.md, "Offset index".
"""

import os
from dataclasses import dataclass
from pathlib import Path

from tierd.base.errors import CorruptFile
from tierd.remote.indexes import IndexFiles
from tierd.remote.manifest import EpochStart
from tierd.storage import names
from tierd.storage.aborted import AbortedEntries
from tierd.storage.batch import ControlType, parse_control
from tierd.storage.epochs import EpochEntry, encode_epochs, parse_epochs
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.index import encode_entry
from tierd.storage.records import iter_records
from tierd.storage.sparse import OffsetEntries, TimeEntries
from tierd.storage.timeindex import encode_time_entry
from tierd.storage.txn_rebuild import find_aborted
from tierd.storage.txnindex import AbortedEntry, encode_txn_index
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.snapshots import snapshot_at
from tierd.tiering.walk import BatchAt, SegmentWalker, walk_file

EPOCHS_FILE = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class Sidecars:
    files: IndexFiles
    epochs: tuple[EpochStart, ...]
    """Those in the segment, starts clipped to its base."""


def load(view: PartitionView, segment: SegmentView, walked: SegmentWalker) -> Sidecars:
    """All index files of a closed segment whose batches *walked* has seen. Blocking; raises CorruptFile or OSError."""
    offset, timestamp = _sparse(view, segment)
    entries = _epochs(view.directory, segment, walked)
    return Sidecars(
        IndexFiles(
            offset=offset,
            timestamp=timestamp,
            producer_snapshot=snapshot_at(view.directory, view.closed, segment.next_base),
            leader_epoch=encode_epochs(entries),
            transaction=_transactions(view.directory, segment, walked),
        ),
        _clip(entries, segment),
    )


def _sparse(view: PartitionView, segment: SegmentView) -> tuple[bytes, bytes]:
    """Offset and time index without padding; both made anew when either is missing or does not fit."""
    directory, base = view.directory, segment.base
    index, time_index = (directory / name(base) for name in (names.index_file, names.time_index_file))
    try:
        offsets = OffsetEntries.from_bytes(index.read_bytes(), base, str(index), segment.size_bytes)
        times = TimeEntries.from_bytes(time_index.read_bytes(), base, str(time_index), segment.next_base)
    except (FileNotFoundError, CorruptFile):
        return rebuild(directory, segment, view.settings.index_interval_bytes)
    beyond = len(offsets) and base + offsets.relatives[-1] >= segment.next_base
    if beyond or (segment.size_bytes and not len(times)):
        return rebuild(directory, segment, view.settings.index_interval_bytes)
    return offsets.to_bytes(), times.to_bytes()


class _Builder:
    """Entries as the writer would make them (storage/FORMAT.md, "Offset index")."""

    def __init__(self, base: int, interval_bytes: int) -> None:
        self._base = base
        self._interval = interval_bytes
        self._since = 0
        self._running: tuple[int, int] | None = None
        self._last_ms: int | None = None
        self.offsets = bytearray()
        self.times = bytearray()

    def add(self, batch: BatchAt) -> None:
        header = batch.header
        if self._running is None or header.max_timestamp_ms > self._running[0]:
            self._running = (header.max_timestamp_ms, header.last_offset)
        if self._since > self._interval:
            self.offsets += encode_entry(header.last_offset, batch.position, self._base)
            self.close()
            self._since = 0
        self._since += header.size_bytes

    def close(self) -> None:
        """Add the running pair to the time index if it is above its last entry."""
        if self._running is not None and (self._last_ms is None or self._running[0] > self._last_ms):
            self.times += encode_time_entry(*self._running, self._base)
            self._last_ms = self._running[0]


def rebuild(directory: Path, segment: SegmentView, interval_bytes: int) -> tuple[bytes, bytes]:
    """Offset and time index out of the batches."""
    path = directory / names.log_file(segment.base)
    builder = _Builder(segment.base, interval_bytes)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        walk_file(fd, segment.size_bytes, SegmentWalker(segment.base, segment.next_base, str(path), builder.add))
    finally:
        os.close(fd)
    builder.close()
    return bytes(builder.offsets), bytes(builder.times)


def _transactions(directory: Path, segment: SegmentView, walked: SegmentWalker) -> bytes | None:
    """The transaction index, made anew when it is damaged or says nothing of an abort that the segment holds: with it
    in the bucket aborted records would show. Raises CorruptFile when the log does not tell either."""
    known = _known_aborts(directory, segment)
    markers = {entry.marker_offset for entry in known or ()}
    if known is None or _aborts_beside(directory, segment, walked, markers):
        found = find_aborted(directory, segment.base, segment.size_bytes)
        # Compaction leaves markers whose records are gone: only the file tells of them, or nobody, and it is all one.
        merged = {entry.marker_offset: entry for entry in [*found, *(known or ())]}
        known = [merged[marker] for marker in sorted(merged)]
    return encode_txn_index(known) or None


def _known_aborts(directory: Path, segment: SegmentView) -> list[AbortedEntry] | None:
    """What the file says; None when it is damaged."""
    path = directory / names.txn_index_file(segment.base)
    try:
        entries = AbortedEntries.from_bytes(path.read_bytes(), segment.base, str(path), segment.next_base)
    except FileNotFoundError:
        return []
    except CorruptFile:
        return None
    return list(entries.since(segment.base))


def _aborts_beside(directory: Path, segment: SegmentView, walked: SegmentWalker, known: set[int]) -> bool:
    """Whether the segment holds an abort whose marker is not *known*. One of a transaction that
    wrote nothing may be, too."""
    path = directory / names.log_file(segment.base)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for offset, position in zip(walked.controls[::2], walked.controls[1::2], strict=True):
            if offset in known:
                continue
            header = parse_header(os.pread(fd, HEADER_BYTES, position), 0, str(path))
            batch = os.pread(fd, header.size_bytes, position)
            try:
                kind, _ = parse_control(next(iter_records(batch, header, str(path))))
            except (CorruptFile, StopIteration):
                continue  # nobody knows what it is (storage/replay.py)
            if kind == ControlType.ABORT:
                return True
        return False
    finally:
        os.close(fd)


def _epochs(directory: Path, segment: SegmentView, walked: SegmentWalker) -> list[EpochEntry]:
    """All entries that begin before the segment's end; those of the batches where the file has none."""
    try:
        raw = (directory / EPOCHS_FILE).read_bytes()
        entries = [one for one in parse_epochs(raw, EPOCHS_FILE) if one.start_offset < segment.next_base]
    except (FileNotFoundError, CorruptFile):
        entries = []
    known = {entry.epoch for entry in entries}
    if all(seen.epoch in known for seen in walked.epochs):
        return entries
    before = [entry for entry in entries if entry.epoch < walked.epochs[0].epoch]
    return before + [EpochEntry(seen.epoch, seen.start) for seen in walked.epochs]


def _clip(entries: list[EpochEntry], segment: SegmentView) -> tuple[EpochStart, ...]:
    """Entries that hold an offset of the segment, starts not below its base."""
    ends = [entry.start_offset for entry in entries[1:]] + [segment.next_base]
    return tuple(
        EpochStart(entry.epoch, max(entry.start_offset, segment.base))
        for entry, end in zip(entries, ends, strict=True)
        if max(entry.start_offset, segment.base) < min(end, segment.next_base)
    )
