"""Rows of the catalog: the schema, and the values to and from it. No queries here (see `catalog`)."""

import json
from dataclasses import dataclass
from typing import Any

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.indexes import IndexLayout
from tierd.remote.manifest import EpochStart
from tierd.remote.ranges import ByteRange
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.segments import RemoteSegment

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE partitions (
    topic_id BLOB NOT NULL, partition INTEGER NOT NULL, topic TEXT NOT NULL,
    copied_to INTEGER, log_start INTEGER,
    delete_delay_ms INTEGER,
    head_dirty INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (topic_id, partition)
) WITHOUT ROWID;

CREATE TABLE segments (
    topic_id BLOB NOT NULL, partition INTEGER NOT NULL, base INTEGER NOT NULL, segment_id BLOB NOT NULL,
    state INTEGER NOT NULL, next_base INTEGER NOT NULL, topic TEXT NOT NULL, stem TEXT NOT NULL,
    size_bytes INTEGER NOT NULL, indexes_bytes INTEGER NOT NULL, manifest_bytes INTEGER NOT NULL,
    log_etag TEXT, indexes_etag TEXT, log_crc INTEGER, indexes_crc INTEGER,
    layout TEXT NOT NULL, largest_timestamp_ms INTEGER, largest_timestamp_offset INTEGER,
    append_ms INTEGER NOT NULL, epochs TEXT NOT NULL, records INTEGER, owner_epoch INTEGER,
    released_ms INTEGER, due_ms INTEGER,
    PRIMARY KEY (topic_id, partition, base, segment_id)
) WITHOUT ROWID;
CREATE INDEX segments_unfinished ON segments (state) WHERE state <> 1;
CREATE INDEX segments_released ON segments (released_ms) WHERE released_ms IS NOT NULL;

CREATE TABLE topics (
    topic_id BLOB PRIMARY KEY, topic TEXT NOT NULL, partitions INTEGER NOT NULL, config TEXT NOT NULL,
    created_ms INTEGER NOT NULL, deleted_ms INTEGER,
    dirty INTEGER NOT NULL
) WITHOUT ROWID;
"""

TRANSFORMS = """
ALTER TABLE segments ADD COLUMN stored_bytes INTEGER;
ALTER TABLE segments ADD COLUMN key_id TEXT;
CREATE INDEX segments_key ON segments (key_id) WHERE key_id IS NOT NULL;
"""

ADOPTED = """
ALTER TABLE topics ADD COLUMN adopted INTEGER;
"""

COLUMNS = (
    "topic_id, partition, base, segment_id, state, next_base, topic, stem, size_bytes, indexes_bytes, manifest_bytes,"
    " log_etag, indexes_etag, log_crc, indexes_crc, layout, largest_timestamp_ms, largest_timestamp_offset,"
    " append_ms, epochs, records, owner_epoch, released_ms, due_ms, stored_bytes, key_id"
)

NO_LAYOUT = IndexLayout(
    offset=ByteRange(0, 0),
    timestamp=ByteRange(0, 0),
    producer_snapshot=ByteRange(0, 0),
    leader_epoch=ByteRange(0, 0),
    transaction=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSegment:
    """A remote segment with where its life stands."""

    remote: RemoteSegment
    state: CopyState
    manifest_bytes: int = 0
    """0 is unknown: its row comes from a head's entry alone."""
    records: int | None = None
    owner_epoch: int | None = None
    """Epoch of the run that copied it; None when unknown."""
    released_ms: int | None = None
    """When log start passed it or its topic was deleted; its delete begins after the topic's delay."""
    due_ms: int | None = None
    """Objects of a failed or losing copy are not touched before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPartition:
    part: PartitionId
    topic: str
    copied_to: int | None
    log_start: int | None
    delete_delay_ms: int | None
    head_dirty: bool


def to_row(segment: CatalogSegment) -> tuple[Any, ...]:
    """Values in the order of COLUMNS."""
    remote = segment.remote
    return (
        remote.part.topic_id.raw,
        remote.part.partition,
        remote.base,
        remote.segment_id.raw,
        int(segment.state),
        remote.next_base,
        remote.topic,
        remote.stem,
        remote.size_bytes,
        remote.indexes_bytes,
        segment.manifest_bytes,
        remote.log_etag,
        remote.indexes_etag,
        remote.log_crc,
        remote.indexes_crc,
        dump_layout(remote.layout),
        remote.largest_timestamp_ms,
        remote.largest_timestamp_offset,
        remote.append_ms,
        json.dumps([[one.epoch, one.start] for one in remote.epochs]),
        segment.records,
        segment.owner_epoch,
        segment.released_ms,
        segment.due_ms,
        remote.stored_bytes,
        remote.key_id,
    )


def from_row(row: tuple[Any, ...]) -> CatalogSegment:
    """The inverse of `to_row`."""
    remote = RemoteSegment(
        part=PartitionId(Uuid(row[0]), row[1]),
        topic=row[6],
        base=row[2],
        next_base=row[5],
        segment_id=Uuid(row[3]),
        stem=row[7],
        size_bytes=row[8],
        indexes_bytes=row[9],
        log_etag=row[11],
        indexes_etag=row[12],
        log_crc=row[13],
        indexes_crc=row[14],
        layout=parse_layout(row[15]),
        largest_timestamp_ms=row[16],
        largest_timestamp_offset=row[17],
        append_ms=row[18],
        epochs=tuple(EpochStart(epoch, start) for epoch, start in json.loads(row[19])),
        stored_bytes=row[24],
        key_id=row[25],
    )
    return CatalogSegment(
        remote=remote,
        state=CopyState(row[4]),
        manifest_bytes=row[10],
        records=row[20],
        owner_epoch=row[21],
        released_ms=row[22],
        due_ms=row[23],
    )


def dump_layout(layout: IndexLayout) -> str:
    """Five [start, stop] pairs in the order of the object; null for no transaction index."""
    parts = (layout.offset, layout.timestamp, layout.producer_snapshot, layout.leader_epoch, layout.transaction)
    return json.dumps([None if part is None else [part.start, part.stop] for part in parts])


def parse_layout(text: str) -> IndexLayout:
    offset, timestamp, snapshot, epochs, transaction = json.loads(text)
    return IndexLayout(
        offset=ByteRange(*offset),
        timestamp=ByteRange(*timestamp),
        producer_snapshot=ByteRange(*snapshot),
        leader_epoch=ByteRange(*epochs),
        transaction=None if transaction is None else ByteRange(*transaction),
    )
