"""What an interrupted run left in a partition directory, put right before it is read (ENGINE.md, "Recovery")."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.storage.compaction.unfinished import end_of, settle_swaps
from tierd.storage.names import TMP, Mark, SegmentFile, Suffix, parse_segment_file, segment_file
from tierd.storage.setaside import SetAside


@dataclass(slots=True)
class PartitionFiles:
    """The offsets in the names of a partition's files, by kind."""

    of: dict[Suffix, set[int]] = field(default_factory=lambda: {suffix: set() for suffix in Suffix})

    @property
    def logs(self) -> set[int]:
        return self.of[Suffix.LOG]


def tidy(directory: Path, name: TopicPartition, disk: Disk, set_aside: SetAside, *, compacted: bool) -> PartitionFiles:
    """Finish or undo what was under way, and give the files that are left."""
    marked: dict[Mark, list[SegmentFile]] = {mark: [] for mark in Mark}
    for entry in os.scandir(directory):
        file = parse_segment_file(entry.name)
        if file is not None:
            marked[file.mark].append(file)
        elif entry.name.endswith(TMP):
            disk.unlink(directory / entry.name)
    files = PartitionFiles()
    for file in marked[Mark.NONE]:
        files.of[file.suffix].add(file.offset)
    settle_swaps(directory, disk, files.of, marked[Mark.CLEANED], marked[Mark.SWAP])
    _finish_deletes(directory, name, disk, set_aside, files, marked[Mark.DELETED], compacted=compacted)
    _remove_orphans(directory, disk, files)
    return files


def _finish_deletes(
    directory: Path,
    name: TopicPartition,
    disk: Disk,
    set_aside: SetAside,
    files: PartitionFiles,
    deleted: list[SegmentFile],
    *,
    compacted: bool,
) -> None:
    """Files marked as deleted go. Segments below a hole that a half-done removal left are set aside: removal goes from
    the oldest on, and readers would pass over a hole in silence. Compaction leaves such marks without a hole."""
    start = 0
    if not compacted:
        for offset in {file.offset for file in deleted if file.suffix is Suffix.LOG} - files.logs:
            start = max(start, _after_hole(directory, files.logs, offset))
    for base in sorted(base for base in files.logs if base < start):
        for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX, Suffix.SNAPSHOT):
            if base in files.of[suffix]:
                set_aside.move(name, directory / segment_file(base, suffix))
                files.of[suffix].discard(base)
    for file in deleted:
        disk.unlink(directory / segment_file(file.offset, file.suffix, Mark.DELETED))


def _after_hole(directory: Path, bases: set[int], offset: int) -> int:
    """Base of the first segment above *offset* when the one below it does not reach so far; else 0."""
    below = max((base for base in bases if base < offset), default=None)
    above = min((base for base in bases if base > offset), default=None)
    if below is None or above is None:
        return 0
    try:
        end = end_of(directory / segment_file(below, Suffix.LOG), below)
    except CorruptFile:
        return 0  # recovery will see to it
    return above if end < above else 0


def _remove_orphans(directory: Path, disk: Disk, files: PartitionFiles) -> None:
    for suffix in (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX):
        for base in files.of[suffix] - files.logs:
            disk.unlink(directory / segment_file(base, suffix))
        files.of[suffix] &= files.logs
