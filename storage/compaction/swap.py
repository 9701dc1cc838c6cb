"""Putting a cleaned segment in the place of those it was made of, in steps of which any prefix can be finished.

1. `.cleaned` becomes `.swap`, the log last: from then on a start finishes the swap (leftovers.py), before it undoes it.
2. The old files get `.deleted` names; readers keep their descriptors.
3. `.swap` gets the final name, the log last.

Renames within a folder last in the order in which they were made (as `trash.py` assumes), so no step waits for the
disk; whoever notes that the range is clean must fsync the folder first.
"""

from collections.abc import Sequence
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import DiskFull
from tierd.storage.compaction.cleaned_segment import drop_files
from tierd.storage.compaction.job import CleanedGroup
from tierd.storage.context import LogContext
from tierd.storage.errors import StorageFailed
from tierd.storage.names import Mark, Suffix, segment_file
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments
from tierd.storage.snapshots import Snapshots

_LOG_LAST = (Suffix.TXN_INDEX, Suffix.TIME_INDEX, Suffix.INDEX, Suffix.LOG)


def sources_of(segments: Segments, group: CleanedGroup) -> int | None:
    """Number of the first of the closed segments that *group* was made of; None unless all are there, side by side."""
    first = segments.find(group.base)
    found = [segment.base for segment in segments.closed[first : first + len(group.bases)]]
    return first if tuple(found) == group.bases else None


def swap_in(context: LogContext, segments: Segments, snapshots: Snapshots, group: CleanedGroup, delay_ms: int) -> bool:
    """False, and the cleaned files are gone, when one of the old segments is not there any more.

    Loop thread only. Raises DiskFull or OSError when the swap could not begin (nothing has changed then), and
    StorageFailed when it could not be finished: the log must not be written to.
    """
    disk, directory = context.disk, segments.first.directory
    first = sources_of(segments, group)
    if first is None:
        drop_files(disk, directory, group.base, Mark.CLEANED)
        return False
    try:
        _rename(disk, directory, group, Mark.CLEANED, Mark.SWAP)
    except (DiskFull, OSError):
        for mark in (Mark.SWAP, Mark.CLEANED):  # in this order: without `.cleaned` a start would finish the swap
            drop_files(disk, directory, group.base, mark)
        raise
    try:
        _replace(context, segments, snapshots, group, first, delay_ms)
    except (DiskFull, OSError) as error:
        raise StorageFailed(f"{directory}: a cleaned segment is only half swapped in: {error}") from error
    return True


def _replace(
    context: LogContext, segments: Segments, snapshots: Snapshots, group: CleanedGroup, first: int, delay_ms: int
) -> None:
    directory = segments.first.directory
    fresh = Segment(directory, group.base, context.fds, group.size_bytes, group.append_ms)
    fresh.has_txn_index = group.has_txn_index
    old = segments.replace(first, len(group.bases), fresh)
    for segment in old:
        context.indexes.forget(segment)
    _throw(context, snapshots, old, delay_ms)
    _rename(context.disk, directory, group, Mark.SWAP, Mark.NONE)


def _throw(context: LogContext, snapshots: Snapshots, old: Sequence[Segment], delay_ms: int) -> None:
    """The first segment's snapshot stays: it says what lies below the base, which is still a segment's."""
    for segment in old[1:]:
        snapshots.forget(segment.base)
    context.trash.throw(old[1:], delay_ms)
    kept = old[0]
    context.trash.throw_files([kept.path(suffix) for suffix in _LOG_LAST], delay_ms)
    kept.handle.drop()


def _rename(disk: Disk, directory: Path, group: CleanedGroup, old: Mark, new: Mark) -> None:
    for suffix in _LOG_LAST:
        if suffix is not Suffix.TXN_INDEX or group.has_txn_index:
            source, target = (directory / segment_file(group.base, suffix, mark) for mark in (old, new))
            disk.replace(source, target)
