"""What is made of each segment, and what producers were known where a piece begins. Blocking."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tierd.base.errors import CorruptFile
from tierd.remote.body import body_of
from tierd.remote.open import Bucket
from tierd.storage.header import BatchHeader
from tierd.storage.producers import Producers
from tierd.storage.replay import take_in
from tierd.storage.scan import SegmentScan
from tierd.storage.snapshot import ProducerEntry, parse_snapshot
from tierd.tiering.seeds import read_seed
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verify.content import Pieces
from tierd.tiering.verify.look import read_manifest
from tierd.tiering.verify.segment import LogStream

Batches = Iterable[tuple[int, BatchHeader, bytes | memoryview]]
"""(position, header, bytes); the bytes of control batches only, else none."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The batches of a segment below offset *stop*: its first *size_bytes*."""

    segment: RemoteSegment
    stop: int
    size_bytes: int

    @property
    def base(self) -> int:
        return self.segment.base

    @property
    def is_whole(self) -> bool:
        return self.stop == self.segment.next_base


def whole(segment: RemoteSegment) -> Piece:
    return Piece(segment, segment.next_base, segment.size_bytes)


def piece_below(bucket: Bucket, segment: RemoteSegment, stop: int) -> Piece:
    """What another segment does not have that begins at *stop*. Raises as `remote_batches`."""
    for position, header, _ in remote_batches(bucket, segment):
        if header.next_offset > stop:
            if header.base_offset < stop:
                raise CorruptFile(segment.stem, position, f"no batch ends at {stop}, where another segment begins")
            return Piece(segment, stop, position)
    return Piece(segment, stop, segment.size_bytes)


def batches_of(scan: SegmentScan) -> Iterator[tuple[int, BatchHeader, bytes | memoryview]]:
    """Raises CorruptFile where the segment is not good to its end."""
    for position, header in scan:
        yield position, header, scan.batch(header) if header.control else b""
    scan.require_whole()


def remote_batches(bucket: Bucket, segment: RemoteSegment, size_bytes: int | None = None) -> Batches:
    """Of the segment, or of its first *size_bytes*. Raises NotFound, CorruptFile, KeyMissing, RemoteUnavailable."""
    if not segment.size_bytes:
        return ()
    manifest, _ = read_manifest(bucket, segment.stem)
    stream = LogStream(bucket, segment.stem, body_of(manifest, bucket.ring, segment.manifest_key))
    size = segment.size_bytes if size_bytes is None else size_bytes
    return batches_of(SegmentScan(Pieces(stream.pieces()).read, size, segment.base, segment.stem))


def snapshot_at_end(bucket: Bucket, segment: RemoteSegment) -> list[ProducerEntry]:
    """Producers as they are behind the segment; none when nobody kept them. Raises as `remote_batches`."""
    if not segment.layout.producer_snapshot.length:
        return []
    return parse_snapshot(read_seed(bucket, segment).snapshot, segment.indexes_key)


def producers_before(bucket: Bucket, pieces: Sequence[Piece], at: int) -> Producers:
    """Where piece number *at* begins; none where what lies before it is not there. Raises as `remote_batches`."""
    earlier = [number for number in range(at) if pieces[number].segment.size_bytes]
    if not earlier or not _adjoin(pieces[earlier[-1] : at + 1]):
        return Producers()
    last = earlier[-1]
    if pieces[last].is_whole:
        return Producers.from_entries(snapshot_at_end(bucket, pieces[last].segment), 0)
    producers = producers_before(bucket, pieces, last)
    for _, header, batch in remote_batches(bucket, pieces[last].segment, pieces[last].size_bytes):
        take_in(producers, header, batch, 0)
    return producers


def _adjoin(pieces: Sequence[Piece]) -> bool:
    return all(before.stop == after.base for before, after in pairwise(pieces))
