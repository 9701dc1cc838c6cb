"""Opening one partition directory: what is there becomes a log's state, repaired where an unclean stop demands it.

Clean: only the end of the active segment and the newest snapshot are read. Unclean: segments from the one that holds
the recovery point on are read again. Everything below is trusted until somebody uses it.
"""

import logging
import os
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.disk import publish
from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage.batch import BatchHeader
from tierd.storage.compaction.unfinished import end_of
from tierd.storage.context import LogContext
from tierd.storage.gaps import Gap
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.indexing import IndexBuilder
from tierd.storage.leftovers import PartitionFiles, drop_orphans, tidy
from tierd.storage.lineage import Lineage
from tierd.storage.log_read import heads, is_latest
from tierd.storage.names import PARTITION_METADATA, Mark, Suffix, parse_segment_file, segment_file
from tierd.storage.producers import Producers
from tierd.storage.progress import Meter
from tierd.storage.recall import recall
from tierd.storage.recovery import Cut, Recovery, rebuild_indexes, walk_segment
from tierd.storage.roll import remove_files
from tierd.storage.segment import Segment, is_sealed, read_aborted, read_indexes
from tierd.storage.segments import Segments
from tierd.storage.snapshots import Snapshots
from tierd.storage.txn_listed import TxnListed
from tierd.storage.txnindex import AbortedEntry, encode_txn_index, parse_txn_index

log = logging.getLogger(__name__)

_LOG = (Suffix.LOG, Mark.NONE)


@dataclass(slots=True)
class LoadedLog:
    """The state of a log as found; Log takes it over."""

    segments: Segments
    producers: Producers
    lineage: Lineage
    snapshots: Snapshots
    log_start: int
    log_end: int
    recovery_point: int
    listed: TxnListed
    """Segments that are known to have a `.txnindex`."""
    cuts: list[Cut] = field(default_factory=list)
    start_known: bool = True
    """False where log start is in the bucket, perhaps, and nowhere else."""
    forgetful: bool = False
    """No file tells of the producers or epochs of batches below the first local segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """What the directory's checkpoint files say of one partition."""

    clean: bool
    recovery_point: int = 0
    log_start: int | None = None


def load_log(
    context: LogContext,
    directory: Path,
    name: TopicPartition,
    topic_id: Uuid,
    settings: TopicSettings,
    checkpoints: Checkpoints,
    meter: Meter | None = None,
) -> LoadedLog:
    """Raises OSError; damage to files is repaired or set aside, never raised. Any thread: nothing of what the context
    holds for the loop (open descriptors, indexes in memory) is touched."""
    return _Loader(context, directory, name, topic_id, settings, checkpoints, meter or Meter(directory, 1)).load()


def pending(directory: Path, checkpoints: Checkpoints) -> tuple[int, int]:
    """(segments, bytes) that an unclean stop makes be read again, as far as names and sizes tell."""
    if checkpoints.clean:
        return 0, 0
    files = (parse_segment_file(entry.name) for entry in os.scandir(directory))
    bases = sorted(file.offset for file in files if file is not None and (file.suffix, file.mark) == _LOG)
    bases = bases[max(bisect_right(bases, checkpoints.recovery_point) - 1, 0) :]
    return len(bases), sum((directory / segment_file(base, Suffix.LOG)).stat().st_size for base in bases)


class _Loader:
    def __init__(
        self,
        context: LogContext,
        directory: Path,
        name: TopicPartition,
        topic_id: Uuid,
        settings: TopicSettings,
        given: Checkpoints,
        meter: Meter,
    ) -> None:
        self._context = context
        self._disk = context.disk
        self._directory = directory
        self._name = name
        self._settings = settings
        self._given = given
        self._meter = meter
        self._now_ms = context.clock.now_ms()
        self._gaps = context.set_aside.gap_file(name, topic_id)
        self._listed = context.set_aside.txn_listed(name, topic_id)

    def load(self) -> LoadedLog:
        files = tidy(self._directory, self._disk)
        self._note_vanished(files)
        drop_orphans(self._directory, self._disk, files)
        if not files.logs:
            return self._empty(files)
        segments = Segments([self._segment(base, files) for base in sorted(files.logs)])
        snapshots = Snapshots(self._directory, self._disk, files.of[Suffix.SNAPSHOT])
        lineage = Lineage.load(self._directory, self._disk)
        log_end = self._open_active(segments.active, files) if self._given.clean else None
        first = len(segments) if log_end is not None else self._first_to_recover(segments)
        for segment in segments.since(0)[:first]:
            self._miss_txn_index(segment)
        self._rebuild_missing_indexes(segments, files, first)
        rebuilt = lineage is None
        if lineage is None:
            lineage = self._rebuild_lineage(segments, first)
        before = lineage.entries
        start = segments[first].base if log_end is None else log_end
        recovery, remembered = self._producers_at(start, segments, snapshots, lineage)
        recall(recovery.producers, segments, start)
        reread = log_end is None
        if log_end is None:
            log_end = self._recover(recovery, segments, snapshots, first)
        self._finish_active(segments.active)
        lineage.cut_end(log_end)
        if rebuilt or lineage.entries != before:
            lineage.save()
        snapshots.sweep({segment.base for segment in segments} | {log_end})
        if log_end > segments.first.base and (reread or log_end not in snapshots):
            snapshots.write(log_end, recovery.producers)
        point = log_end if self._given.clean else min(self._given.recovery_point, log_end)
        if log_end < self._given.recovery_point:
            facts = {"partition": str(self._name), "log_end": log_end, "was_durable": self._given.recovery_point}
            log.error("the log has lost its end: these offsets are given out again", extra=facts)
        log_start = self._log_start(segments.first.base)
        forgetful = segments.first.base > 0 and (rebuilt or not remembered)
        return LoadedLog(
            segments,
            recovery.producers,
            lineage,
            snapshots,
            log_start,
            log_end,
            point,
            self._listed,
            recovery.cuts,
            self._start_known,
            forgetful,
        )

    def _note_vanished(self, files: PartitionFiles) -> None:
        """A segment whose log alone is gone, from among others, is a loss, unless the one before it holds its range."""
        logs = sorted(files.logs)
        for base in sorted(files.vanished):
            log.error("the .log of a segment is gone", extra={"partition": str(self._name), "base": base})
            at = bisect_right(logs, base)
            if not 0 < at < len(logs):
                continue
            try:
                end = end_of(self._directory / segment_file(logs[at - 1], Suffix.LOG), logs[at - 1])
            except CorruptFile:
                continue  # the loss behind its good part will be noted
            if end <= base:
                self._gaps.add((base, logs[at]))
                self._keep_aborted(files, base, logs[at - 1])

    def _keep_aborted(self, files: PartitionFiles, gone: int, before: int) -> None:
        """What the index of the segment *gone* names was aborted: its records in older segments stay unseen."""
        found: list[AbortedEntry] = []
        for base in (before, gone):
            if base in files.of[Suffix.TXN_INDEX]:
                path = self._directory / segment_file(base, Suffix.TXN_INDEX)
                try:
                    entries = parse_txn_index(path.read_bytes(), str(path))
                except CorruptFile:
                    return  # whatever can be known of it will be made again from the log
                found += (one for one in entries if not found or one.marker_offset > found[-1].marker_offset)
        if found and found[-1].marker_offset >= gone:
            publish(self._disk, self._directory / segment_file(before, Suffix.TXN_INDEX), encode_txn_index(found))
            files.of[Suffix.TXN_INDEX].add(before)

    def _first_to_recover(self, segments: Segments) -> int:
        if self._given.clean:
            return len(segments) - 1  # its active segment turns out broken: that one is read again
        first = segments.find(self._given.recovery_point)
        while first > 0 and not is_sealed(segments[first - 1]):
            first -= 1  # its batches were on the disk when it was still active, its indexes not yet
        return first

    def _segment(self, base: int, files: PartitionFiles) -> Segment:
        segment = Segment(self._directory, base, self._context.fds)
        stat = segment.handle.path.stat()
        segment.size_bytes = stat.st_size
        segment.append_ms = stat.st_mtime_ns // 1_000_000
        segment.has_txn_index = base in files.of[Suffix.TXN_INDEX]
        return segment

    def _miss_txn_index(self, segment: Segment) -> None:
        """One that is missing, or not what it was, is made again on first use."""
        if self._listed.misses(segment):
            if segment.has_txn_index:
                self._context.set_aside.move(self._name, segment.path(Suffix.TXN_INDEX))
            segment.has_txn_index = True

    def _empty(self, files: PartitionFiles) -> LoadedLog:
        """No log at all: begin at log start."""
        start = self._given.log_start or 0
        segment = Segment(self._directory, start, self._context.fds)
        segment.create_files(
            self._disk,
            self._settings.segment_index_bytes,
            self._settings.roll_bytes if self._settings.preallocate else None,
        )
        snapshots = Snapshots(self._directory, self._disk, files.of[Suffix.SNAPSHOT])
        lineage = Lineage.load(self._directory, self._disk) or Lineage(self._directory, self._disk, [])
        if lineage.cut_end(start):
            lineage.save()
        found = snapshots.newest(start, self._now_ms, self._name, self._context.set_aside)
        producers = found[1] if found is not None and found[0] == start else Producers()
        snapshots.sweep({start})
        known, segments = self._start_known, Segments([segment])
        return LoadedLog(
            segments, producers, lineage, snapshots, start, start, start, self._listed, start_known=known
        )  # fmt: skip

    def _open_active(self, segment: Segment, files: PartitionFiles) -> int | None:
        """Take the active segment as a clean stop left it; the log end, or None when something does not fit."""
        if self._listed.misses(segment):
            return None
        try:
            loaded = read_indexes(segment, None)
            builder = IndexBuilder(segment.base)
            builder.offsets, builder.times = loaded.offsets, loaded.times
            last = loaded.times.last
            if last is not None:
                builder.max_timestamp_ms, builder.max_offset = last
            end = segment.base
            with segment.handle.path.open("rb") as file:
                if segment.size_bytes:
                    first = parse_header(file.read(HEADER_BYTES), 0, segment.where)
                    builder.first_timestamp_ms = first.max_timestamp_ms
                    if first.base_offset < segment.base or not is_latest(segment, file.fileno(), loaded.offsets, last):
                        return None
                position = loaded.offsets.positions[-1] if len(loaded.offsets) else 0
                for _, _, last_offset, _ in heads(file.fileno(), position, segment.size_bytes, segment.where):
                    end = last_offset + 1
            aborted = read_aborted(segment, None)
        except CorruptFile:
            return None
        segment.activate(self._disk, builder, aborted)
        return end

    def _rebuild_missing_indexes(self, segments: Segments, files: PartitionFiles, stop: int) -> None:
        """Closed segments that are not read again anyway get their index files back: the copier wants them whole."""
        for i in range(min(stop, len(segments) - 1)):
            if not all(segments[i].base in files.of[suffix] for suffix in (Suffix.INDEX, Suffix.TIME_INDEX)):
                self._meter.expect(1, segments[i].size_bytes)
                rebuild_indexes(
                    segments[i], self._disk, self._settings.index_interval_bytes, self._meter, segments.next_base(i)
                )

    def _rebuild_lineage(self, segments: Segments, stop: int) -> Lineage:
        """The epochs of the segments before number *stop*; recovery finds those of the rest."""
        lineage = Lineage(self._directory, self._disk, [])

        def on_batch(_: int, __: int, header: BatchHeader) -> None:
            lineage.note(header.leader_epoch, header.base_offset)

        for i in range(min(stop, len(segments))):
            self._meter.expect(1, segments[i].size_bytes)
            walk_segment(segments[i], on_batch, meter=self._meter)
        return lineage

    def _producers_at(
        self, start: int, segments: Segments, snapshots: Snapshots, lineage: Lineage
    ) -> tuple[Recovery, bool]:
        """Producer state of all batches below *start*: the newest good snapshot, and a replay from there; False when
        there is no snapshot."""
        found = snapshots.newest(start, self._now_ms, self._name, self._context.set_aside)
        offset, producers = (segments.first.base, Producers()) if found is None else found
        recovery = Recovery(
            self._name,
            self._disk,
            self._context.set_aside,
            producers,
            lineage,
            self._now_ms,
            self._meter,
            self._gaps.add,
        )
        if offset >= start:
            return recovery, found is not None
        for i, segment in enumerate(segments):
            next_base = segments.next_base(i)
            if segment.base >= start or (next_base is not None and next_base <= offset):
                continue
            if segment.base > offset and segment.base not in snapshots:
                snapshots.write(segment.base, producers)
            self._meter.expect(1, segment.size_bytes)
            recovery.replay(segment, offset)
        return recovery, found is not None

    def _recover(self, recovery: Recovery, segments: Segments, snapshots: Snapshots, first: int) -> int:
        """Read segments from number *first* on again; the log end."""
        ends: list[int] = []
        """Of each segment read: the offset after its last good batch."""
        befores: list[Producers] = []
        """Of each: the producers where the one before it ends."""
        closed = first
        for i in range(first, len(segments)):
            segment, next_base = segments[i], segments.next_base(i)
            befores.append(recovery.producers)
            if segment.base > segments.first.base:
                if ends and ends[-1] < segment.base:
                    self._pass_hole(recovery, segments, snapshots, segment.base)
                snapshots.write(segment.base, recovery.producers)
            ends.append(recovery.recover(segment, next_base, self._settings.index_interval_bytes))
            while segment.size_bytes and closed < i:
                closed = self._close(segments, closed)  # none before this one can become the active one again
        lost = self._lost(recovery, ends, [segment.base for segment in segments.since(first + 1)])
        while lost and lost[-1] and not segments.active.size_bytes:
            # What lay before this segment is lost, and it holds nothing itself: the log ends before the loss.
            lost.pop()
            ends.pop()
            remove_files(segments.drop_last(), self._disk)
            recovery.producers = befores.pop()
            recovery.forget_aborted(segments.active, ends[-1])
        while closed < len(segments) - 1:
            closed = self._close(segments, closed)
        for gap in lost:
            if gap is not None:
                self._gaps.add(gap)
        return ends[-1]

    def _pass_hole(self, recovery: Recovery, segments: Segments, snapshots: Snapshots, base: int) -> None:
        """Offsets are missing before *base*, and with them, perhaps, ends of transactions: what was open at *base* the
        snapshot knows that was written there when the segment began."""
        known = snapshots.at(base, self._now_ms)
        if known is not None:
            recall(known, segments, base)
            recovery.producers = known

    def _lost(self, recovery: Recovery, ends: list[int], bases: list[int]) -> list[Gap | None]:
        """For each segment but the last, the offsets that are missing behind it. Compaction leaves holes, too, but not
        only there; what was cut has been noted."""
        dense = not self._settings.compacted and not recovery.sparse
        noted = self._gaps.load()
        return [
            (end, base) if end < base and (dense or noted.holds((end, base))) else None
            for end, base in zip(ends, bases, strict=False)
        ]

    def _close(self, segments: Segments, i: int) -> int:
        """Let go of what was held of segment *i*; the number of the next one."""
        segments[i].close()
        segments[i].loaded = None  # nobody has asked for its indexes yet
        return i + 1

    def _finish_active(self, segment: Segment) -> None:
        segment.extend_indexes(self._disk, self._settings.segment_index_bytes)
        if segment.size_bytes:
            segment.first_append_ms = self._created_ms(segment)

    def _created_ms(self, segment: Segment) -> int:
        """A time at or before the first append: the snapshot at its base was written when the segment was made."""
        for path in (segment.path(Suffix.SNAPSHOT), self._directory / PARTITION_METADATA):
            if path.exists():
                return min(path.stat().st_mtime_ns // 1_000_000, segment.append_ms)
        return segment.append_ms

    @property
    def _start_known(self) -> bool:
        return self._given.log_start is not None or not self._settings.remote_storage_enable

    def _log_start(self, first_base: int) -> int:
        """Tiered: where the checkpoint says, 0 when it does not: whoever knows the bucket has to say more. Else never
        below the first segment that is left."""
        given = self._given.log_start
        if self._settings.remote_storage_enable:
            return given or 0
        return first_base if given is None else max(given, first_base)
