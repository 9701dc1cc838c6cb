"""Takes what the bucket holds into rows of the catalog: from LIST, manifests and head entries. Blocking."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tierd.base.errors import CorruptFile
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.errors import NotFound
from tierd.remote.extras import SegmentExtras, from_metadata
from tierd.remote.heads import HeadEntry
from tierd.remote.indexes import IndexLayout
from tierd.remote.keys import Keys, ObjectKind, SegmentName, SegmentObject
from tierd.remote.manifest import Manifest, parse_manifest
from tierd.remote.ranges import ByteRange
from tierd.remote.store import ObjectInfo, ObjectStore
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import NO_LAYOUT, CatalogSegment
from tierd.tiering.segments import RemoteSegment

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """The objects of one stem, as a LIST shows them."""

    name: SegmentName
    objects: dict[ObjectKind, ObjectInfo] = field(default_factory=dict)

    @property
    def part(self) -> PartitionId:
        return PartitionId(self.name.topic_id, self.name.partition)

    @property
    def committed(self) -> bool:
        """The manifest is the commit point; the two others must be there with it."""
        return len(self.objects) == len(ObjectKind)


def list_segments(store: ObjectStore, keys: Keys, folder: str, start_after: str | None = None) -> list[Found]:
    """Every stem below *folder* (a topic's or a partition's), whole or not, by partition and base."""
    found: dict[SegmentName, Found] = {}
    for info in store.list(folder, start_after=start_after):
        key = keys.parse(info.key)
        if isinstance(key, SegmentObject):
            found.setdefault(key.name, Found(key.name)).objects[key.kind] = info
    return [found[name] for name in sorted(found)]


def row_of(store: ObjectStore, keys: Keys, found: Found, named: Mapping[Uuid, HeadEntry]) -> CatalogSegment | None:
    """The row of a committed stem: from the head's entry when it names the segment, else from its manifest (one GET).

    None, and a line in the log, when the objects do not fit together: such a segment is a gap, never half a segment.
    """
    if not found.committed:
        return None
    log_info, indexes = found.objects[ObjectKind.LOG], found.objects[ObjectKind.INDEXES]
    entry = named.get(found.name.segment_id)
    stem = keys.stem(found.name)
    if entry is not None and _log_bytes(entry) == log_info.size and sum(entry.index_sizes) == indexes.size:
        manifest_bytes = found.objects[ObjectKind.MANIFEST].size
        return _from_entry(found.name, stem, entry, log_info, indexes, manifest_bytes)
    return _from_manifest(store, found.name, stem, log_info, indexes)


def _log_bytes(entry: HeadEntry) -> int:
    return entry.size_bytes if entry.stored_bytes is None else entry.stored_bytes


def named_row(keys: Keys, name: SegmentName, entry: HeadEntry) -> CatalogSegment:
    """The row of what only a head's entry tells: a range without records, or a segment that is not whole any more."""
    nothing = ObjectInfo(key="", size=0, etag="", modified_ms=0)
    return _from_entry(name, keys.stem(name), entry, nothing, replace(nothing, size=sum(entry.index_sizes)), 0)


def committed_row(store: ObjectStore, name: SegmentName, stem: str) -> CatalogSegment | None:
    """The row of one segment, asked for object by object; None when its manifest or its data is not there."""
    try:
        log_info, indexes = store.head(stem + ObjectKind.LOG), store.head(stem + ObjectKind.INDEXES)
        return _from_manifest(store, name, stem, log_info, indexes)
    except NotFound:
        return None


def _from_manifest(
    store: ObjectStore, name: SegmentName, stem: str, log_info: ObjectInfo, indexes: ObjectInfo
) -> CatalogSegment | None:
    key = stem + ObjectKind.MANIFEST
    try:
        info, raw = store.get_with_info(key)
        manifest = parse_manifest(raw, key)
    except NotFound:
        return None
    except CorruptFile:
        log.exception("a manifest does not parse: its segment counts as missing", extra={"key": key})
        return None
    if not _fits(manifest, name, log_info, indexes):
        log.error("a manifest and its objects disagree: the segment counts as missing", extra={"key": key})
        return None
    extras = from_metadata(info.metadata)
    entry = HeadEntry(
        base=manifest.base,
        next_base=manifest.next_base,
        segment_id=name.segment_id,
        size_bytes=manifest.size_bytes,
        index_sizes=tuple(part.length for part in manifest.layout.parts()),
        largest_timestamp_ms=manifest.largest_timestamp_ms,
        largest_timestamp_offset=extras.largest_timestamp_offset,
        append_ms=_append_ms(extras, manifest),
        records=extras.records,
        log_crc=_first_known(extras.log_crc, log_info.crc32c),
        indexes_crc=_first_known(extras.indexes_crc, indexes.crc32c),
        epochs=manifest.epochs,
        stored_bytes=manifest.stored_bytes,
        key_id=None if manifest.encryption is None else manifest.encryption.key_id,
    )
    row = _from_entry(name, stem, entry, log_info, indexes, len(raw))
    return replace(row, owner_epoch=extras.epoch, remote=replace(row.remote, layout=manifest.layout))


def _fits(manifest: Manifest, name: SegmentName, log_info: ObjectInfo, indexes: ObjectInfo) -> bool:
    same_segment = (manifest.segment_id, manifest.base) == (name.segment_id, name.base)
    log_bytes = manifest.size_bytes if manifest.stored_bytes is None else manifest.stored_bytes
    return same_segment and (log_bytes, manifest.layout.size_bytes) == (log_info.size, indexes.size)


def _append_ms(extras: SegmentExtras, manifest: Manifest) -> int:
    """Append time, or where nobody kept it the time of the copy: later, so that it deletes nothing too early."""
    return manifest.written_ms if extras.append_ms is None else extras.append_ms


def _first_known(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _from_entry(
    name: SegmentName, stem: str, entry: HeadEntry, log_info: ObjectInfo, indexes: ObjectInfo, manifest_bytes: int
) -> CatalogSegment:
    return CatalogSegment(
        remote=RemoteSegment(
            part=PartitionId(name.topic_id, name.partition),
            topic=name.topic,
            base=entry.base,
            next_base=entry.next_base,
            segment_id=entry.segment_id,
            stem=stem,
            size_bytes=entry.size_bytes,
            indexes_bytes=indexes.size,
            log_etag=log_info.etag or None,
            indexes_etag=indexes.etag or None,
            log_crc=entry.log_crc,
            indexes_crc=entry.indexes_crc,
            layout=layout_of(entry.index_sizes),
            largest_timestamp_ms=entry.largest_timestamp_ms,
            largest_timestamp_offset=entry.largest_timestamp_offset,
            append_ms=_first_known(entry.append_ms, log_info.modified_ms) or 0,
            epochs=entry.epochs,
            stored_bytes=entry.stored_bytes,
            key_id=entry.key_id,
        ),
        state=CopyState.COPY_FINISHED,
        manifest_bytes=manifest_bytes,
        records=entry.records,
    )


def layout_of(sizes: Iterable[int]) -> IndexLayout:
    """Where the parts of `.indexes` lie, from their sizes in order (four or five; none of an empty range)."""
    ranges: list[ByteRange] = []
    position = 0
    for size in sizes:
        ranges.append(ByteRange(position, position + size))
        position += size
    if not ranges:
        return NO_LAYOUT
    return IndexLayout(
        offset=ranges[0],
        timestamp=ranges[1],
        producer_snapshot=ranges[2],
        leader_epoch=ranges[3],
        transaction=ranges[4] if len(ranges) > 4 else None,
    )


def entry_of(segment: CatalogSegment) -> HeadEntry:
    """What the head says of a committed segment."""
    remote = segment.remote
    sizes = tuple(part.length for part in remote.layout.parts()) if remote.size_bytes else ()
    return HeadEntry(
        base=remote.base,
        next_base=remote.next_base,
        segment_id=remote.segment_id,
        size_bytes=remote.size_bytes,
        index_sizes=sizes,
        largest_timestamp_ms=remote.largest_timestamp_ms,
        largest_timestamp_offset=remote.largest_timestamp_offset,
        append_ms=remote.append_ms,
        records=segment.records,
        log_crc=remote.log_crc,
        indexes_crc=remote.indexes_crc,
        epochs=remote.epochs,
        stored_bytes=remote.stored_bytes,
        key_id=remote.key_id,
    )
