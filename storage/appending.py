"""The file work of a log's append path, and beginning anew above the bucket's end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierd.base.errors import DiskFull
from tierd.base.ids import TopicPartition
from tierd.config.topic import TopicSettings
from tierd.storage.batch import BatchHeader, clear_log_append_bit, set_log_append_time
from tierd.storage.context import LogContext
from tierd.storage.errors import StorageFailed
from tierd.storage.header import LOG_APPEND_TIME
from tierd.storage.names import Suffix
from tierd.storage.producers import Producers
from tierd.storage.roll import new_segment
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments
from tierd.storage.snapshots import Snapshots

_MADE_EMPTY = frozenset({Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX})


@dataclass(slots=True)
class Appended:
    """Where a batch lies: offsets [first_offset, next_offset)."""

    first_offset: int
    next_offset: int
    log_append_time_ms: int | None
    """The broker's time where the topic uses it, and of a duplicate the stored batch's largest timestamp."""
    duplicate: bool = False


class SeedFiles(Protocol):
    """Files of the bucket's last segment, with which a log goes on above it."""

    @property
    def snapshot(self) -> bytes: ...

    @property
    def leader_epochs(self) -> bytes: ...


def stamp(batch: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int) -> int | None:
    """Put the broker's time in where the topic wants it, and take back a bit that is the broker's to set."""
    if settings.message_timestamp_type == "LogAppendTime":
        set_log_append_time(batch, 0, now_ms)
        header.max_timestamp_ms = now_ms
        return now_ms
    if header.attributes & LOG_APPEND_TIME:
        clear_log_append_bit(batch, 0)
    return None


def write_whole(active: Segment, batch: memoryview) -> None:
    """Write at the segment's end, or leave it as it was.

    Raises DiskFull, and StorageFailed when it is unknown what lies on the disk now.
    """
    writer = active.handle.writer()
    try:
        writer.pwrite(batch, active.size_bytes)
    except (DiskFull, OSError) as error:
        try:
            writer.truncate(active.size_bytes)
        except (DiskFull, OSError) as second:
            raise StorageFailed(f"{active.where}: a half-written batch could not be cut off: {second}") from error
        if isinstance(error, DiskFull):
            raise
        raise StorageFailed(f"{active.where}: a write failed: {error}") from error


def set_aside(
    context: LogContext, name: TopicPartition, segments: Segments, snapshots: Snapshots, *, newest_first: bool = False
) -> None:
    """Move every file that is still there away, oldest first or newest first: a crash in between must not leave a
    hole among what is there. Repeating it is fine. A log without a record, as a start makes it, just goes, with its
    indexes: nothing is in it."""
    for segment in reversed(list(segments)) if newest_first else segments:
        context.indexes.forget(segment)
        segment.handle.drop()
        blank = not segment.size_bytes and _is_blank(context, segment.handle.path)
        for path in segment.files():
            if not path.exists():
                continue
            if blank and path.suffix in _MADE_EMPTY:
                context.disk.unlink(path)
            else:
                context.set_aside.move(name, path)
            snapshots.forget(segment.base)


def _is_blank(context: LogContext, path: Path) -> bool:
    return path.exists() and not context.set_aside.holds(path)


def restart_empty(
    context: LogContext,
    name: TopicPartition,
    segments: Segments,
    snapshots: Snapshots,
    producers: Producers,
    offset: int,
    settings: TopicSettings,
) -> None:
    """Go on with one empty segment at *offset*, durable when this returns. The old ones are set aside first."""
    set_aside(context, name, segments, snapshots)
    snapshots.sweep(set())
    fresh = new_segment(segments.active, offset, context.fds, context.disk, settings)
    snapshots.write(offset, producers)
    context.disk.fsync_file(snapshots.path(offset))
    context.disk.fsync_dir(fresh.directory)
    segments.restart(fresh)
