"""Brings the facts of partitions from the bucket: heads, claims, listings, manifests. Blocking, read only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tierd.base.errors import CorruptFile
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.archive_id import Archive, read_archive
from tierd.remote.errors import NotFound
from tierd.remote.extras import SegmentExtras, from_metadata
from tierd.remote.heads import HeadEntry, list_heads, read_head
from tierd.remote.keys import Keys, ObjectKind, SegmentName, SegmentObject
from tierd.remote.manifest import Manifest, parse_manifest
from tierd.remote.open import Bucket
from tierd.remote.owner import OwnerClaim, claimed_epochs, read_claim
from tierd.remote.store import ObjectInfo
from tierd.remote.topics import list_topic_keys, read_topic
from tierd.tiering.choice import RunStart
from tierd.tiering.intake import named_row
from tierd.tiering.verify.facts import PartitionFacts, Seen, Unread


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A partition, in the order in which they are looked at."""

    topic: str
    topic_id: Uuid
    partition: int

    @property
    def part(self) -> PartitionId:
        return PartitionId(self.topic_id, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archives:
    """What is known of the whole bucket before any partition is looked at."""

    archive: Archive | None
    places: tuple[Place, ...]
    """Ascending; deleted topics are not among them, what is left of them is on its way out."""
    claims: tuple[OwnerClaim, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Documents that cannot be read, each with its key."""


def survey(bucket: Bucket) -> Archives:
    """Raises RemoteUnavailable."""
    store, keys = bucket.store, bucket.keys
    problems: list[str] = []
    archive = None
    try:
        archive = read_archive(store, keys)
    except CorruptFile as error:
        problems.append(str(error))
    claims = []
    for epoch in claimed_epochs(store, keys):
        try:
            claim = read_claim(store, keys, epoch)
        except CorruptFile as error:
            problems.append(str(error))
        else:
            claims += [claim] if claim is not None else []
    deleted = set()
    for key in list_topic_keys(store, keys):
        try:
            file = read_topic(store, keys, key.topic, key.topic_id)
        except CorruptFile as error:
            problems.append(str(error))
        else:
            deleted |= {key.topic_id} if file is not None and file.deleted_ms is not None else set()
    places = {one for one in _places(bucket) if one.topic_id not in deleted}
    return Archives(archive=archive, places=tuple(sorted(places)), claims=tuple(claims), problems=tuple(problems))


def _places(bucket: Bucket) -> Iterator[Place]:
    store, keys = bucket.store, bucket.keys
    for head in list_heads(store, keys):
        yield Place(head.topic, head.topic_id, head.partition)
    for folder in store.list_folders(keys.prefix):
        topic = keys.parse_topic_folder(folder)
        for inner in store.list_folders(folder) if topic is not None else ():
            number = inner[len(folder) : -1]
            if topic is not None and number.isascii() and number.isdigit():
                yield Place(*topic, int(number))


def read_facts(bucket: Bucket, place: Place, claims: Sequence[OwnerClaim]) -> PartitionFacts:
    """One look at a partition: its head, one LIST, the manifests of what the head does not name.

    Raises RemoteUnavailable.
    """
    store, keys = bucket.store, bucket.keys
    head, problem = None, None
    try:
        stored = read_head(store, keys, place.topic, place.topic_id, place.partition)
        head = None if stored is None else stored.head
    except CorruptFile as error:
        problem = str(error)
    listed = _list(bucket, place)
    entries = {entry.segment_id: entry for entry in head.entries} if head is not None else {}
    seen, unread = [], []
    for name, objects in listed.items():
        found = _seen(bucket, name, objects, entries.pop(name.segment_id, None))
        seen += [found] if isinstance(found, Seen) else []
        unread += [found] if isinstance(found, Unread) else []
    seen += [_only_named(keys, place, entry) for entry in entries.values()]
    runs = [(claim.epoch, claim.first_append(place.part)) for claim in claims]
    return PartitionFacts(
        part=place.part,
        topic=place.topic,
        head=head,
        head_problem=problem,
        segments=tuple(seen),
        unread=tuple(unread),
        runs=tuple(RunStart(epoch, first) for epoch, first in runs if first is not None),
    )


def _list(bucket: Bucket, place: Place) -> dict[SegmentName, dict[ObjectKind, ObjectInfo]]:
    folder = bucket.keys.partition_folder(place.topic, place.topic_id, place.partition)
    found: dict[SegmentName, dict[ObjectKind, ObjectInfo]] = {}
    for info in bucket.store.list(folder):
        key = bucket.keys.parse(info.key)
        if isinstance(key, SegmentObject):
            found.setdefault(key.name, {})[key.kind] = info
    return found


def _only_named(keys: Keys, place: Place, entry: HeadEntry) -> Seen:
    name = SegmentName(place.topic, place.topic_id, place.partition, entry.base, entry.segment_id)
    return Seen(name=name, stem=keys.stem(name), row=named_row(keys, name, entry), objects={}, entry=entry)


def _seen(
    bucket: Bucket, name: SegmentName, objects: Mapping[ObjectKind, ObjectInfo], entry: HeadEntry | None
) -> Seen | Unread | None:
    """None: objects without a manifest that no head names are no segment (on their way, or for the sweep)."""
    stem = bucket.keys.stem(name)
    if entry is not None:
        row = named_row(bucket.keys, name, entry)
        return Seen(name=name, stem=stem, row=row, objects=objects, entry=entry)
    if len(objects) < len(ObjectKind):
        return None
    try:
        manifest, extras = read_manifest(bucket, stem)
    except NotFound:
        return None
    except CorruptFile as error:
        return Unread(name.base, str(error))
    made = entry_of_manifest(manifest, extras)
    row = replace(named_row(bucket.keys, name, made), owner_epoch=extras.epoch)
    return Seen(name=name, stem=stem, row=row, objects=objects, read=(manifest, extras))


def read_manifest(bucket: Bucket, stem: str) -> tuple[Manifest, SegmentExtras]:
    """Raises NotFound, CorruptFile, RemoteUnavailable."""
    key = stem + ObjectKind.MANIFEST
    info, raw = bucket.store.get_with_info(key)
    return parse_manifest(raw, key), from_metadata(info.metadata)


def entry_of_manifest(manifest: Manifest, extras: SegmentExtras) -> HeadEntry:
    """What a head would say of it."""
    return HeadEntry(
        base=manifest.base,
        next_base=manifest.next_base,
        segment_id=manifest.segment_id,
        size_bytes=manifest.size_bytes,
        index_sizes=tuple(part.length for part in manifest.layout.parts()),
        largest_timestamp_ms=manifest.largest_timestamp_ms,
        log_crc=extras.log_crc,
        indexes_crc=extras.indexes_crc,
        epochs=manifest.epochs,
    )
