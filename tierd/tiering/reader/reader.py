"""Reads of the bucket: whole batches as cache files, look-ups by time. See `tiering.segments.RemoteReads`."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.keyring import NO_KEYS, KeyRing
from tierd.remote.limits import Urgency, now_urgent
from tierd.remote.store import ObjectStore
from tierd.storage.view import EMPTY_SLICE, AbortedTxn, FileSpan, LogSlice, TimestampOffset
from tierd.tiering.reader.aborted import TxnSegments, collect
from tierd.tiering.reader.ahead import Fetch, SegmentState, Stream, Streams, plan, window_bytes
from tierd.tiering.reader.cache import CacheFile, DiskCache
from tierd.tiering.reader.fetch import Fetcher, SegmentGone
from tierd.tiering.reader.indexes import RemoteIndexes, is_index_name
from tierd.tiering.reader.options import ReaderOptions
from tierd.tiering.reader.pace import Pace, pace, smallest_range
from tierd.tiering.reader.permits import Permits
from tierd.tiering.reader.pool import ExtentPool
from tierd.tiering.reader.slots import ExtentName, Slot
from tierd.tiering.reader.table import BatchTable
from tierd.tiering.reader.times import TimeLookups
from tierd.tiering.segments import RemoteSegment, SegmentSource

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a read begins: a landed extent and a batch in it."""

    segment: RemoteSegment
    slot: Slot
    table: BatchTable
    number: int


@dataclass(slots=True)
class _Gathered:
    """Batches in pinned files, and where the next ones lie."""

    segment: RemoteSegment
    position: int = 0
    next_offset: int = 0
    length: int = 0
    spans: list[FileSpan] = field(default_factory=list)
    files: list[CacheFile] = field(default_factory=list)


class RemoteReader:
    """The RemoteReads of a running tierer. Event loop only; requests and checks run in its own threads."""

    def __init__(
        self,
        store: ObjectStore,
        source: SegmentSource,
        directory: Path,
        clock: Clock,
        options: ReaderOptions | None = None,
        ring: KeyRing = NO_KEYS,
        passes: Callable[[PartitionId, int, int], bool] = lambda *_: False,
    ) -> None:
        """Keeps its files in *directory*, which is its own; what an earlier run left there is used again.

        *passes* says of offsets [start, stop) that no segment has whether reads go on behind them.
        """
        self._passes = passes
        self._options = options = options or ReaderOptions()
        self._source = source
        self._clock = clock
        self._threads = ThreadPoolExecutor(options.threads + 2, "tierd-read", now_urgent, (Urgency.CLIENT,))
        self._cache = DiskCache(directory, options.cache_bytes, options.open_files, self._threads)
        fetcher = Fetcher(store, self._cache, options.range_bytes, ring)
        self._indexes = RemoteIndexes(
            fetcher,
            self._cache,
            self._threads,
            memory_bytes=options.index_bytes,
            whole_bytes=options.whole_indexes_bytes,
            needless_bytes=options.stretch_bytes // 2,
        )
        permits = Permits(options.memory_bytes, options.threads)
        self._pool = ExtentPool(
            self._cache,
            fetcher,
            self._indexes,
            permits,
            self._threads,
            table_bytes=options.table_bytes,
            stretch_bytes=options.stretch_bytes,
        )
        self._times = TimeLookups(source, self._pool, self._indexes, self._cache, self._threads, options.first_bytes)
        self._txn_segments = TxnSegments(source)
        self._streams = Streams(options.streams)
        self._indexes_ahead: dict[Uuid, asyncio.Task[None]] = {}
        self._restore()

    async def read(self, part: PartitionId, offset: int, *, max_bytes: int, stop: int, committed: bool) -> LogSlice:
        """See `broker.ports.RemoteTier.read`. Also raises DiskFull, for the cache's disk.

        `aborted` names what remote indexes know; transactions whose marker is local are the local log's to add.
        What is in memory comes at once; nothing beyond the first extent is waited for.
        """
        stream = self._streams.at(part, offset)
        if stream is not None:
            stream.habit = stream.habit.came_again(self._clock.monotonic_ms() - stream.used_ms)
        await self._cache.descriptors()
        while True:
            found = await self._find(part, offset, stop, stream)
            if found is None:
                return EMPTY_SLICE
            gathered = self._gather(found, max_bytes, stop)
            if gathered.spans:
                break
            if found.slot.file is not None:
                return EMPTY_SLICE  # else somebody has removed its file: from the bucket again
        try:
            self._go_on(part, offset, stop, stream, gathered)
            aborted: tuple[AbortedTxn, ...] = ()
            if committed:
                aborted = await self._aborted(found.segment, offset, gathered.next_offset)
        except BaseException:
            self._release(gathered.files)
            raise
        return LogSlice(
            tuple(gathered.spans),
            gathered.length,
            aborted,
            gathered.next_offset,
            lambda: self._release(gathered.files),
        )

    async def by_time(self, part: PartitionId, timestamp_ms: int, *, start: int, stop: int) -> TimestampOffset | None:
        """First record in [start, stop) with timestamp >= *timestamp_ms*."""
        return await self._times.first_at(part, timestamp_ms, start, stop)

    async def largest_timestamp(self, part: PartitionId, *, start: int, stop: int) -> TimestampOffset | None:
        """Earliest record in [start, stop) with the largest timestamp there."""
        return await self._times.largest(part, start, stop)

    def forget(self, segment_id: Uuid) -> None:
        """The segment's delete has begun: drop what is cached of it and not in use."""
        self._streams.forget(segment_id)
        self._pool.forget(segment_id)
        self._indexes.forget(segment_id)

    def rearranged(self, part: PartitionId) -> None:
        """Other segments are there than before, and not only new ones at the end."""
        self._txn_segments.forget(part)

    async def close(self) -> None:
        """Give up what is under way; what is in the cache stays for the next run. Close the store first."""
        for task in self._indexes_ahead.values():
            task.cancel()
        await asyncio.gather(*self._indexes_ahead.values(), return_exceptions=True)
        await self._pool.close()
        await self._indexes.close()
        await asyncio.to_thread(self._threads.shutdown)

    async def _find(self, part: PartitionId, offset: int, stop: int, stream: Stream | None) -> _Found | None:
        """The first batch whose last offset is at or above *offset*, in a segment that begins below *stop*."""
        options = self._options
        want_bytes = options.first_bytes if stream is None else smallest_range(options.range_bytes)
        segment: RemoteSegment | None
        if stream is not None and stream.segment.base <= offset < stream.segment.next_base:
            segment, begin = stream.segment, stream.position  # `forget` takes care of those that go
        else:
            segment, begin = self._segment_at(part, offset), 0
        while segment is not None and segment.base < stop:
            offset = max(offset, segment.base)
            try:
                located = await self._pool.locate(segment, offset, want_bytes, begin) if segment.size_bytes else None
            except SegmentGone:
                if self._source.covering(part, segment.base) == segment:
                    raise
            else:
                if located is not None:
                    return _Found(segment, *located)
                offset = segment.next_base
            segment, begin = self._segment_at(part, offset), 0
        return None

    def _segment_at(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        """The segment with *offset*; None at the end. CorruptFile where a segment is missing in between, unless reads
        are to go on behind that."""
        segment = self._source.covering(part, offset)
        if segment is None and (segment := self._source.next_after(part, offset)) is not None:
            if self._options.pass_gaps or self._passes(part, offset, segment.base):
                return segment
            raise CorruptFile(
                segment.log_key, 0, f"no segment in the bucket has offsets [{offset}, {segment.base}) before this one"
            )
        return segment

    def _gather(self, found: _Found, max_bytes: int, stop: int) -> _Gathered:
        """Batches from *found* on, as far as they are landed and fit. No await: nothing leaves the cache meanwhile."""
        gathered = _Gathered(found.segment)
        slot: Slot | None = found.slot
        table: BatchTable | None = found.table
        number = found.number
        while slot is not None and table is not None and slot.file is not None:
            first = not gathered.spans
            limit = min(stop, gathered.segment.next_base)
            cut = table.cut(number, max_bytes - gathered.length, limit, whole_first=first)
            if cut is None:
                break
            file = slot.file
            if (fd := self._cache.pin_if_there(file)) is None:
                break
            gathered.spans.append(FileSpan(fd, cut.position, cut.length))
            gathered.files.append(file)
            gathered.length += cut.length
            gathered.position = slot.start + cut.position + cut.length
            gathered.next_offset = cut.next_offset
            if gathered.position < slot.stop or len(gathered.spans) == self._options.spans:
                break
            slot, number = self._slot_after(gathered), 0
            table = None if slot is None else self._pool.ready_now(slot)
        return gathered

    def _slot_after(self, gathered: _Gathered) -> Slot | None:
        """The slot that goes on where *gathered* ends, maybe in the next segment; *gathered* moves on to that one."""
        if not self._cache.room_for_descriptors():
            return None
        if gathered.position >= gathered.segment.size_bytes:
            after = self._next_data(gathered.segment)
            if after is None:
                return None
            gathered.segment, gathered.position = after, 0
        return self._pool.slots(gathered.segment.segment_id).at(gathered.position)

    def _next_data(self, segment: RemoteSegment) -> RemoteSegment | None:
        """The next segment that has bytes; None at the end and before a missing one."""
        while (after := self._source.next_after(segment.part, segment.next_base)) is not None:
            if after.base != segment.next_base:
                return None
            if after.size_bytes:
                return after
            segment = after
        return None

    def _go_on(self, part: PartitionId, offset: int, stop: int, stream: Stream | None, gathered: _Gathered) -> None:
        """Remember where this reader will go on, and fetch ahead of it when it is sequential.

        One that has come to *stop* goes on in the local log, and leaves its share of the cache to others.
        """
        if gathered.next_offset >= stop:
            self._streams.ended(part, offset)
            return
        now_ms = self._clock.monotonic_ms()
        if stream is None:
            stream = Stream(gathered.segment, gathered.position, used_ms=now_ms)
        else:
            stream.segment, stream.position = gathered.segment, gathered.position
            stream.sequential, stream.used_ms = True, now_ms
        stream.habit = stream.habit.took(gathered.length)
        self._streams.moved(part, offset, gathered.next_offset, stream)
        if stream.sequential and stream.due():
            self._read_ahead(stream, stop)

    def _pace(self, stream: Stream) -> Pace:
        options = self._options
        full_bytes = options.read_ahead * options.range_bytes
        active = self._streams.active(self._clock.monotonic_ms())
        return pace(stream.habit, window_bytes(full_bytes, options.cache_bytes, active), options.range_bytes)

    def _read_ahead(self, stream: Stream, stop: int) -> None:
        fit = self._pace(stream)
        stream.planned = stream.segment.base, stream.position, fit.step_bytes
        for step in plan(self._chain(stream.segment, stop), stream.position, fit.window_bytes, fit.range_bytes):
            if isinstance(step, Fetch):
                self._pool.start(step.segment, step.extent, urgent=False)
            elif step.segment.segment_id not in self._indexes_ahead:
                task = asyncio.create_task(self._index_then_ahead(step.segment, stream, stop))
                self._indexes_ahead[step.segment.segment_id] = task

    async def _index_then_ahead(self, segment: RemoteSegment, stream: Stream, stop: int) -> None:
        try:
            await self._indexes.boundaries(segment)
        except TierdError as error:
            log.debug("no read-ahead", extra={"object": segment.indexes_key, "error": str(error)})
            return
        finally:
            del self._indexes_ahead[segment.segment_id]
        self._read_ahead(stream, stop)

    def _chain(self, segment: RemoteSegment | None, stop: int) -> Iterator[SegmentState]:
        while segment is not None and segment.base < stop:
            slots = self._pool.slots(segment.segment_id)
            yield SegmentState(segment, self._indexes.boundaries_now(segment), slots.map)
            segment = self._next_data(segment)

    async def _aborted(self, first: RemoteSegment, start: int, stop: int) -> tuple[AbortedTxn, ...]:
        return await collect(first, start, stop, self._txn_segments, self._source, self._indexes.aborted)

    def _release(self, files: list[CacheFile]) -> None:
        for file in files:
            self._cache.unpin(file)

    def _restore(self) -> None:
        """Take in what an earlier run left in the cache; what is of no use goes."""
        for name, size_bytes in self._cache.found():
            extent = ExtentName.parse(name)
            if extent is not None:
                taken = self._pool.restore(extent, size_bytes)
            else:
                taken = is_index_name(name)
                if taken:
                    self._cache.add(name, size_bytes, _nothing)
            if not taken:
                self._cache.path(name).unlink()


def _nothing() -> None:
    """An index file has no other bookkeeping."""
