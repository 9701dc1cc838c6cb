"""A log's side of its compaction: plans, what a cleaning must know, taking its segments in. Loop thread only."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tierd.base.errors import CorruptFile
from tierd.storage.compaction.batches import LastBatch
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport, Source
from tierd.storage.compaction.plan import CleanPlan, cleanable, plan_clean
from tierd.storage.compaction.swap import swap_in
from tierd.storage.compaction.transactions import UNNAMED
from tierd.storage.context import LogContext
from tierd.storage.errors import StorageFailed
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.producers import Producers
from tierd.storage.segments import Segments
from tierd.storage.snapshots import Snapshots
from tierd.storage.txn_rebuild import find_aborted
from tierd.storage.txnindex import AbortedEntry
from tierd.storage.view import SegmentView

if TYPE_CHECKING:
    from tierd.storage.log import Log


class Compaction:
    """One for each log. A cleaning is `plan`, `job`, then `swap_in` for each group and `finished`."""

    def __init__(
        self,
        log: "Log",
        segments: Segments,
        snapshots: Snapshots,
        context: LogContext,
        producers: Callable[[], Producers],
    ) -> None:
        self._log = log
        self._segments = segments
        self._snapshots = snapshots
        self._context = context
        self._producers = producers
        self.cleaned_to: int | None = None
        """Below this offset all is clean; None before the first cleaning. What `cleaner-offset-checkpoint` keeps."""
        self.running = False
        """Closed segments may be replaced: nobody may begin to copy one."""
        self.finished_ms: int | None = None
        """Wall clock of the last cleaning of this run."""
        self.problem: str | None = None
        """Why the last try failed; None once one has succeeded."""

    def rehomed(self, context: LogContext) -> "Compaction":
        """The same in another data directory; none is running."""
        moved = Compaction(self._log, self._segments, self._snapshots, context, self._producers)
        moved.cleaned_to, moved.finished_ms, moved.problem = self.cleaned_to, self.finished_ms, self.problem
        return moved

    def know(self, cleaned_to: int | None) -> None:
        """What the checkpoint says. Recovery may have cut the log below it."""
        self.cleaned_to = None if cleaned_to is None else min(cleaned_to, self._log.log_end)

    def plan(self, copied_to: int | None, now_ms: int) -> CleanPlan | None:
        """What to clean now. Raises CorruptFile, OSError."""
        return plan_clean(self._log.view(), copied_to, self._first_timestamp, now_ms)

    def dirty(self, copied_to: int | None) -> CleanPlan | None:
        """What could be cleaned now, worth it or not; None when nothing is dirty. Raises CorruptFile, OSError."""
        return cleanable(self._log.view(), copied_to, self._context.clock.now_ms())

    def job(
        self, plan: CleanPlan, *, now_ms: int, keep_deletes: bool, memory_bytes: int, reserve_bytes: int
    ) -> CleanJob:
        """All that the cleaner must know. Raises CorruptFile, OSError."""
        settings = self._log.settings
        sources = tuple(
            Source(base=segment.base, next_base=next_base, size_bytes=segment.size_bytes, append_ms=segment.append_ms)
            for segment, next_base in self._segments.ranges()
            if plan.start <= segment.base < plan.stop
        )
        return CleanJob(
            directory=self._log.directory,
            sources=sources,
            first_dirty=plan.first_dirty,
            stop=plan.stop,
            now_ms=now_ms,
            delete_retention_ms=settings.delete_retention_ms,
            segment_bytes=settings.roll_bytes,
            index_bytes=settings.segment_index_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            keep_deletes=keep_deletes,
            aborted=self._aborted(plan.start, plan.stop),
            last_batches=self._last_batches(),
            memory_bytes=memory_bytes,
            reserve_bytes=reserve_bytes,
        )

    def swap_in(self, group: CleanedGroup) -> bool:
        """Readers see the cleaned segment from now on. False when an old one went meanwhile: then give the rest up,
        for a tombstone must not go before what it deletes.

        Raises DiskFull and OSError (the same holds), and StorageFailed: a restart finishes it.
        """
        log = self._log
        try:
            return swap_in(self._context, self._segments, self._snapshots, group, log.settings.file_delete_delay_ms)
        except StorageFailed as error:
            log.failed = str(error)
            raise

    def flush(self) -> None:
        """Make the swaps so far durable; in any thread. Raises OSError."""
        self._context.disk.fsync_dir(self._log.directory)

    def finished(self, report: CleanReport) -> None:
        """All swaps of a cleaning are durable."""
        self.cleaned_to = max(self.cleaned_to or 0, report.cleaned_to)
        self.finished_ms, self.problem = self._context.clock.now_ms(), None

    def unindexed(self, error: CorruptFile) -> Callable[[], bool] | None:
        """What finds out, in any thread, whether the cleaning met *error* only since a segment's `.txnindex` is missing
        altogether; None when it did not. It raises CorruptFile, OSError."""
        segment = self._segments[self._segments.find(error.position)]
        if error.reason != UNNAMED or segment.has_txn_index:
            return None
        return lambda: bool(find_aborted(segment.directory, segment.base, segment.size_bytes))

    def expect_index(self, error: CorruptFile) -> None:
        """There must be one: it is made again on its next use."""
        self._segments[self._segments.find(error.position)].has_txn_index = True

    def _aborted(self, start: int, stop: int) -> tuple[AbortedEntry, ...]:
        """Aborted transactions that reach into [start, stop), wherever their markers are."""
        found: list[AbortedEntry] = []
        for at in range(self._segments.find(start), len(self._segments)):
            segment = self._segments[at]
            if not segment.has_txn_index:
                continue
            for entry in self._context.indexes.aborted(segment, self._segments.next_base(at)).since(start):
                if entry.first_offset < stop:
                    found.append(entry)
                if entry.last_stable >= stop:
                    return tuple(found)
        return tuple(found)

    def _last_batches(self) -> tuple[LastBatch, ...]:
        return tuple(
            LastBatch(one.producer_id, one.batches[-1].last_offset if one.batches else None, one.epoch)
            for one in self._producers().producers
        )

    def _first_timestamp(self, view: SegmentView) -> int | None:
        segment = self._segments[self._segments.find(view.base)]
        if not segment.size_bytes:
            return None
        fd = segment.handle.acquire()
        try:
            return parse_header(os.pread(fd, HEADER_BYTES, 0), 0, segment.where).max_timestamp_ms
        finally:
            segment.handle.release()
