"""Making the log durable: fsync in a thread, then the recovery point moves on the loop (ARCHITECTURE.md, step 3)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import DiskFull
from tierd.config.topic import TopicSettings
from tierd.storage.errors import StorageFailed
from tierd.storage.names import PARTITION_METADATA, Suffix, snapshot_file
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments


@dataclass(slots=True)
class FlushJob:
    """Everything below offset *upto* is on the disk once `run` has returned."""

    upto: int
    sealed: int
    """Closed segments below this offset are durable with their indexes and snapshots."""
    _disk: Disk = field(repr=False)
    _files: tuple[Path, ...] = field(repr=False)
    _directory: Path = field(repr=False)
    parent: Path | None = field(repr=False)
    """Set when the name of the partition's directory itself may not be durable yet."""
    failed: bool = False

    def run(self) -> None:
        """Call in a thread, once. Raises StorageFailed: after a failed fsync the kernel has forgotten the bytes, so
        trying again would prove nothing."""
        try:
            for path in self._files:
                self._fsync(path, self._disk.fsync_file)
            self._fsync(self._directory, self._disk.fsync_dir)
            if self.parent is not None:
                self._disk.fsync_dir(self.parent)
        except (OSError, DiskFull) as error:
            self.failed = True
            raise StorageFailed(
                f"{self._directory}: flush failed: {error}; restart to recover from the disk"
            ) from error

    def _fsync(self, path: Path, fsync: Callable[[Path], None]) -> None:
        try:
            fsync(path)
        except FileNotFoundError:
            return  # the segment has no such file, or it or the partition was removed meanwhile


def flush_job(
    segments: Segments,
    recovery_point: int,
    sealed: int,
    disk: Disk,
    parent: Path | None,
    *,
    active_to: int | None = None,
    closing: bool = False,
) -> FlushJob | None:
    """What to flush: closed segments that end above *sealed*; with *active_to*, the log end, the active batches; and
    when *closing* all files of the active segment."""
    files: list[Path] = []
    for segment, next_base in segments.ranges():
        if next_base > sealed:
            files += _files(segment, next_base)
    active = segments.active
    upto = max(recovery_point, active.base)
    if active_to is not None and active_to > upto:
        files += _files(active, active_to) if closing else [active.path(Suffix.LOG)]
        upto = active_to
    if not files:
        return None
    if parent is not None:
        files.append(active.directory / PARTITION_METADATA)
    return FlushJob(upto, active.base, disk, tuple(files), active.directory, parent)


def flush_due(settings: TopicSettings, behind: int, quiet_ms: int) -> bool:
    """Whether `flush.messages` or `flush.ms` asks for a flush of *behind* records, *quiet_ms* after the last one."""
    if not behind:
        return False
    messages, ms = settings.flush_messages, settings.flush_ms
    return (messages is not None and behind >= messages) or (ms is not None and quiet_ms >= ms)


def _files(segment: Segment, end: int) -> list[Path]:
    suffixes = [Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX]
    if segment.has_txn_index:
        suffixes.append(Suffix.TXN_INDEX)
    return [*map(segment.path, suffixes), segment.directory / snapshot_file(end)]
