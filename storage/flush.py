"""Making a log durable: fsync in a thread, then the recovery point moves on the loop (ARCHITECTURE.md, step 3)."""

import errno
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tierd.base.disk import Disk
from tierd.base.errors import DiskFull, TierdError
from tierd.config.topic import TopicSettings
from tierd.storage.errors import FlushPutOff, StorageFailed
from tierd.storage.names import PARTITION_METADATA, Suffix, snapshot_file
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments

if TYPE_CHECKING:
    from tierd.storage.log import Log

log = logging.getLogger(__name__)

_THREADS = 4
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""Only opening a file gives these: no fsync has been tried then."""


@dataclass(slots=True)
class FlushJob:
    """Everything below offset *upto* is on the disk once `run` has returned."""

    upto: int
    sealed: int
    """Closed segments below this offset are durable with their indexes and snapshots."""
    directory: Path
    _disk: Disk = field(repr=False)
    _files: tuple[Path, ...] = field(repr=False)
    names: bool
    """Names in the directory may not be durable yet."""
    parent: Path | None = field(repr=False)
    """Set when the name of the partition's directory itself may not be durable yet."""
    stable: int | None = None
    """Last stable offset once all of it is on the disk; None when the job leaves some of the log out."""
    also: Callable[[], None] | None = field(default=None, repr=False)
    """To be done in the same thread; raises nothing."""
    failed: bool = False
    put_off: bool = False
    """Not done, for want of a descriptor; a later job has the same to do."""

    def run(self) -> None:
        """Call in a thread, once. Raises StorageFailed: after a failed fsync the kernel has forgotten the bytes, so
        trying again would prove nothing. FlushPutOff when a file could not be opened, for want of a descriptor."""
        if self.also is not None:
            self.also()
        try:
            for path in self._files:
                self._fsync(path, self._disk.fsync_file)
            if self.names:
                self._fsync(self.directory, self._disk.fsync_dir)
            if self.parent is not None:
                self._disk.fsync_dir(self.parent)
        except (OSError, DiskFull) as error:
            if isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR:
                self.put_off = True
                raise FlushPutOff(f"{self.directory}: flush is put off: {error}") from error
            self.failed = True
            raise StorageFailed(f"{self.directory}: flush failed: {error}; restart to recover from the disk") from error

    def _fsync(self, path: Path, fsync: Callable[[Path], None]) -> None:
        try:
            fsync(path)
        except FileNotFoundError:
            return  # the segment has no such file, or it or the partition was removed meanwhile


class Durability:
    """How far one log is on the disk. Loop thread only."""

    __slots__ = ("_named", "_parent", "_remembered", "flushed_ms", "point", "sealed")

    def __init__(self, point: int, sealed: int, now_ms: int, parent: Path | None) -> None:
        self.point = point
        """The recovery point: all below it is on the disk."""
        self.sealed = sealed
        """Closed segments below it are on the disk with all their files."""
        self._parent = parent
        self._remembered = 0
        """Base of a segment whose snapshot is on the disk, though it may be above `sealed`."""
        self._named = False
        """Whether the active segment's name is durable."""
        self.flushed_ms = now_ms
        """Monotonic time of the last flush."""

    def job(
        self, segments: Segments, disk: Disk, *, active_to: int | None = None, closing: bool = False
    ) -> FlushJob | None:
        """What to flush: closed segments that are not; with *active_to*, the log end, the active batches; and when
        *closing* all files of the active segment. None when there is nothing."""
        files: list[Path] = []
        first = segments.first
        if first.base > self.sealed:  # closed segments went before they were flushed: this remembers their producers
            files.append(first.directory / snapshot_file(first.base))
        for i in range(segments.find(self.sealed), len(segments) - 1):
            next_base = segments[i + 1].base
            if next_base > self.sealed:
                files += _files(segments[i], next_base)
        active = segments.active
        names = bool(files) or closing or not self._named
        upto = max(self.point, active.base)
        if active_to is not None and active_to > upto:
            files += _files(active, active_to) if closing else [active.path(Suffix.LOG)]
            upto = active_to
        if not files:
            return None
        if self._parent is not None:
            files.append(active.directory / PARTITION_METADATA)
        return FlushJob(upto, active.base, active.directory, disk, tuple(files), names, self._parent)

    def memory_below(self, segments: Segments, disk: Disk, offset: int) -> Callable[[], None] | None:
        """See `Log.memory_below`."""
        base = segments[segments.find(offset)].base
        if base <= max(self.sealed, self._remembered, segments.first.base):
            return None
        path = segments.first.directory / snapshot_file(base)

        def remember() -> None:
            try:
                disk.fsync_file(path)
            except FileNotFoundError:
                return  # the log has moved, and all of it was durable then, or nobody remembers anything
            disk.fsync_dir(path.parent)
            self._remembered = base

        return remember

    def restart(self, offset: int) -> None:
        """The log is one empty segment at *offset*, whose files are durable."""
        self.point = self.sealed = offset
        self._named = True

    def rehome(self, log_end: int, active_base: int) -> None:
        """The log lies in another directory now, and all of it is durable there."""
        self.point, self.sealed = log_end, active_base
        self._named, self._parent = True, None

    def done(self, job: FlushJob, now_ms: int) -> None:
        """*job* has run and not failed."""
        self.point = max(self.point, job.upto)
        if job.sealed >= self.sealed:
            self.sealed = job.sealed
            self._named = self._named or job.names
        self.flushed_ms = now_ms
        if job.parent is not None:
            self._parent = None


def flush_due(settings: TopicSettings, behind: int, quiet_ms: int) -> bool:
    """Whether the settings ask for a flush of *behind* records, *quiet_ms* after the last one."""
    if not behind:
        return False
    messages, ms = settings.flush_messages, settings.flush_ms
    return (
        settings.visible_when_durable
        or (messages is not None and behind >= messages)
        or (ms is not None and quiet_ms >= ms)
    )


def _files(segment: Segment, end: int) -> list[Path]:
    suffixes = [Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX]
    if segment.has_txn_index:
        suffixes.append(Suffix.TXN_INDEX)
    return [*map(segment.path, suffixes), segment.directory / snapshot_file(end)]


def flush_all(logs: Iterable["Log"]) -> bool:
    """Close active segments and make all of each log durable; whether every log is on the disk now."""
    whole = True
    jobs: list[tuple[Log, FlushJob]] = []
    for found in logs:
        try:
            job = found.prepare_close()
        except (TierdError, OSError) as error:
            log.error("log could not be closed cleanly: %s", error, extra={"partition": str(found.name)})
            whole = False
            continue
        whole = whole and found.failed is None
        if job is not None:
            jobs.append((found, job))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="flush") as threads:
        whole = all(list(threads.map(_run, [job for _, job in jobs]))) and whole
    for found, job in jobs:
        found.flushed(job)
    return whole


def _run(job: FlushJob) -> bool:
    try:
        job.run()
    except TierdError as error:
        log.error("%s", error)
        return False
    return True
