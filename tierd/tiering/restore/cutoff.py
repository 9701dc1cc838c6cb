"""The end of a segment taken off: its log is cut on the disk, and its indexes tell of what is left."""

from bisect import bisect_left
from pathlib import Path

from tierd.base.disk import Disk
from tierd.remote.indexes import IndexFiles
from tierd.storage.names import Suffix
from tierd.storage.producers import Producers
from tierd.storage.replay import take_in
from tierd.storage.scan import SegmentScan, pread
from tierd.storage.snapshot import encode_snapshot
from tierd.storage.sparse import OffsetEntries, TimeEntries
from tierd.storage.txnindex import encode_txn_index, parse_txn_index
from tierd.tiering.restore.pieces import Piece, batches_of


def cut_off(disk: Disk, path: Path, piece: Piece, files: IndexFiles, producers: Producers) -> dict[Suffix, bytes]:
    """The other files of *piece*. The whole segment, checked, lies at *path*; *producers* are as where it begins.

    Durable when it returns. Raises CorruptFile, DiskFull, OSError.
    """
    position, latest_ms, latest_offset = 0, -1, piece.base
    with path.open("rb", buffering=0) as reader:
        scan = SegmentScan(pread(reader.fileno()), path.stat().st_size, piece.base, str(path))
        for _, header, batch in batches_of(scan):
            if header.next_offset > piece.stop:
                break
            take_in(producers, header, batch, 0)
            position = scan.good_bytes
            if header.max_timestamp_ms > latest_ms:
                latest_ms, latest_offset = header.max_timestamp_ms, header.last_offset
    file = disk.open(path)
    try:
        file.truncate(position)
        file.fsync()
    finally:
        file.close()
    found = {
        Suffix.INDEX: _offsets(files, piece, position).to_bytes(),
        Suffix.TIME_INDEX: _times(files, piece, latest_ms, latest_offset).to_bytes(),
        Suffix.SNAPSHOT: encode_snapshot(producers.entries()),
    }
    aborted = [one for one in parse_txn_index(files.transaction or b"") if one.marker_offset < piece.stop]
    return found | ({Suffix.TXN_INDEX: encode_txn_index(aborted)} if aborted else {})


def _offsets(files: IndexFiles, piece: Piece, position: int) -> OffsetEntries:
    segment = piece.segment
    found = OffsetEntries.from_bytes(files.offset, segment.base, segment.indexes_key, segment.size_bytes)
    count = bisect_left(found.positions, position)
    del found.positions[count:], found.relatives[count:]
    return found


def _times(files: IndexFiles, piece: Piece, latest_ms: int, latest_offset: int) -> TimeEntries:
    """The last entry is the largest time, as closing a segment writes it."""
    segment = piece.segment
    found = TimeEntries.from_bytes(files.timestamp, segment.base, segment.indexes_key, segment.next_base)
    count = bisect_left(found.offsets, piece.stop)
    del found.offsets[count:], found.timestamps[count:]
    if latest_ms > (-1 if found.last is None else found.last[0]):
        found.add(latest_ms, latest_offset)
    return found
