"""One partition's local log as others see it: its offsets, its batches, what is known of it. Loop thread only.

Offsets ascend: log_start <= local_start <= last_stable <= high_watermark <= log_end. The local part begins later than
the log when older segments are in the bucket only; the high watermark lags where readers see only what is on the disk.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage.context import LogContext
from tierd.storage.epochs import EpochEntry
from tierd.storage.errors import OffsetOutOfRange
from tierd.storage.flush import Durability
from tierd.storage.gaps import Gap, Gaps
from tierd.storage.header import BatchHeader
from tierd.storage.loader import LoadedLog
from tierd.storage.log_read import LogReader, SegmentsChanged
from tierd.storage.log_views import closed_views
from tierd.storage.recovery import Cut
from tierd.storage.settling import settle
from tierd.storage.snapshot import ProducerEntry
from tierd.storage.timelookup import Found, Search, TimeLookup
from tierd.storage.view import EMPTY_SLICE, AbortedTxn, LogSlice, SegmentView, TimestampOffset

_NO_EPOCH = -1


class ReadableLog:
    """See the module; `log.Log` is what changes it. `settings` may be assigned at any time and hold from then on."""

    def __init__(
        self, context: LogContext, name: TopicPartition, topic_id: Uuid, directory: Path, settings: TopicSettings,
        loaded: LoadedLog,
    ) -> None:  # fmt: skip
        self._context = context
        self.name = name
        self.topic_id = topic_id
        self.directory = directory
        self._settings = settings
        self._gated = settings.visible_when_durable
        self.commits = self._gated or settings.flush_messages is not None
        """Whether an append may have to wait for the disk."""
        self._segments = loaded.segments
        self._producers = loaded.producers
        self._lineage = loaded.lineage
        self._reader = LogReader(self._segments, context.indexes, self._settle)
        self._times = TimeLookup(self._segments, context.indexes, self._reader)
        # A flush of the active segment may have come so far, and the segment closed after it: of that one only batches
        # are known to be on the disk. Below the first segment when those that lay there went before they were flushed.
        before = max(loaded.recovery_point - 1, 0)
        sealed = min(self._segments[self._segments.find(before)].base, before)
        now_ms = context.clock.monotonic_ms()
        self._durable = Durability(loaded.recovery_point, sealed, now_ms, directory.parent)
        self._gaps = Gaps(context.set_aside.gap_file(name, topic_id), loaded.log_start, loaded.log_end)
        self.cuts: list[Cut] = loaded.cuts
        """What recovery took out of it at this start."""
        self.on_loss: Callable[[], None] | None = None
        """Told when offsets are found lost after the start, to judge them (`judge_gaps`)."""
        self.forgetful = loaded.forgetful
        """Producers and epochs of batches that have left the disk are not known; `recall` tells of them."""
        latest = self._lineage.latest
        self.leader_epoch = _NO_EPOCH if latest is None else latest
        self.log_start = loaded.log_start
        self.start_known = loaded.start_known
        """False: a checkpoint that listed it was lost, and nobody has asked the bucket yet. None lists it meanwhile: a
        later start would believe that."""
        self.log_end = loaded.log_end
        self.local_start = max(self._segments.first.base, self.log_start)
        self.high_watermark = max(self.recovery_point, self.local_start)
        """Readers see what lies below."""
        self.last_stable = self.local_start
        self._find_last_stable()
        self._show()

    def __repr__(self) -> str:
        return f"Log({self.directory}, [{self.log_start}, {self.log_end}), local from {self.local_start})"

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Offsets [start, stop) that a start has found lost between good segments: readers go on behind them."""
        return self._gaps.within(self.log_start, self.log_end)

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        self._settings = settings
        self._gated = settings.visible_when_durable
        self.commits = self._gated or settings.flush_messages is not None
        self._show()

    @property
    def recovery_point(self) -> int:
        """All below it is on the disk."""
        return self._durable.point

    @property
    def sealed(self) -> int:
        """Closed segments below it are on the disk with all their files."""
        return self._durable.sealed

    @property
    def commit_due(self) -> bool:
        """Whether what has been appended must be flushed now, as far as anybody waits for it. Ask only if `commits`."""
        messages = self._settings.flush_messages
        return self._gated or (messages is not None and self.log_end - self._durable.point >= messages)

    def _find_last_stable(self) -> None:
        oldest = self._producers.first_open
        self._stable = self.log_end if oldest is None else min(max(oldest[0], self.log_start), self.log_end)

    def _show(self) -> None:
        """Let readers see all that there is, unless they have to wait for the disk (`flushed`)."""
        if not self._gated:
            self.high_watermark = self.log_end
            self.last_stable = self._stable
        else:
            self.high_watermark = max(self.high_watermark, self.local_start)
            self.last_stable = max(self.last_stable, self.local_start)

    def read(self, offset: int, max_bytes: int, *, committed: bool) -> LogSlice:
        """Whole batches from the first whose last offset is at or above *offset*; release the slice once sent.

        The first batch comes even above *max_bytes*. Empty at the end of what may be read. Raises OffsetOutOfRange
        outside [local_start, log_end], Repairing, CorruptFile, OSError.
        """
        end = self.log_end
        if not self.local_start <= offset <= end:
            raise OffsetOutOfRange(offset, self.local_start, end)
        stop = self.last_stable if committed else self.high_watermark
        while offset >= self.local_start and not self._is_judged_on(offset):
            first, last = self._gaps.pass_by(offset, stop) if self._gaps else (offset, stop)
            try:
                return self._reader.read(first, max_bytes, last, end, committed=committed)
            except SegmentsChanged:  # each segment is settled once
                continue
        return EMPTY_SLICE  # the bucket has it, the next read goes there

    def _is_judged_on(self, offset: int) -> bool:
        """Whether it is still to be found out if the bucket has *offset*, which the disk has lost."""
        if not self._gaps or self.on_loss is None:
            return False
        return any(start <= offset < stop for start, stop in self._gaps.found)

    @property
    def found_gaps(self) -> tuple[Gap, ...]:
        """Offsets that the disk has lost, of which nobody has said yet whether the bucket has them."""
        return self._gaps.found

    def _settle(self, at: int) -> bool:
        """Look at closed segment number *at* before its first use; whether all is as it was. Raises Repairing,
        CorruptFile, DiskFull, OSError."""
        return settle(self._context, self.name, self._segments, self._gaps, at, self._settled)

    def settled(self, base: int) -> bool:
        """Whether the closed segment at *base* is as its files say; it is put right else. Raises as `_settle`."""
        return self._reader.is_settled(self._segments.find(base))

    def _settled(self, cut: Cut | None, lost: Gap | None) -> None:
        if cut is not None:
            self.cuts.append(cut)
        if lost is not None and self.on_loss is not None:
            self.on_loss()

    @property
    def repairing(self) -> bool:
        """Whether a thread puts files of it right."""
        return self._context.repairs.busy(self.directory)

    @property
    def repairs(self) -> int:
        """How many repairs have ended, in all of its data directory."""
        return self._context.repairs.ended

    def batches(self, start: int | None = None, stop: int | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every local batch that lies in [start, stop), whole, oldest first. Raises CorruptFile, OSError."""
        begin = max(self.local_start, start or 0)
        return self._reader.batches(begin, self.log_end if stop is None else min(stop, self.log_end))

    def aborted(self, start: int, stop: int) -> tuple[AbortedTxn, ...]:
        """Aborted transactions that begin below *stop* and end at or above *start*, as far as local indexes know."""
        return self._reader.aborted(start, stop)

    def by_time(self, timestamp_ms: int, *, committed: bool = False) -> Search[TimestampOffset | None]:
        """The first local record with a timestamp of at least *timestamp_ms*; None when there is none to be seen."""
        stop = self.last_stable if committed else self.high_watermark
        return self._found(self._times.first_at(timestamp_ms, self.local_start, stop))

    def largest_timestamp(self, *, committed: bool = False) -> Search[TimestampOffset | None]:
        """The earliest local record that has the largest timestamp; None when there is none to be seen."""
        stop = self.last_stable if committed else self.high_watermark
        return self._found(self._times.largest(self.local_start, stop))

    def _found(self, search: Search[Found | None]) -> Search[TimestampOffset | None]:
        record = yield from search
        if record is None:
            return None
        return TimestampOffset(record[0], record[1], self._lineage.epoch_at(record[0]))

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        return self._lineage.entries

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch that holds *offset*."""
        return self._lineage.epoch_at(offset)

    def epoch_end(self, epoch: int) -> tuple[int, int] | None:
        """(largest epoch <= *epoch* in the log, offset where it ends); None when all are larger."""
        return self._lineage.end_of(epoch, self.log_end)

    @property
    def largest_producer_id(self) -> int | None:
        """The largest producer id that the log knows of; ids given out must be above it."""
        return self._producers.largest_id

    @property
    def first_open(self) -> tuple[int, int] | None:
        """(first offset, producer id) of the oldest open transaction, or None."""
        return self._producers.first_open

    @property
    def pinned_by(self) -> str | None:
        """In words, whose transaction holds back the last stable offset."""
        oldest = self.first_open
        return None if oldest is None else f"producer {oldest[1]} has had a transaction open since offset {oldest[0]}"

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether exactly this producer has a transaction open here."""
        return self._producers.in_transaction(producer_id, epoch)

    def knows_producer(self, producer_id: int) -> bool:
        return self._producers.knows(producer_id)

    @property
    def producers(self) -> list[ProducerEntry]:
        """What the log remembers of each producer."""
        return self._producers.entries()

    # -- views --

    @property
    def start_must_be_kept(self) -> bool:
        """Whether the checkpoint must list log start: in a tiered partition, or where no segment begins there."""
        if not self.start_known:
            return False
        return self._settings.remote_storage_enable or self.log_start > self._segments.first.base

    @property
    def size_bytes(self) -> int:
        """Bytes of batches on the local disk."""
        return sum(segment.size_bytes for segment in self._segments)

    def closed(self) -> tuple[SegmentView, ...]:
        """The closed segments, oldest first."""
        return closed_views(self._segments)
