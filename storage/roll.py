"""When the active segment gives way to a new one, and how (ENGINE.md, "Roll")."""

from tierd.base.disk import Disk
from tierd.base.errors import DiskFull
from tierd.config.topic import TopicSettings
from tierd.storage.batch import BatchHeader
from tierd.storage.fdcache import FdCache
from tierd.storage.index import MAX_RELATIVE
from tierd.storage.indexcache import IndexCache
from tierd.storage.names import Suffix
from tierd.storage.producers import Producers
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments
from tierd.storage.snapshots import Snapshots


def must_roll(active: Segment, header: BatchHeader, offset: int, settings: TopicSettings) -> bool:
    """Whether the batch *header*, which will begin at *offset*, needs a new segment."""
    builder = active.builder
    assert builder is not None
    if not active.size_bytes:
        return False
    if active.size_bytes + header.size_bytes > settings.roll_bytes:
        return True
    segment_ms, first_ms = settings.roll_ms, builder.first_timestamp_ms
    if (
        segment_ms is not None
        and first_ms is not None
        and first_ms >= 0
        and header.max_timestamp_ms - first_ms > segment_ms - settings.segment_jitter_ms
    ):
        return True
    return offset + header.last_offset_delta - active.base > MAX_RELATIVE or builder.full(settings.segment_index_bytes)


def new_segment(active: Segment, base: int, fds: FdCache, disk: Disk, settings: TopicSettings) -> Segment:
    """The files of the next segment; none are left behind when there is no room. Raises DiskFull, OSError."""
    segment = Segment(active.directory, base, fds)
    segment.append_ms = active.append_ms
    try:
        segment.create_files(disk, settings.segment_index_bytes, settings.roll_bytes if settings.preallocate else None)
    except (DiskFull, OSError):
        remove_files(segment, disk)
        raise
    return segment


def roll_segments(
    segments: Segments,
    base: int,
    fds: FdCache,
    disk: Disk,
    indexes: IndexCache,
    snapshots: Snapshots,
    producers: Producers,
    settings: TopicSettings,
) -> None:
    """Begin a segment at *base*. The new files and the snapshot come first: whatever fails, the old segment stays whole
    and active. Raises DiskFull, OSError."""
    active = segments.active
    segment = new_segment(active, base, fds, disk, settings)
    try:
        snapshots.write(base, producers)
        active.seal(disk)
    except (DiskFull, OSError):
        remove_files(segment, disk)
        raise
    aborted = active.aborted
    active.close()
    if active.loaded is not None:
        indexes.keep(active, active.loaded)
    if aborted is not None and active.has_txn_index:
        indexes.keep_aborted(active, aborted)
    segments.append(segment)


def remove_files(segment: Segment, disk: Disk) -> None:
    """Undo `create_files`, as far as it came."""
    segment.handle.drop()
    for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX):
        try:
            disk.unlink(segment.path(suffix))
        except FileNotFoundError:
            continue
