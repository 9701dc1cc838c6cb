"""One partition's local log: appends and rolls, what becomes durable, what leaves.

The loop thread owns a Log; what it hands to threads (flush jobs) touches none of its state.
"""

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage.appending import Appended, SeedFiles, restart_empty, set_aside, stamp, write_whole
from tierd.storage.batch import BatchHeader, ControlType, encode_control_batch, patch
from tierd.storage.compaction.of_log import Compaction
from tierd.storage.context import LogContext
from tierd.storage.errors import ReadOnly, StorageFailed, TransactionRefused
from tierd.storage.flush import FlushJob, flush_due
from tierd.storage.gaps import Gap
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.healing import memory_of, recall
from tierd.storage.loader import LoadedLog
from tierd.storage.log_read import LogReader
from tierd.storage.log_views import partition_view
from tierd.storage.look import Looking, look_at
from tierd.storage.readable import ReadableLog
from tierd.storage.replay import aborted_entry, take_in
from tierd.storage.roll import must_roll, roll_segments
from tierd.storage.segment import Segment
from tierd.storage.timelookup import TimeLookup
from tierd.storage.validate import check_batch
from tierd.storage.view import PartitionView

log = logging.getLogger(__name__)


class Log(ReadableLog):
    """See the module."""

    def __init__(
        self, context: LogContext, name: TopicPartition, topic_id: Uuid, directory: Path, settings: TopicSettings,
        loaded: LoadedLog,
    ) -> None:  # fmt: skip
        super().__init__(context, name, topic_id, directory, settings, loaded)
        self._where = str(name)
        self._snapshots = loaded.snapshots
        self._listed = loaded.listed
        self.compaction = Compaction(self, self._segments, self._snapshots, context, lambda: self._producers)
        self.failed: str | None = None
        """Why the log takes no more appends, after a write or flush whose outcome is unknown."""
        self.read_only: str | None = None
        """Why it is there for reading alone; None: it is not."""
        self._begun = False

    # -- beginning a run --

    def recall(self, seed: SeedFiles, at: int) -> None:
        """Let *seed*, which tells of all batches below *at*, stand for what the files have forgotten. Before `begin`;
        in any thread, while nothing else uses the log. Raises CorruptFile, DiskFull, OSError."""
        self._producers = recall(self._context, self.name, self._segments, self._snapshots, self._lineage, seed, at)
        self._find_last_stable()
        self._show()
        self.forgetful = False

    def judge_gaps(self, start: int, stop: int, asked: Collection[Gap] | None = None) -> tuple[Gap, ...]:
        """Leave lost offsets within [start, stop), what the bucket has, to the bucket: local start moves behind them.

        Gives these. What is left is lost for good; all of it only as far as it was *asked* for (None: all that is
        found). Before `begin`, and at once when more are found (`on_loss`): later the bucket may have what was left of
        a segment that was cut. Raises DiskFull, OSError.
        """
        asked = self._gaps.found if asked is None else asked
        within = self._gaps.found_within(start, stop) if start <= self.local_start else ()
        healed = tuple(gap for gap in within if gap in asked)
        if healed and healed[-1][1] > self.local_start:
            self._keep_start()
            self._drop_below(healed[-1][1])
        self._gaps.judge(asked, healed)
        return healed

    def begin(self, epoch: int, first_append: int, seed: SeedFiles | None = None, *, over: bool = False) -> None:
        """Enter the leader epoch of this run; needed before the first append, durable when it returns.

        *first_append* is where the bucket's copy ends: when the disk has fallen behind, the log restarts empty there,
        with *seed* as its memory; the old local segments are set aside. With *over* also when the disk has more: what
        it has is another history. Raises EpochRefused, DiskFull, OSError.
        """
        first_append = max(first_append, self.log_start)
        if over or first_append > self.log_end:
            self._restart_at(first_append, seed, over=over)
        self._drop_below(self.log_start)  # what a cut has brought back
        self._lineage.enter(epoch, self.log_end)
        self.leader_epoch = epoch
        self._begun = True

    def _restart_at(self, offset: int, seed: SeedFiles | None, *, over: bool) -> None:
        beyond = offset == self.log_start > self.log_end  # Kafka deletes all segments then
        log.log(
            logging.WARNING if self.log_end else logging.INFO,  # at 0 there was nothing to begin anew
            "log start lies beyond the log end: the log begins anew there"
            if beyond and not over and seed is None
            else "the log begins anew behind the bucket's",
            extra={"partition": self._where, "end": self.log_end, "to": offset},
        )
        self._keep_start()
        if over:  # until nothing is left the epochs of this history stay: a start after a crash must find it out again
            set_aside(self._context, self.name, self._segments, self._snapshots, newest_first=True)
            self.high_watermark = self.last_stable = self.log_start
        if seed is not None:
            self._producers = memory_of(seed, self._lineage, self._context.clock.now_ms())
        restart_empty(
            self._context, self.name, self._segments, self._snapshots, self._producers, offset, self._settings
        )
        self.log_end = self.local_start = offset
        self._durable.restart(offset)
        self._find_last_stable()
        self._show()

    # -- appending --

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        internal: bool = False,
        in_transaction: bool = False,
        looking: Looking = look_at,
    ) -> Appended:
        """Write the one batch in *records* (patched in place) at the log end; visible to readers at once, or once it is
        on the disk where the settings say so.

        *internal* batches come from tierd itself: their sequences mean nothing. *in_transaction*: the batch may belong
        to a transaction, for its coordinator knows that it writes here. *looking* looks at the records where that is
        needed. Raises the AppendRefused family, DiskFull, StorageFailed, and what *looking* raises; after any of them
        nothing of the batch is in the log.
        """
        settings = self._settings
        header = check_batch(records, settings, now_ms, internal=internal, where=self._where, looking=looking)
        if internal:
            self._producers.check_epoch(header)
        elif header.attributes & TRANSACTIONAL and not (in_transaction and header.producer_id >= 0):
            raise TransactionRefused(f"producer {header.producer_id} has no transaction that includes this partition")
        elif header.producer_id >= 0:
            known = self._producers.check(header)
            if known is not None:
                return Appended(known.first_offset, known.last_offset + 1, known.timestamp_ms, True)
        self._ready(header.size_bytes, internal=internal)
        batch = records if records.nbytes == header.size_bytes else records[: header.size_bytes]
        log_append_time_ms = stamp(batch, header, settings, now_ms)
        base = self.log_end
        if must_roll(self._segments.active, header, base, settings):
            self.roll()
        active = self._segments.active
        patch(batch, 0, base, self.leader_epoch)
        header.base_offset = base
        self._write(active, batch)
        active.note(header, now_ms, settings.index_interval_bytes)
        self.log_end = header.next_offset
        if header.producer_id >= 0:
            self._learn(header, batch, active, now_ms)
        elif self._producers.first_open is None:
            self._stable = self.log_end
        if not self._gated:
            self.high_watermark = self.log_end
            self.last_stable = self._stable
        return Appended(base, self.log_end, log_append_time_ms)

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        *,
        commit: bool,
        now_ms: int,
        raised: bool = False,
        decided: bool = False,
    ) -> bool:
        """Append the marker that ends the producer's transaction; False when it is there already.

        *raised*: the end has raised the epoch, so batches of the old one are refused from now on. *decided*: the only
        coordinator there is says so; where a later epoch is known, from a tool's marker, that one is taken. Raises
        ProducerFenced, CoordinatorFenced, DiskFull and StorageFailed.
        """
        if decided:
            coordinator_epoch = max(coordinator_epoch, self._producers.coordinator_epoch(producer_id))
        if not self._producers.check_marker(producer_id, epoch, coordinator_epoch, raised=raised):
            return False
        marker = encode_control_batch(
            0,
            ControlType.COMMIT if commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=now_ms,
            coordinator_epoch=coordinator_epoch,
        )
        self.append(memoryview(bytearray(marker)), now_ms=now_ms, internal=True)
        return True

    def _ready(self, size_bytes: int, *, internal: bool) -> None:
        if self.failed is not None:
            raise StorageFailed(f"{self.failed}; restart to recover from the disk")
        if self.read_only is not None:
            raise ReadOnly(self.read_only)
        if not self._begun:
            raise StorageFailed(
                f"{self.directory}: no leader epoch has begun; if the bucket does not answer, that is why"
            )
        self._context.reserve.take(size_bytes, internal=internal)

    def _write(self, active: Segment, batch: memoryview) -> None:
        try:
            write_whole(active, batch)
        except StorageFailed as error:
            self.failed = str(error)
            raise

    def _learn(self, header: BatchHeader, batch: memoryview, active: Segment, now_ms: int) -> None:
        entry = aborted_entry(take_in(self._producers, header, batch, now_ms))
        if entry is not None:
            active.note_aborted(entry)
        self._find_last_stable()

    def roll(self) -> bool:
        """Close the active segment and open the next; False when it is empty. Readers keep their descriptors.

        Raises DiskFull, OSError: then the old one is still active.
        """
        if not self._segments.active.size_bytes:
            return False
        context = self._context
        roll_segments(
            self._segments, self.log_end, context.fds, context.disk, context.indexes, self._snapshots,
            self._producers, self._settings,
        )  # fmt: skip
        return True

    def maybe_roll(self, now_ms: int) -> bool:
        """Housekeeping: roll a segment that has been written to for `segment.ms`."""
        first_ms, segment_ms = self._segments.active.first_append_ms, self._settings.roll_ms
        if first_ms is None or segment_ms is None or now_ms - first_ms <= segment_ms:
            return False
        return self.roll()

    def expire_producers(self, now_ms: int, after_ms: int) -> int:
        """Housekeeping: forget producers silent for *after_ms* without an open transaction; how many."""
        return self._producers.expire(now_ms, after_ms)

    def view(self) -> PartitionView:
        """The whole state, as the tierer plans with it. Raises OSError."""
        return partition_view(self, self._segments, self.pinned_by)

    # -- durability --

    def unflushed(self, *, active: bool = False) -> FlushJob | None:
        """What to fsync so that every closed segment (with *active* everything) is durable; None when it is already."""
        if self.failed is not None:
            return None
        job = self._durable.job(self._segments, self._context.disk, active_to=self.log_end if active else None)
        if job is not None and job.upto == self.log_end:
            job.stable = self._stable
        if job is not None and job.sealed > self._durable.sealed:
            job.also = self._listed.update(self._segments.closed)
        return job

    def flush_due(self, now_monotonic_ms: int) -> bool:
        """Whether the settings ask for `unflushed(active=True)`."""
        behind = self.log_end - self.recovery_point
        return flush_due(self._settings, behind, now_monotonic_ms - self._durable.flushed_ms)

    def flushed(self, job: FlushJob) -> None:
        """*job* has run: move the recovery point, or take no more appends when it failed.

        One that was put off changes nothing.
        """
        if job.directory != self.directory:
            return  # the log has moved meanwhile, and all of it was durable then
        if job.put_off:
            return
        if job.failed:
            self.failed = "an fsync failed, what is on the disk is unknown"
            return
        self._durable.done(job, self._context.clock.monotonic_ms())
        if self._gated:
            self.high_watermark = max(self.high_watermark, min(job.upto, self.log_end))
            if job.stable is not None:
                self.last_stable = max(self.last_stable, min(job.stable, self.high_watermark))

    # -- what leaves --

    def move_log_start(self, offset: int) -> int:
        """Move log start up to *offset*, durable before any file goes, and drop the segments below; log start now."""
        offset = min(offset, self.log_end)
        if offset > self.log_start:
            self._remember_below(offset)
            self._context.persist_start(self.name, offset)  # may find the disk full: then nothing has moved
            self.start_moved(offset)()
        return self.log_start

    def _keep_start(self) -> None:
        if self.start_known:
            self._context.persist_start(self.name, self.log_start)

    def memory_below(self, offset: int) -> Callable[[], None] | None:
        """What must be done before the segments below *offset* go, in any thread: the snapshot that remembers their
        producers becomes durable, where no flush has seen to that. It raises DiskFull, OSError."""
        return self._durable.memory_below(self._segments, self._context.disk, offset)

    def _remember_below(self, offset: int) -> None:
        remember = self.memory_below(offset)
        if remember is not None:
            remember()

    def start_moved(self, offset: int) -> Callable[[], None]:
        """Log start is *offset*, not below the old one and durable already: drop the closed segments below.

        What it gives writes the epochs that are left, in any thread. Both raise DiskFull, OSError.
        """
        self.log_start = offset
        self.start_known = True
        self._drop_below(offset)
        self._find_last_stable()
        self._show()
        return self._lineage.saving() if self._lineage.cut_start(offset) else _nothing

    def evict(self, local_start: int) -> int:
        """Drop closed segments that end at or below *local_start*; the local start now.

        Log start stays and is durable first. Nothing that is not flushed or that an open transaction holds is dropped.
        """
        self._keep_start()
        self._drop_below(min(local_start, self.recovery_point, self.last_stable))
        return self.local_start

    def _drop_below(self, offset: int) -> None:
        gone = self._segments.below(offset)
        if gone:
            self._remember_below(offset)  # usually done before, in a thread
            self._segments.drop(len(gone))
            for segment in gone:
                self._context.indexes.forget(segment)
                self._snapshots.forget(segment.base)
            self._context.trash.throw(gone, self._settings.file_delete_delay_ms)
        self.local_start = max(self._segments.first.base, self.log_start)

    def prepare_close(self) -> FlushJob | None:
        """Trim the active segment and write the snapshot at the log end; then run the job and call `flushed`."""
        active = self._segments.active
        if self.failed is not None or active.builder is None:
            return None
        active.seal(self._context.disk)
        if self.log_end > self._segments.first.base and self.log_end not in self._snapshots:
            self._snapshots.write(self.log_end, self._producers)
        job = self._durable.job(self._segments, self._context.disk, active_to=self.log_end, closing=True)
        also = self._listed.update(self._segments, anew=True)
        if job is not None:
            job.also = also
        elif also is not None:
            also()
        return job

    # -- another data directory --

    def active_log(self) -> tuple[str, int]:
        """Name of the `.log` that grows, and how many of its bytes count."""
        active = self._segments.active
        return active.handle.path.name, active.size_bytes

    def settle_files(self) -> None:
        """Write what the files still lack of what the log knows, for a copy of them. Raises DiskFull, OSError."""
        self._segments.active.write_indexes(self._context.disk, trim=False)

    def rehome(self, context: LogContext, directory: Path) -> None:
        """Go on with the same files in *directory*, where all of them are durable; slices that are out keep theirs."""
        for segment in self._segments:
            self._context.indexes.forget(segment)
            segment.rehome(directory, context.fds, context.disk)
        self._snapshots.rehome(directory, context.disk)
        self._lineage.rehome(directory, context.disk)
        self._context, self.directory = context, directory
        self._reader = LogReader(self._segments, context.indexes, self._settle)
        self._times = TimeLookup(self._segments, context.indexes, self._reader)
        self.compaction = self.compaction.rehomed(context)
        self._durable.rehome(self.log_end, self._segments.active.base)
        self.high_watermark, self.last_stable = self.log_end, self._stable

    def forget(self) -> None:
        """It is to be deleted: nothing of it stays in the state directory that only it needs."""
        self._listed.forget()

    def close(self) -> None:
        """Give back the descriptors; slices that are out keep theirs."""
        for segment in self._segments:
            segment.gone = True
            self._context.indexes.forget(segment)
            segment.handle.drop()


def _nothing() -> None:
    """There are no epochs to write."""
