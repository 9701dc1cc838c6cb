"""Partitions that lie wholly in a MemoryStore, rows that name their segments, and a plain list to hold reads to."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kit.clock import FakeClock
from tierd.base.ids import PartitionId, Uuid
from tierd.remote import crc
from tierd.remote.indexes import IndexFiles, join_indexes
from tierd.remote.manifest import EpochStart
from tierd.remote.memory import MemoryStore
from tierd.storage.batch import BatchHeader, encode_batch, walk
from tierd.storage.index import IndexEntry, encode_index
from tierd.storage.records import Record, iter_records
from tierd.storage.timeindex import encode_time_entry
from tierd.storage.view import LogSlice
from tierd.tiering.reader import ReaderOptions, RemoteReader
from tierd.tiering.rows import NO_LAYOUT
from tierd.tiering.segments import RemoteSegment

T = TypeVar("T")
PART = PartitionId(Uuid(bytes(15) + b"\x01"), 0)
FAR = 1 << 60


def bare_segment(base: int, next_base: int, segment_id: Uuid, *epochs: tuple[int, int]) -> RemoteSegment:
    """A copy of [base, next_base) without objects, for those who look at offsets, ids and (epoch, start) only."""
    return RemoteSegment(
        part=PART, topic="t", base=base, next_base=next_base, segment_id=segment_id, stem="",
        size_bytes=1, indexes_bytes=1, log_etag=None, indexes_etag=None, log_crc=None, indexes_crc=None,
        layout=NO_LAYOUT, largest_timestamp_ms=None, largest_timestamp_offset=None, append_ms=0,
        epochs=tuple(EpochStart(*one) for one in epochs),
    )  # fmt: skip


class Rows:
    """A SegmentSource over a list; counts its look-ups."""

    def __init__(self) -> None:
        self.segments: list[RemoteSegment] = []
        self.asked = 0

    def covering(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        self.asked += 1
        return next((s for s in self.segments if s.part == part and s.base <= offset < s.next_base), None)

    def next_after(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        self.asked += 1
        return next((s for s in self.segments if s.part == part and s.base >= offset), None)

    def in_range(self, part: PartitionId, start: int, stop: int) -> Sequence[RemoteSegment]:
        return [s for s in self.segments if s.part == part and s.base < stop and start < s.next_base]


@dataclass(slots=True)
class RemoteLog:
    """One bucket, its rows, and all batches of PART in order."""

    store: MemoryStore = field(default_factory=lambda: MemoryStore(FakeClock()))
    rows: Rows = field(default_factory=Rows)
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store.before = lambda operation, key: self.gets.append(key) if operation == "get" else None

    def add(
        self, log: bytes, base: int, next_base: int, indexes: IndexFiles, *, knows_largest: bool = False
    ) -> RemoteSegment:
        """Commit a segment behind the ones that are there."""
        raw, layout = join_indexes(indexes)
        id = Uuid(hashlib.sha256(f"{base}".encode()).digest()[:16])
        stem = f"tier/t-{PART.topic_id}/0/{base:020d}-{id}"
        batches = [(header, log[at : at + header.size_bytes]) for at, header in walk(log)]
        times = [(r.timestamp_ms, -r.offset) for h, b in batches for r in iter_records(b, h) if r.timestamp_ms >= 0]
        largest, at = max(times, default=(None, None))
        segment = RemoteSegment(
            part=PART, topic="t", base=base, next_base=next_base, segment_id=id, stem=stem,
            size_bytes=len(log), indexes_bytes=len(raw),
            log_etag=self._put(stem + ".log", log) if log else None,
            indexes_etag=self._put(stem + ".indexes", raw),
            log_crc=None, indexes_crc=None, layout=layout,
            largest_timestamp_ms=largest, largest_timestamp_offset=-at if knows_largest and at is not None else None,
            append_ms=0, epochs=(EpochStart(0, base),),
        )  # fmt: skip
        self.rows.segments.append(segment)
        self.batches += batches
        return segment

    def _put(self, key: str, data: bytes) -> str:
        return self.store.put(key, data, crc32c=crc.crc32c(data)).etag

    @property
    def start(self) -> int:
        return self.rows.segments[0].base

    @property
    def end(self) -> int:
        return self.rows.segments[-1].next_base

    def expected(self, offset: int, max_bytes: int, stop: int = FAR) -> bytes:
        """What a reader that is not held up by downloads would give."""
        out = b""
        for header, raw in self.batches:
            if header.next_offset <= offset:
                continue
            if header.base_offset >= stop or (out and len(out) + len(raw) > max_bytes):
                break
            out += raw
        return out

    def records(self) -> list[tuple[Record, BatchHeader]]:
        return [(record, header) for header, raw in self.batches for record in iter_records(raw, header)]


def indexed(log: bytes, base: int, interval: int = 512) -> IndexFiles:
    """The index files of a segment by the rule of FORMAT.md ("Offset index"), near enough for tests."""
    since, largest, offsets, times = 0, (-1, 0), [], [(-1, 0)]
    for position, header in walk(log):
        if header.max_timestamp_ms > largest[0]:
            largest = (header.max_timestamp_ms, header.last_offset)
        if since > interval:
            offsets.append(IndexEntry(header.last_offset, position))
            if largest[0] > times[-1][0]:
                times.append(largest)
            since = 0
        since += header.size_bytes
    if largest[0] > times[-1][0]:
        times.append(largest)
    raw_times = b"".join(encode_time_entry(at, offset, base) for at, offset in times[1:])
    return IndexFiles(offset=encode_index(offsets, base), timestamp=raw_times, producer_snapshot=b"", leader_epoch=b"")


def synthetic(segments: int, batches: int, *, value_bytes: int = 300, per_batch: int = 3) -> RemoteLog:
    """A log of equal segments; timestamps step by 10 ms a record."""
    log, offset = RemoteLog(), 0
    for _ in range(segments):
        base, raw = offset, b""
        for _ in range(batches):
            records = [
                Record(offset + i, 1000 + 10 * (offset + i), b"k", os.urandom(value_bytes)) for i in range(per_batch)
            ]
            raw += encode_batch(records)
            offset += per_batch
        log.add(raw, base, offset, indexed(raw, base))
    return log


def recorded(directory: Path) -> RemoteLog:
    """A partition directory that Kafka wrote, as if every segment of it had been copied."""
    log = RemoteLog()
    logs = sorted(directory.glob("*.log"))
    bases = [int(path.stem) for path in logs]
    for path, base, after in zip(logs, bases, [*bases[1:], -1], strict=True):
        raw = path.read_bytes()
        ends = [header.next_offset for _, header in walk(raw)]
        txn = path.with_suffix(".txnindex")
        files = IndexFiles(
            offset=path.with_suffix(".index").read_bytes(),
            timestamp=path.with_suffix(".timeindex").read_bytes(),
            producer_snapshot=b"",
            leader_epoch=b"",
            transaction=txn.read_bytes() if txn.exists() else None,
        )
        log.add(raw, base, after if after >= 0 else max(ends, default=base + 1), files, knows_largest=base % 2 == 0)
    return log


SMALL = ReaderOptions(
    first_bytes=1024, stretch_bytes=2048, range_bytes=4096, read_ahead=3, cache_bytes=1 << 22, memory_bytes=1 << 16
)


@asynccontextmanager
async def reader_of(log: RemoteLog, directory: Path, options: ReaderOptions = SMALL) -> AsyncIterator[RemoteReader]:
    reader = RemoteReader(log.store, log.rows, directory, FakeClock(), options)
    try:
        yield reader
    finally:
        await reader.close()


def content(slice: LogSlice) -> bytes:
    """The bytes, read the way the broker would, then released."""
    data = b"".join(os.pread(span.fd, span.length, span.position) for span in slice.spans)
    assert len(data) == slice.length
    slice.release()
    return data


async def read_all(reader: RemoteReader, offset: int, max_bytes: int, stop: int = FAR) -> bytes:
    """A consumer that goes on until nothing comes."""
    out = b""
    while True:
        slice = await reader.read(PART, offset, max_bytes=max_bytes, stop=stop, committed=False)
        if not slice.length:
            return out
        assert slice.stop is not None
        assert slice.stop > offset
        out += content(slice)
        offset = slice.stop


def run(work: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work(), 60)

    return asyncio.run(bounded())


def bodies(headers: Iterable[tuple[BatchHeader, bytes]]) -> bytes:
    return b"".join(raw for _, raw in headers)
