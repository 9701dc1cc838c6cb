"""Reading segments again: after an unclean stop, and wherever an index, snapshot or epoch file is missing or wrong.

What a segment holds is what a walk over its batches finds good (scan.py); everything else follows from that. The
table in ENGINE.md, "Recovery", says what becomes of each kind of damage.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.storage.aborted import AbortedEntries
from tierd.storage.batch import BatchHeader
from tierd.storage.gaps import Gap
from tierd.storage.indexing import IndexBuilder
from tierd.storage.lineage import Lineage
from tierd.storage.names import Suffix
from tierd.storage.producers import CompletedTxn, Producers
from tierd.storage.progress import Meter
from tierd.storage.replay import aborted_entry, take_in
from tierd.storage.scan import SegmentScan, pread, scan_segment
from tierd.storage.segment import Indexes, Segment, read_aborted
from tierd.storage.setaside import SetAside
from tierd.storage.txnindex import AbortedEntry

OnBatch = Callable[[int, int, BatchHeader], None]
"""(descriptor, position, header) of each good batch."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that recovery took out of a segment."""

    base: int
    next_offset: int
    """Offset after the last good batch that is left."""
    position: int
    size_bytes: int
    reason: str


def walk_segment(
    segment: Segment,
    on_batch: OnBatch,
    stop: int | None = None,
    meter: Meter | None = None,
    size_bytes: int | None = None,
) -> SegmentScan:
    """Walk the good batches of a segment, or of its first *size_bytes*; those at or above *stop*, the next segment's
    base, are not good.

    Any thread: the descriptor is its own. *meter* had been told to expect the segment.
    """
    size_bytes = segment.size_bytes if size_bytes is None else size_bytes
    with segment.handle.path.open("rb", buffering=0) as file:
        fd = file.fileno()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        read = pread(fd) if meter is None else meter.counted(pread(fd))
        scan = scan_segment(read, size_bytes, segment.base, segment.where)
        end = segment.base
        for position, header in scan:
            if stop is not None and header.last_offset >= stop:
                scan.good_bytes = position
                scan.next_offset = header.base_offset if header.base_offset < stop else end
                scan.problem = CorruptFile(
                    segment.where, position, f"offset {header.last_offset} is the next segment's"
                )
                break
            end = header.next_offset
            on_batch(fd, position, header)
    if meter is not None:
        meter.segment_done()
    return scan


def build_indexes(
    segment: Segment,
    interval_bytes: int,
    meter: Meter | None = None,
    stop: int | None = None,
    size_bytes: int | None = None,
) -> tuple[Indexes, int]:
    """Both indexes of a closed segment from its log, as far as that is good and below *stop*, and the offset after
    it. Any thread."""
    builder = IndexBuilder(segment.base)

    def on_batch(_: int, position: int, header: BatchHeader) -> None:
        builder.note(position, header.size_bytes, header.last_offset, header.max_timestamp_ms, interval_bytes)

    scan = walk_segment(segment, on_batch, stop, meter, size_bytes)
    builder.note_time()
    return Indexes(builder.offsets, builder.times), scan.next_offset


def rebuild_indexes(segment: Segment, disk: Disk, interval_bytes: int, meter: Meter, stop: int | None) -> None:
    """Write the indexes that `build_indexes` makes."""
    indexes, _ = build_indexes(segment, interval_bytes, meter, stop)
    for suffix, raw in ((Suffix.INDEX, indexes.offsets.to_bytes()), (Suffix.TIME_INDEX, indexes.times.to_bytes())):
        disk.write_new(segment.path(suffix), raw)
        disk.fsync_file(segment.path(suffix))


def cut_off(
    set_aside: SetAside,
    disk: Disk,
    name: TopicPartition,
    segment: Segment,
    position: int,
    next_offset: int,
    reason: str,
    inode: int | None = None,
) -> Cut | None:
    """Take all from *position* on out of the segment's log, set aside and durable; None when it was only zeros.

    Any thread, with *inode*: raises CorruptFile when another file has the log's name now. The segment itself is left
    to the caller.
    """
    path, size_bytes = segment.handle.path, segment.size_bytes
    kept = set_aside.cut(name, path, position, size_bytes)
    file = disk.open(path)
    try:
        if inode is not None and os.fstat(file.fd).st_ino != inode:
            raise CorruptFile(str(path), position, "what was to be cut has been replaced")
        file.truncate(position)
        file.fsync()  # the recovery point may be here: nobody would look for what comes back behind it
    finally:
        file.close()
    disk.set_mtime(path, segment.append_ms)
    return None if kept is None else Cut(segment.base, next_offset, position, size_bytes - position, reason)


class Recovery:
    """Re-reads segments of one partition in order and lets what it finds flow into producers and lineage."""

    def __init__(
        self,
        name: TopicPartition,
        disk: Disk,
        set_aside: SetAside,
        producers: Producers,
        lineage: Lineage,
        now_ms: int,
        meter: Meter | None = None,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> None:
        """*on_gap* hears of offsets that are lost before the bytes are cut: afterwards nothing tells of them."""
        self._name = name
        self._disk = disk
        self._set_aside = set_aside
        self._now_ms = now_ms
        self._meter = meter
        self._on_gap = on_gap
        self.producers = producers
        self.lineage = lineage
        self.cuts: list[Cut] = []
        self.sparse = False
        """Whether a recovered segment had holes between its batches or records: it was compacted."""

    def replay(self, segment: Segment, start: int) -> None:
        """Take the batches from offset *start* on into the producer state; the files stay as they are."""

        def on_batch(fd: int, position: int, header: BatchHeader) -> None:
            if header.base_offset >= start:
                self._take_in(fd, position, header)

        walk_segment(segment, on_batch, meter=self._meter)

    def recover(self, segment: Segment, next_base: int | None, interval_bytes: int) -> int:
        """Keep the good part of the segment, set the rest aside, make its indexes again; give the offset after it.

        The segment is left with a builder, as if it were active; `seal` and `close` it unless it is.
        """
        builder = IndexBuilder(segment.base)
        aborted: list[AbortedEntry] = []
        expected = None

        def on_batch(fd: int, position: int, header: BatchHeader) -> None:
            nonlocal expected
            if header.count <= header.last_offset_delta or header.base_offset != (expected or header.base_offset):
                self.sparse = True
            expected = header.next_offset
            builder.note(position, header.size_bytes, header.last_offset, header.max_timestamp_ms, interval_bytes)
            self.lineage.note(header.leader_epoch, header.base_offset)
            entry = aborted_entry(self._take_in(fd, position, header))
            if entry is not None:
                aborted.append(entry)

        scan = walk_segment(segment, on_batch, next_base, self._meter)
        if next_base is not None and scan.next_offset < next_base:
            aborted += _named_behind(segment, scan.next_offset, next_base)
        segment.activate(self._disk, builder, AbortedEntries())
        if scan.good_bytes < segment.size_bytes:
            if next_base is not None and scan.next_offset < next_base and self._on_gap is not None:
                self._on_gap((scan.next_offset, next_base))
            reason = scan.problem.reason if scan.problem is not None else ""
            cut = cut_off(self._set_aside, self._disk, self._name, segment, scan.good_bytes, scan.next_offset, reason)
            segment.size_bytes = scan.good_bytes
            if cut is not None:
                self.cuts.append(cut)
        segment.hints.clear()
        self._rewrite(segment, aborted)
        return scan.next_offset

    def forget_aborted(self, segment: Segment, end: int) -> None:
        """The log ends at *end*, in *segment*: what its index names of markers behind that is not known any more."""
        assert segment.aborted is not None
        aborted = list(segment.aborted.since(0))
        kept = [entry for entry in aborted if entry.marker_offset < end]
        if kept != aborted:
            self._rewrite(segment, kept)

    def _take_in(self, fd: int, position: int, header: BatchHeader) -> CompletedTxn | None:
        batch = os.pread(fd, header.size_bytes, position) if header.control else b""
        return take_in(self.producers, header, batch, self._now_ms)

    def _rewrite(self, segment: Segment, aborted: list[AbortedEntry]) -> None:
        """The index files from nothing: what is on disk may be anything."""
        if segment.has_txn_index:
            self._disk.unlink(segment.path(Suffix.TXN_INDEX))
        segment.set_aborted(aborted)
        segment.write_indexes(self._disk, trim=True, anew=True)


def _named_behind(segment: Segment, end: int, next_base: int) -> list[AbortedEntry]:
    """Transactions whose marker was lost with all from *end* on: their other records must stay unseen."""
    try:
        return list(read_aborted(segment, next_base).since(end))
    except CorruptFile:
        return []
