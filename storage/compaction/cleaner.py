"""Cleans one partition's closed segments into `.cleaned` files. Blocking work, for a thread of the worker's process.

Two walks: over the dirty part for the latest offset of each key, then over everything, which is written again without
what is superseded. Nothing but `.cleaned` files is written: the segments themselves are only read.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tierd.base.disk import Disk
from tierd.base.errors import DiskFull, TierdError
from tierd.storage.batch import parse_header
from tierd.storage.compaction.batches import BatchCleaner, Rules
from tierd.storage.compaction.cleaned_segment import CleanedSegment, drop_files, sweep_cleaned
from tierd.storage.compaction.grouping import Sized, groups
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport, Source
from tierd.storage.compaction.keys import quick_keys
from tierd.storage.compaction.offset_map import OffsetMap
from tierd.storage.compaction.raw import plain_payload, raw_records
from tierd.storage.compaction.transactions import Transactions
from tierd.storage.header import BatchHeader
from tierd.storage.names import Mark, Suffix, segment_file
from tierd.storage.scan import scan_segment

OnGroup = Callable[[CleanedGroup], None]


class CleaningStopped(TierdError):
    """The caller has no use for the rest of the cleaning."""


class Cleaner:
    """One cleaning. *stopping* is asked before each batch; *on_group* is told each segment that is ready."""

    def __init__(self, job: CleanJob, disk: Disk, on_group: OnGroup, stopping: Callable[[], bool]) -> None:
        self._job = job
        self._disk = disk
        self._on_group = on_group
        self._stopping = stopping
        self._after = 0

    def run(self) -> CleanReport:
        """Raises CorruptFile, DiskFull, OSError, CleaningStopped; groups told before are good all the same."""
        job = self._job
        sweep_cleaned(self._disk, job.directory)
        offsets = self._map()
        offsets.close()
        rules = Rules(
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            round_stop=job.stop,
            keep_deletes=job.keep_deletes,
            last_batches={last.producer_id: last for last in job.last_batches},
        )
        cleaner = BatchCleaner(offsets, Transactions(job.aborted), rules)
        reached = [source for source in job.sources if source.base < offsets.stop]
        planned = groups(list(map(self._sized, reached)), job.segment_bytes, job.index_bytes)
        self._clean_groups([[sized.source for sized in group] for group in planned], cleaner)
        before = sum(source.size_bytes for source in reached)
        return CleanReport(cleaned_to=offsets.stop, bytes_before=before, bytes_after=self._after)

    # -- the first walk --

    def _map(self) -> OffsetMap:
        """The latest offsets in the dirty part, as far as the map has room for them."""
        job = self._job
        offsets = OffsetMap(job.memory_bytes, job.first_dirty)
        transactions = Transactions(job.aborted)
        for source in job.sources:
            if source.next_base <= job.first_dirty:
                continue
            for header, batch in self._batches(source):
                if not self._enter(header, batch, offsets, transactions):
                    return offsets
            offsets.stop = source.next_base
        return offsets

    def _enter(self, header: BatchHeader, batch: memoryview, offsets: OffsetMap, transactions: Transactions) -> bool:
        """Take a batch into the map; False when the map is full."""
        where = str(self._job.directory)
        if header.control:
            transactions.on_control(header, batch, where)
        elif not transactions.on_data(header) and not _enter_keys(batch, header, offsets, where):
            return False
        offsets.stop = max(offsets.stop, header.next_offset)
        return True

    # -- the second walk --

    def _clean_groups(self, planned: Sequence[list[Source]], cleaner: BatchCleaner) -> None:
        """A segment becomes durable, in a thread, while the next one is written; they are told in order."""
        with ThreadPoolExecutor(1, "durable") as durable:
            ready: Future[CleanedGroup] | None = None
            for sources in planned:
                try:
                    written = self._write_group(sources, cleaner)
                except BaseException:
                    self._tell(ready)  # good all the same
                    raise
                before, ready = ready, durable.submit(self._finish_group, sources, written)
                self._tell(before)
            self._tell(ready)

    def _tell(self, ready: "Future[CleanedGroup] | None") -> None:
        if ready is not None:
            group = ready.result()
            self._after += group.size_bytes
            self._on_group(group)

    def _write_group(self, sources: list[Source], cleaner: BatchCleaner) -> CleanedSegment:
        job = self._job
        needed = sum(source.size_bytes for source in sources)
        if self._disk.free_bytes(job.directory) < needed + job.reserve_bytes:
            raise DiskFull(f"{job.directory}: no room to clean {needed} bytes beside the reserve")
        base = sources[0].base
        out = CleanedSegment(self._disk, job.directory, base, job.index_interval_bytes)
        try:
            for source in sources:
                self._clean_source(source, cleaner, out)
        except BaseException:
            out.close()
            drop_files(self._disk, job.directory, base, Mark.CLEANED)
            raise
        return out

    def _finish_group(self, sources: list[Source], out: CleanedSegment) -> CleanedGroup:
        append_ms = sources[-1].append_ms
        try:
            out.finish(append_ms)
        except BaseException:
            out.close()
            drop_files(self._disk, self._job.directory, sources[0].base, Mark.CLEANED)
            raise
        return CleanedGroup(
            bases=tuple(source.base for source in sources),
            size_bytes=out.size_bytes,
            append_ms=append_ms,
            has_txn_index=out.has_txn_index,
        )

    def _clean_source(self, source: Source, cleaner: BatchCleaner, out: CleanedSegment) -> None:
        where = self._path(source, Suffix.LOG)
        for header, batch in self._batches(source):
            kept = cleaner.clean(batch, header, where)
            if kept is not None:
                out.append(kept, header if kept is batch else parse_header(kept))
            if cleaner.aborted is not None:
                out.note_aborted(cleaner.aborted)

    # -- files --

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch of a segment, its CRC checked. Raises CorruptFile where the segment is not good to its end."""
        path = self._path(source, Suffix.LOG)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            scan = scan_segment(fd, source.size_bytes, source.base, path)
            for _, header in scan:
                if self._stopping():
                    raise CleaningStopped(f"{path}: not wanted any more")
                yield header, scan.batch(header)
            scan.require_whole()
        finally:
            os.close(fd)

    def _sized(self, source: Source) -> Sized:
        index, times = (os.stat(self._path(source, kind)).st_size for kind in (Suffix.INDEX, Suffix.TIME_INDEX))
        return Sized(source, index, times)

    def _path(self, source: Source, suffix: Suffix) -> str:
        return str(self._job.directory / segment_file(source.base, suffix))


def _enter_keys(batch: memoryview, header: BatchHeader, offsets: OffsetMap, where: str) -> bool:
    """Take a batch of data into the map; False when the map is full. Raises CorruptFile."""
    base, after, count = header.base_offset, header.next_offset, header.count
    if after <= offsets.start:
        return True
    payload = plain_payload(batch, header, where)
    quick = quick_keys(payload, count) if base >= offsets.start and after == base + count else None
    if quick is None or not quick.dense:
        rows = [(row[2], base + row[0]) for row in raw_records(payload, count, where)]
        keyed = [(key, offset) for key, offset in rows if key is not None and offset >= offsets.start]
        return offsets.put_all([key for key, _ in keyed], [offset for _, offset in keyed])
    if not offsets.put_all(quick.found, range(base, after), quick.longest):
        return False
    offsets.dense.add(base, after)
    if not quick.tombstones:
        offsets.valued.add(base, after)
    return True
