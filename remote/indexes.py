"""The `.indexes` object: a segment's index files one after another (LAYOUT.md).

Order: offset, timestamp, producerSnapshot, leaderEpoch, then transaction when the segment has aborted transactions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tierd.base.errors import CorruptFile
from tierd.remote.ranges import ByteRange


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFiles:
    """The local files, trimmed, byte for byte."""

    offset: bytes
    timestamp: bytes
    producer_snapshot: bytes
    """The snapshot *at the segment's end* (`<next base>.snapshot`)."""
    leader_epoch: bytes
    """Checkpoint text with all entries from the log's start to the segment's end."""
    transaction: bytes | None = None
    """None when the segment has no `.txnindex`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLayout:
    """Where the parts lie in the object."""

    offset: ByteRange
    timestamp: ByteRange
    producer_snapshot: ByteRange
    leader_epoch: ByteRange
    transaction: ByteRange | None = None

    @property
    def size_bytes(self) -> int:
        """Of the whole object."""
        return max(part.stop for part in self.parts())

    def parts(self) -> tuple[ByteRange, ...]:
        """In the order in which they lie."""
        first = (self.offset, self.timestamp, self.producer_snapshot, self.leader_epoch)
        return first if self.transaction is None else (*first, self.transaction)


def join_indexes(files: IndexFiles, store: Callable[[bytes], bytes] = lambda part: part) -> tuple[bytes, IndexLayout]:
    """The object and its layout; *store* makes of each part what is stored (`transform.store_index`)."""
    bodies = [store(one) for one in (files.offset, files.timestamp, files.producer_snapshot, files.leader_epoch)]
    if files.transaction is not None:
        bodies.append(store(files.transaction))
    ranges = []
    position = 0
    for body in bodies:
        ranges.append(ByteRange(position, position + len(body)))
        position += len(body)
    return b"".join(bodies), IndexLayout(
        offset=ranges[0],
        timestamp=ranges[1],
        producer_snapshot=ranges[2],
        leader_epoch=ranges[3],
        transaction=ranges[4] if files.transaction is not None else None,
    )


def split_indexes(raw: bytes, layout: IndexLayout, where: str) -> IndexFiles:
    """The files out of the object. Raises CorruptFile when the layout reaches beyond its end."""
    if layout.size_bytes > len(raw):
        raise CorruptFile(where, len(raw), f"the manifest names {layout.size_bytes} bytes of indexes")
    offset, timestamp, snapshot, epochs, *transaction = (raw[part.start : part.stop] for part in layout.parts())
    return IndexFiles(
        offset=offset,
        timestamp=timestamp,
        producer_snapshot=snapshot,
        leader_epoch=epochs,
        transaction=transaction[0] if transaction else None,
    )
