"""What remote reads see of the catalog: committed segments and the look-ups over them.

`catalog.Catalog` is the SegmentSource of a running tierer; `reader/` is written against this module alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.indexes import IndexLayout
from tierd.remote.manifest import EpochStart
from tierd.storage.view import LogSlice, SegmentView, TimestampOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A committed segment over offsets [base, next_base)."""

    part: PartitionId
    topic: str
    """The topic's name when it was copied; part of the key."""
    base: int
    next_base: int
    segment_id: Uuid
    stem: str
    """The key of its three objects without their suffix, the prefix included."""
    size_bytes: int
    """Of the local file. 0: the range is empty and no object exists."""
    indexes_bytes: int
    log_etag: str | None
    """None when unknown (taken in from a bucket whose answer gave none): read without If-Match."""
    indexes_etag: str | None
    log_crc: int | None
    """CRC-32C of the whole object; None when nobody recorded it."""
    indexes_crc: int | None
    layout: IndexLayout
    largest_timestamp_ms: int | None
    largest_timestamp_offset: int | None
    """Offset of the first record with the largest timestamp; None when unknown."""
    append_ms: int
    """Wall clock of the last append."""
    epochs: tuple[EpochStart, ...]
    """Leader epochs in the segment, starts clipped to `base`."""
    stored_bytes: int | None = None
    """Of the `.log` object when it is compressed or encrypted; None: it is the local file byte for byte."""
    key_id: str | None = None
    """The key under which the objects are encrypted."""

    @property
    def log_bytes(self) -> int:
        """Of the `.log` object."""
        return self.size_bytes if self.stored_bytes is None else self.stored_bytes

    @property
    def view(self) -> SegmentView:
        """As planners see it."""
        return SegmentView(
            base=self.base,
            next_base=self.next_base,
            size_bytes=self.size_bytes,
            largest_timestamp_ms=self.largest_timestamp_ms,
            append_ms=self.append_ms,
        )

    @property
    def log_key(self) -> str:
        return self.stem + ".log"

    @property
    def indexes_key(self) -> str:
        return self.stem + ".indexes"

    @property
    def manifest_key(self) -> str:
        return self.stem + ".rsm-manifest"


class SegmentSource(Protocol):
    """Look-ups over committed, readable segments. Any thread; each call is one short query.

    A segment whose delete has begun is not found. Should two overlap, the one with the higher base is preferred.
    """

    def covering(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        """The segment with base <= *offset* < next_base."""

    def next_after(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        """The first segment with base >= *offset* (pass a segment's `next_base` to go on behind it)."""

    def in_range(self, part: PartitionId, start: int, stop: int) -> Sequence[RemoteSegment]:
        """Segments that share an offset with [start, stop), ascending."""


class RemoteReads(Protocol):
    """What the tierer needs of `reader.RemoteReader`; semantics as `broker.ports.RemoteTier`. Event loop only.

    The spans of a LogSlice are cache files of the reader: their descriptors stay open and their bytes stay
    pinned until `release`, which the process calls when the broker has sent them.
    """

    async def read(self, part: PartitionId, offset: int, *, max_bytes: int, stop: int, committed: bool) -> LogSlice: ...

    async def by_time(
        self, part: PartitionId, timestamp_ms: int, *, start: int, stop: int
    ) -> TimestampOffset | None: ...

    async def largest_timestamp(self, part: PartitionId, *, start: int, stop: int) -> TimestampOffset | None: ...

    def forget(self, segment_id: Uuid) -> None:
        """The segment's delete has begun: drop what is cached of it and not in use."""

    async def close(self) -> None: ...
