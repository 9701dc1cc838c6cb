"""What a cold read finds: equal segments in a bucket, and what the processes of a relay must know of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.measure import MIB
from kit import weed
from tierd.base.clock import SystemClock
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.crc import crc32c
from tierd.remote.indexes import IndexFiles, join_indexes
from tierd.remote.s3 import S3Options, S3Store
from tierd.storage.batch import patch
from tierd.storage.index import IndexEntry, encode_index
from tierd.tiering.segments import RemoteSegment

PART = PartitionId(Uuid(bytes(16)), 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the child processes must know."""

    kind: str
    """"bare" or "tierd"."""
    endpoint: str
    bucket: str
    place: str
    segments: int
    segment_bytes: int
    batch_bytes: int
    batch_count: int
    range_bytes: int
    in_flight: int
    cache_bytes: int = 0

    def store(self) -> S3Store:
        options = S3Options(
            endpoint=self.endpoint,
            path_style=True,
            access_key_id=weed.ACCESS_KEY,
            secret_access_key=weed.SECRET_KEY,
        )
        return S3Store(self.bucket, options, clock=SystemClock())

    def key(self, number: int) -> str:
        return f"cold/{number:05d}"

    def per_segment(self) -> int:
        """Offsets in a segment."""
        return self.segment_bytes // self.batch_bytes * self.batch_count


class Rows:
    """A SegmentSource of equal segments."""

    def __init__(self, plan: Plan, store: S3Store) -> None:
        self._each = plan.per_segment()
        self._rows = [_row(plan, store, number) for number in range(plan.segments)]

    def covering(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        number = offset // self._each
        return self._rows[number] if 0 <= number < len(self._rows) else None

    def next_after(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        return self.covering(part, -(-offset // self._each) * self._each)

    def in_range(self, part: PartitionId, start: int, stop: int) -> Sequence[RemoteSegment]:
        return [row for row in self._rows if row.base < stop and start < row.next_base]


def _row(plan: Plan, store: S3Store, number: int) -> RemoteSegment:
    files = index_files(plan)
    raw, layout = join_indexes(files)
    base = number * plan.per_segment()
    return RemoteSegment(
        part=PART, topic="cold", base=base, next_base=base + plan.per_segment(),
        segment_id=Uuid(number.to_bytes(16, "big")), stem=plan.key(number),
        size_bytes=plan.segment_bytes, indexes_bytes=len(raw),
        log_etag=store.head(plan.key(number) + ".log").etag, indexes_etag=None, log_crc=None, indexes_crc=None,
        layout=layout, largest_timestamp_ms=None, largest_timestamp_offset=None, append_ms=0, epochs=(),
    )  # fmt: skip


def index_files(plan: Plan) -> IndexFiles:
    """The same for each segment: an entry per batch but the first, as 4 KiB of interval give with larger batches."""
    count = plan.segment_bytes // plan.batch_bytes
    entries = [IndexEntry((n + 1) * plan.batch_count - 1, n * plan.batch_bytes) for n in range(1, count)]
    return IndexFiles(offset=encode_index(entries, 0), timestamp=b"", producer_snapshot=b"", leader_epoch=b"")


def fill(plan: Plan, batch: bytes) -> None:
    """Put the segments into the bucket."""
    store = plan.store()
    indexes, _ = join_indexes(index_files(plan))
    for number in range(plan.segments):
        log = bytearray(batch * (plan.segment_bytes // plan.batch_bytes))
        for n in range(plan.segment_bytes // plan.batch_bytes):
            patch(log, n * plan.batch_bytes, number * plan.per_segment() + n * plan.batch_count, 0)
        upload = store.begin_upload(plan.key(number) + ".log")
        for part in range(0, len(log), 16 * MIB):
            data = bytes(log[part : part + 16 * MIB])
            upload.put_part(part // (16 * MIB) + 1, data, crc32c=crc32c(data))
        upload.complete()
        store.put(plan.key(number) + ".indexes", indexes, crc32c=crc32c(indexes))
