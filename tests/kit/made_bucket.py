"""Partitions of a few batches, cut into segments as a test wants them, in a bucket as Kafka's plugin lays it out."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from kit.clock import FakeClock
from kit.remote_log import indexed
from kit.tierer_bench import KEYS
from tierd.base.ids import Uuid
from tierd.remote import crc
from tierd.remote.chunks import FixedChunks
from tierd.remote.indexes import IndexFiles, join_indexes
from tierd.remote.keys import ObjectKind, SegmentName
from tierd.remote.manifest import EpochStart, Manifest, encode_manifest
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch, parse_header, walk
from tierd.storage.epochs import EpochEntry, encode_epochs
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.producers import Producers
from tierd.storage.records import Record
from tierd.storage.replay import aborted_entry, take_in
from tierd.storage.snapshot import encode_snapshot
from tierd.storage.txnindex import AbortedEntry, encode_txn_index

EPOCH = 3
"""The leader epoch of all batches."""


@dataclass
class MadePartition:
    topic: str
    partition: int = 0
    topic_id: Uuid = field(default_factory=lambda: Uuid(b"\x01" + os.urandom(15)))
    batches: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return parse_header(self.batches[-1]).next_offset if self.batches else 0

    def log(self, start: int = 0, stop: int = 1 << 62) -> bytes:
        """The batches in that range."""
        headers = ((parse_header(raw), raw) for raw in self.batches)
        return b"".join(raw for header, raw in headers if start <= header.base_offset and header.next_offset <= stop)

    def data(
        self, timestamp_ms: int, records: int = 1, *, producer: tuple[int, int] | None = None, sequence: int = 0
    ) -> int:
        """A batch, of a transaction of *producer* (id, epoch) if there is one; its base offset."""
        base = self.end
        values = [Record(base + i, timestamp_ms, b"k%d" % i, b"v" * 50) for i in range(records)]
        producer_id, epoch = producer or (-1, -1)
        self.batches.append(
            encode_batch(
                values,
                leader_epoch=EPOCH,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence if producer else -1,
                attributes=TRANSACTIONAL if producer else 0,
            )
        )
        return base

    def marker(self, timestamp_ms: int, producer: tuple[int, int], *, abort: bool = False) -> int:
        base = self.end
        self.batches.append(
            encode_control_batch(
                base,
                ControlType.ABORT if abort else ControlType.COMMIT,
                producer_id=producer[0],
                producer_epoch=producer[1],
                timestamp_ms=timestamp_ms,
                coordinator_epoch=0,
                leader_epoch=EPOCH,
            )
        )
        return base

    def copied(self, store: MemoryStore, *ranges: tuple[int, int]) -> None:
        """Put these offsets there as segments; they may overlap."""
        for base, stop in ranges:
            self._put(store, base, stop)

    def _put(self, store: MemoryStore, base: int, stop: int) -> None:
        log = self.log(base, stop)
        producers, aborted = Producers(), list[AbortedEntry]()
        for raw in self.batches:
            header = parse_header(raw)
            if header.next_offset > stop:
                break
            entry = aborted_entry(take_in(producers, header, raw, 0))
            if entry is not None and entry.marker_offset >= base:
                aborted.append(entry)
        plain = indexed(log, base, 100)
        files = IndexFiles(
            offset=plain.offset,
            timestamp=plain.timestamp,
            producer_snapshot=encode_snapshot(producers.entries()),
            leader_epoch=encode_epochs([EpochEntry(EPOCH, 0)]),
            transaction=encode_txn_index(aborted) if aborted else None,
        )
        indexes, layout = join_indexes(files)
        name = SegmentName(self.topic, self.topic_id, self.partition, base, Uuid(b"\x01" + os.urandom(15)))
        manifest = Manifest(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            segment_id=name.segment_id,
            base=base,
            next_base=stop,
            largest_timestamp_ms=max(header.max_timestamp_ms for _, header in walk(log)),
            node_id=1,
            written_ms=1,
            epochs=(EpochStart(EPOCH, base),),
            chunks=FixedChunks(
                original_chunk_bytes=1 << 30,  # one chunk
                original_file_bytes=len(log),
                transformed_chunk_bytes=1 << 30,
                final_transformed_bytes=len(log),
            ),
            layout=layout,
            transactions_empty=not aborted,
        )
        for kind, data in (
            (ObjectKind.LOG, log),
            (ObjectKind.INDEXES, indexes),
            (ObjectKind.MANIFEST, encode_manifest(manifest)),
        ):
            store.put(KEYS.segment(name, kind), data, crc32c=crc.crc32c(data))


def bucket_of(parts: Iterable[tuple[MadePartition, list[tuple[int, int]]]]) -> Bucket:
    store = MemoryStore(FakeClock())
    for part, ranges in parts:
        part.copied(store, *ranges)
    return Bucket(store, KEYS, "memory:")
