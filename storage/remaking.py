"""Index files of a segment made again: beside the wrong ones in any thread, put in their place on the loop."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.disk import Disk
from tierd.storage.aborted import AbortedEntries
from tierd.storage.names import TMP, Suffix, segment_file
from tierd.storage.recovery import build_indexes
from tierd.storage.segment import Indexes, Segment


@dataclass(frozen=True, slots=True)
class Remade:
    """Files that wait beside those they are to replace; a start removes them."""

    segment: Segment
    directory: Path
    """Where the segment lay then."""
    paths: tuple[Path, ...]
    """The names that they are to get."""
    disk: Disk = field(repr=False)

    def put(self) -> bool:
        """Put them in place; False, and they are removed, when the segment is gone or has moved. Raises OSError."""
        if self.segment.gone or self.segment.directory != self.directory:
            self.discard()
            return False
        for path in self.paths:
            self.disk.replace(_beside(path), path)
        return True

    def discard(self) -> None:
        """Remove them. Raises OSError."""
        _discard(self.disk, self.paths)


@dataclass(frozen=True, slots=True)
class RemadeIndexes:
    """Both indexes of what a segment held when they were made."""

    files: Remade
    indexes: Indexes
    size_bytes: int
    """How much of the log was read for them."""
    next_offset: int


@dataclass(frozen=True, slots=True)
class RemadeAborted:
    """What the log tells, in a file beside the `.txnindex` that it is to replace."""

    file: Remade
    entries: AbortedEntries

    def put(self) -> bool:
        """As `Remade.put`; without entries there is no file from then on."""
        segment = self.file.segment
        if not self.file.put():
            return False
        if not len(self.entries) and (path := segment.path(Suffix.TXN_INDEX)).exists():
            self.file.disk.unlink(path)
        segment.has_txn_index = bool(len(self.entries))
        return True


def remake(disk: Disk, segment: Segment, interval_bytes: int, size_bytes: int) -> RemadeIndexes:
    """The indexes of the first *size_bytes* of the log, as far as that is good. Any thread. Raises DiskFull,
    OSError."""
    indexes, next_offset = build_indexes(segment, interval_bytes, size_bytes=size_bytes)
    raw = {Suffix.INDEX: indexes.offsets.to_bytes(), Suffix.TIME_INDEX: indexes.times.to_bytes()}
    indexes.offsets.written, indexes.times.written = len(indexes.offsets), len(indexes.times)
    return RemadeIndexes(write_beside(disk, segment, raw), indexes, size_bytes, next_offset)


def write_beside(disk: Disk, segment: Segment, contents: Mapping[Suffix, bytes]) -> Remade:
    """Durable under names that mean nothing yet. Any thread. Raises DiskFull, OSError: then nothing is left."""
    directory = segment.directory
    paths = {directory / segment_file(segment.base, suffix): raw for suffix, raw in contents.items()}
    try:
        for path, raw in paths.items():
            disk.write_new(_beside(path), raw)
            disk.fsync_file(_beside(path))
    except BaseException:
        _discard(disk, paths)
        raise
    return Remade(segment, directory, tuple(paths), disk)


def _discard(disk: Disk, paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            disk.unlink(_beside(path))
        except FileNotFoundError:
            continue


def _beside(path: Path) -> Path:
    return path.with_name(path.name + TMP)
