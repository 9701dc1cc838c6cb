"""What an interrupted run left in a partition directory, put right before it is read (ENGINE.md, "Recovery")."""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile
from tierd.storage.compaction.unfinished import end_of, settle_swaps
from tierd.storage.names import TMP, Mark, SegmentFile, Suffix, parse_segment_file, segment_file

log = logging.getLogger(__name__)

_INDEXES = (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX)
_NO_FILE = ".no-file"
"""Added to the name of a folder that stands where a file belongs; nobody reads such a name."""


@dataclass(slots=True)
class PartitionFiles:
    """The offsets in the names of a partition's files, by kind."""

    of: dict[Suffix, set[int]] = field(default_factory=lambda: {suffix: set() for suffix in Suffix})
    vanished: set[int] = field(default_factory=set)
    """Where both indexes lie and name batches, but no log does: it was there. `drop_orphans` removes them."""

    @property
    def logs(self) -> set[int]:
        return self.of[Suffix.LOG]


def tidy(directory: Path, disk: Disk) -> PartitionFiles:
    """Finish or undo what was under way, and give the files that are left."""
    marked: dict[Mark, list[SegmentFile]] = {mark: [] for mark in Mark}
    for entry in os.scandir(directory):
        file = parse_segment_file(entry.name)
        if file is not None and entry.is_dir():
            log.warning("a folder has the name of a segment's file", extra={"folder": entry.path})
            disk.replace(Path(entry.path), directory / f"{entry.name}{_NO_FILE}")
        elif file is not None:
            marked[file.mark].append(file)
        elif entry.name.endswith(TMP) and not entry.is_dir():
            disk.unlink(directory / entry.name)
    files = PartitionFiles()
    for file in marked[Mark.NONE]:
        files.of[file.suffix].add(file.offset)
    settle_swaps(directory, disk, files.of, marked[Mark.CLEANED], marked[Mark.SWAP])
    _finish_deletes(directory, disk, files, marked[Mark.DELETED])
    without = (files.of[Suffix.INDEX] & files.of[Suffix.TIME_INDEX]) - files.logs
    files.vanished = {base for base in without if _is_used(directory, base)}
    return files


def _finish_deletes(directory: Path, disk: Disk, files: PartitionFiles, deleted: list[SegmentFile]) -> None:
    """Files marked as deleted go, but a segment whose removal would leave a hole comes back.

    Removal goes from the oldest segment on; after a power cut a later one may be marked and an older one not: readers
    would pass over what is missing in silence. Compaction leaves marks without a hole: what is there of a lower base
    was written by it, and so that base has a mark, too.
    """
    gone = {file.offset for file in deleted if file.suffix is Suffix.LOG}
    back: set[int] = set()
    for offset in sorted(gone - files.logs):
        if _leaves_hole(directory, files.logs | back, gone - back, offset):
            back.add(offset)
    for offset in gone - files.logs - back:
        _remove_indexes(directory, disk, files, offset)  # first: without the marked log they would tell of a loss
    for file in deleted:
        marked = directory / segment_file(file.offset, file.suffix, Mark.DELETED)
        if file.offset in back:
            disk.replace(marked, directory / segment_file(file.offset, file.suffix))
            files.of[file.suffix].add(file.offset)
        else:
            disk.unlink(marked)


def _leaves_hole(directory: Path, bases: set[int], gone: set[int], offset: int) -> bool:
    """Whether there are older and newer segments, and the next older one ends at or before *offset*."""
    below = max((base for base in bases if base < offset), default=None)
    if below is None or below in gone or offset > max(bases):
        return False
    names = [directory / segment_file(below, Suffix.LOG, mark) for mark in (Mark.NONE, Mark.DELETED)]
    try:
        return end_of(next(name for name in names if name.exists()), below) <= offset
    except CorruptFile:
        return False  # recovery will see to it


def drop_orphans(directory: Path, disk: Disk, files: PartitionFiles) -> None:
    """Indexes without a log go."""
    for base in set().union(*(files.of[suffix] for suffix in _INDEXES)) - files.logs:
        _remove_indexes(directory, disk, files, base)


def _remove_indexes(directory: Path, disk: Disk, files: PartitionFiles, base: int) -> None:
    for suffix in _INDEXES:
        if base in files.of[suffix]:
            disk.unlink(directory / segment_file(base, suffix))
            files.of[suffix].discard(base)


def _is_used(directory: Path, base: int) -> bool:
    """Whether its indexes name batches: those of a segment without any are empty, or room only."""
    return any((directory / segment_file(base, Suffix.TIME_INDEX)).read_bytes())
