"""Extents on demand: which are there, which are under way, and the one that holds an offset. Event loop only.

A download belongs to the pool, not to whoever asked for it: a caller that gives up leaves it running into the cache,
and callers that want the same bytes wait for the same download. A download that fails leaves nothing behind.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Coroutine
from concurrent.futures import Executor

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.ranges import ByteRange
from tierd.tiering.reader.cache import CacheFile, DiskCache
from tierd.tiering.reader.extents import Boundaries, Extent, next_extent
from tierd.tiering.reader.fetch import Fetcher, memory_bytes
from tierd.tiering.reader.indexes import RemoteIndexes
from tierd.tiering.reader.permits import Permits, Ticket
from tierd.tiering.reader.slots import ExtentName, SegmentSlots, Slot
from tierd.tiering.reader.table import BatchTable, walk
from tierd.tiering.segments import RemoteSegment

log = logging.getLogger(__name__)


class ExtentPool:
    def __init__(
        self,
        cache: DiskCache,
        fetcher: Fetcher,
        indexes: RemoteIndexes,
        permits: Permits,
        threads: Executor,
        *,
        table_bytes: int,
        stretch_bytes: int,
    ) -> None:
        """*table_bytes*: what the batch tables of landed extents may take in memory; the least used are let go."""
        self._cache = cache
        self._fetcher = fetcher
        self._indexes = indexes
        self._permits = permits
        self._threads = threads
        self._table_bytes = table_bytes
        self._stretch_bytes = stretch_bytes
        self._tables: OrderedDict[Slot, int] = OrderedDict()
        self._tables_bytes = 0
        self._segments: dict[Uuid, SegmentSlots] = {}

    def slots(self, segment_id: Uuid) -> SegmentSlots:
        """The slots of a segment; a new, empty SegmentSlots when there are none."""
        return self._segments.get(segment_id) or SegmentSlots(segment_id)

    def restore(self, name: ExtentName, size_bytes: int) -> bool:
        """Take in a file of an earlier run; its batches are checked when it is first used. False: it is of no use."""
        slots = self._all(name.segment_id)
        overlaps = slots.at(name.start) is not None or (slots.map.next_start(name.start) or name.stop) < name.stop
        if size_bytes != name.stop - name.start or overlaps:
            return False
        slot = slots.begin(Extent(_range(name), open_end=False))
        self._land(slots, slot, name, None)
        return True

    def start(self, segment: RemoteSegment, extent: Extent, *, urgent: bool) -> Slot:
        """Begin to download *extent*, which no slot overlaps."""
        slots = self._all(segment.segment_id)
        slot = slots.begin(extent)
        slot.ticket = Ticket(memory_bytes(segment, extent), urgent)
        self._run(slot, self._download(segment, slots, slot, extent, slot.ticket))
        return slot

    async def locate(
        self, segment: RemoteSegment, offset: int, want_bytes: int, at_least: int = 0
    ) -> tuple[Slot, BatchTable, int] | None:
        """The first batch of *segment* whose last offset is at or above *offset*: its slot, table, number there.

        None when the segment ends before. Nothing below position *at_least* is looked at (the caller knows better).
        The slot is landed when this returns; pin its file before the next await. Raises what the download raises.
        """
        while True:
            slots = self.slots(segment.segment_id)
            slot = slots.holding(offset)
            if slot is None:
                known = await self._known(segment, offset)
                slots = self.slots(segment.segment_id)
                position = max(known.at_or_below(offset), slots.known_below(offset), at_least)
                if position >= segment.size_bytes:
                    return None
                slot = slots.at(position) or self.start(
                    segment, next_extent(known, slots.map, position, want_bytes, self._stretch_bytes), urgent=True
                )
            table = await self._ready(slot)
            number = None if table is None else table.find(offset)
            if table is not None and number is not None:
                return slot, table, number
            if table is not None:
                at_least = max(at_least, slot.stop)

    async def _known(self, segment: RemoteSegment, offset: int) -> Boundaries:
        """Where batches begin. Where the first one does is known: then the index is not waited for, it comes beside."""
        if offset > segment.base or self.slots(segment.segment_id):
            return await self._indexes.boundaries(segment)
        self._indexes.begin(segment)
        return self._indexes.boundaries_now(segment) or Boundaries(segment.base, (), (), segment.size_bytes)

    def ready_now(self, slot: Slot) -> BatchTable | None:
        """The table of a landed slot when it is in memory."""
        return slot.table if slot.landing is None and slot.file is not None else None

    def forget(self, segment_id: Uuid) -> None:
        """Drop the landed extents of a segment."""
        for slot in self.slots(segment_id).all():
            if slot.file is not None:
                self._cache.drop(slot.file)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [slot.landing for slots in self._segments.values() for slot in slots.all() if slot.landing is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ready(self, slot: Slot) -> BatchTable | None:
        """Wait for *slot*, and give its table. None: it is gone, look again."""
        if slot.landing is None and slot.file is not None and slot.table is None:
            self._run(slot, self._walk_again(slot, slot.file))
        if slot.landing is not None:
            if slot.ticket is not None:
                self._permits.promote(slot.ticket)
            await asyncio.shield(slot.landing)
        if slot.table is not None:
            self._tables.move_to_end(slot)
        return slot.table

    def _run(self, slot: Slot, work: Coroutine[None, None, None]) -> None:
        slot.landing = asyncio.create_task(work)
        slot.landing.add_done_callback(_ended)

    async def _download(
        self, segment: RemoteSegment, slots: SegmentSlots, slot: Slot, extent: Extent, ticket: Ticket
    ) -> None:
        try:
            size_bytes = extent.range.length
            if not await self._cache.reserve(size_bytes, wait=ticket.urgent):
                return
            try:
                async with self._permits.hold(ticket):
                    work = asyncio.get_running_loop().run_in_executor(
                        self._threads, self._fetcher.extent, segment, extent
                    )
                    fetched = await work
            finally:
                self._cache.unreserve(size_bytes)
            self._land(slots, slot, fetched.name, fetched.table)
        finally:
            slot.landing = slot.ticket = None
            if slot.file is None:
                self._remove(slots, slot)

    async def _walk_again(self, slot: Slot, file: CacheFile) -> None:
        """Check the file of a landed slot and make its table; a file that is not what it should be is dropped."""
        fd = None
        try:
            fd = self._cache.pin_if_there(file)
            if fd is None:
                return
            job = asyncio.get_running_loop().run_in_executor(self._threads, _walk_file, fd, file, slot)
            table = await job
        finally:
            slot.landing = None  # whatever came of it: the next one tries again
            if fd is not None:
                self._cache.unpin(file)
        if table is None:
            self._cache.drop(file)
        elif slot.file is not None:
            self._keep_table(slot, table)

    def _land(self, slots: SegmentSlots, slot: Slot, name: ExtentName, table: BatchTable | None) -> None:
        file = self._cache.add(str(name), name.stop - name.start, lambda: self._remove(slots, slot))
        slots.land(slot, file, name)
        if table is not None:
            self._keep_table(slot, table)

    def _remove(self, slots: SegmentSlots, slot: Slot) -> None:
        slots.remove(slot)
        self._tables_bytes -= self._tables.pop(slot, 0)
        if not slots:
            self._segments.pop(slot.segment_id, None)

    def _keep_table(self, slot: Slot, table: BatchTable) -> None:
        slot.table = table
        self._tables[slot] = table.memory_bytes
        self._tables_bytes += table.memory_bytes
        while self._tables_bytes > self._table_bytes and len(self._tables) > 1:
            oldest, size_bytes = self._tables.popitem(last=False)
            oldest.table = None
            self._tables_bytes -= size_bytes

    def _all(self, segment_id: Uuid) -> SegmentSlots:
        return self._segments.setdefault(segment_id, SegmentSlots(segment_id))


def _ended(task: asyncio.Task[None]) -> None:
    """Whoever waits for a download is told why it failed; of a read-ahead nobody waits for, the log is."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.debug("download failed", extra={"error": str(error)})


def _walk_file(fd: int, file: CacheFile, slot: Slot) -> BatchTable | None:
    """None when the file does not hold whole, sound batches (a crash may leave anything under a good name)."""
    data = os.pread(fd, file.size_bytes, 0)
    try:
        table = walk(memoryview(data), file.name, 0, floor=slot.first_offset, ceiling=slot.next_offset)
    except CorruptFile as error:
        log.warning("cache file is no good, fetched again", extra={"file": file.name, "reason": error.reason})
        return None
    whole = table is not None and (table.length, table.next_offset) == (file.size_bytes, slot.next_offset)
    return table if whole else None


def _range(name: ExtentName) -> ByteRange:
    return ByteRange(name.start, name.stop)
