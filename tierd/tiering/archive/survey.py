"""One look at a bucket that is only read: archive id, claims, topic files, heads and a LIST of every topic. Blocking.

What was read once and has not changed since is not asked for again.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import MAX_PARTITIONS
from tierd.remote.archive_id import check_archive, read_archive
from tierd.remote.heads import HEAD, Head
from tierd.remote.keys import HeadKey, OwnerKey, TopicFileKey
from tierd.remote.open import Bucket
from tierd.remote.owner import CLAIM, OwnerClaim
from tierd.remote.store import ObjectInfo
from tierd.remote.topics import TOPIC, TopicFile
from tierd.remote.view import ArchivedPartition, ArchivedTopic, RemotePartition
from tierd.tiering.archive.documents import Documents
from tierd.tiering.archive.naming import Claimant, names_of
from tierd.tiering.archive.partition import PartitionLook, Taken
from tierd.tiering.catalog import Catalog
from tierd.tiering.choice import RunStart
from tierd.tiering.intake import Found, list_segments
from tierd.tiering.opening import ARCHIVE

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 8


@dataclass(slots=True)
class _Topic:
    """What was found of one topic."""

    topic: str
    partitions: int = 0
    file: TopicFile | None = None


@dataclass(slots=True)
class Changes:
    """What looks have changed for readers, also one that failed in the middle."""

    gone: list[Uuid] = field(default_factory=list)
    """Segments that they no longer see."""
    rearranged: set[PartitionId] = field(default_factory=set)


@dataclass(slots=True)
class Survey:
    """Kept from one look to the next; one at a time."""

    bucket: Bucket
    catalog: Catalog
    deleted: tuple[TopicFile, ...] = ()
    """Tombstones that the last look has shown."""
    left_of_deleted: frozenset[PartitionId] = frozenset()
    """Of their partitions those that still have objects."""
    _claims: Documents[OwnerClaim] = field(init=False)
    _files: Documents[TopicFile] = field(init=False)
    _heads: Documents[Head] = field(init=False)
    _taken: dict[PartitionId, tuple[int, Taken]] = field(default_factory=dict)
    """With the hash of all that it was made of."""
    _changes: Changes = field(default_factory=Changes)

    def __post_init__(self) -> None:
        store = self.bucket.store
        self._claims = Documents(lambda key: CLAIM.get(store, key)[0])
        self._files = Documents(lambda key: TOPIC.get(store, key)[0])
        self._heads = Documents(lambda key: HEAD.get(store, key)[0])

    def changes(self) -> Changes:
        """Since they were asked for the last time. Not while a look goes on."""
        found, self._changes = self._changes, Changes()
        return found

    def look(self) -> dict[Uuid, ArchivedTopic]:
        """All topics. Raises WrongBucket, RemoteUnavailable, DiskFull; what was known before still holds then."""
        self._check_archive()
        keys = self.bucket.keys
        claims = [claim for _, claim in sorted(self._claims.look(self._listed(keys.owner_folder, OwnerKey)).items())]
        files = self._files.look(self._listed(keys.topics_folder, TopicFileKey))
        heads = self._heads.look(self._listed(keys.partitions_folder, HeadKey))
        by_part = self._segments()
        by_head = {
            PartitionId(head.topic_id, head.partition): head
            for key, head in heads.items()
            if key == keys.head(head.topic, head.topic_id, head.partition) and head.partition < MAX_PARTITIONS
        }
        own = [file for key, file in files.items() if key == keys.topic_file(file.topic, file.topic_id)]
        self.deleted = tuple(file for file in own if file.deleted_ms is not None)
        gone = {file.topic_id for file in self.deleted}
        self.left_of_deleted = frozenset(part for part in by_part if part.topic_id in gone)
        topics = _topics(own, by_head.values(), by_part)
        if not topics and self.catalog.partitions():
            raise RemoteUnavailable(f"{self.bucket.url} shows no topic any more: is what should be there mounted?")
        parts = [(part, by_part.get(part, []), by_head.get(part)) for part in {*by_part, *by_head}]
        alive = [one for one in parts if one[0].topic_id in topics]
        taken = dict(self._all(lambda one: (one[0], self._take(*one, claims)), alive))
        self._drop({row.part for row in self.catalog.partitions()} - set(taken))
        return _named(topics, taken)

    @property
    def has_owner(self) -> bool:
        """Whether a tierd has been there, if only to begin; as far as the last look has shown."""
        return self.catalog.get(ARCHIVE) is not None

    @property
    def lacks(self) -> str | None:
        """Which keys the ring lacks, in a sentence; as far as the last look has shown."""
        missing = sorted(self.catalog.key_uses().keys() - self.bucket.ring.ids)
        return (
            f"remote.encryption.key.files lacks {', '.join(missing)}: segments under it are not read"
            if missing
            else None
        )

    def _check_archive(self) -> None:
        found, known = read_archive(self.bucket.store, self.bucket.keys), self.catalog.get(ARCHIVE)
        check_archive(found, None if known is None else Uuid.parse(known), self.bucket.url)
        if found is not None and known is None:
            self.catalog.put(ARCHIVE, str(found.archive_id))

    def _listed(self, folder: str, kind: type) -> list[ObjectInfo]:
        keys = self.bucket.keys
        return [info for info in self.bucket.store.list(folder) if isinstance(keys.parse(info.key), kind)]

    def _segments(self) -> dict[PartitionId, list[Found]]:
        """Every stem of every topic, by partition and base."""
        store, keys = self.bucket.store, self.bucket.keys
        folders = [one for one in store.list_folders(keys.prefix) if keys.parse_topic_folder(one) is not None]
        by_part: dict[PartitionId, list[Found]] = defaultdict(list)
        for found in self._all(lambda folder: list_segments(store, keys, folder), folders):
            for one in found:
                if one.part.partition < MAX_PARTITIONS:  # each one below has to be served, too
                    by_part[one.part].append(one)
        return by_part

    def _take(self, part: PartitionId, listed: list[Found], head: Head | None, claims: Iterable[OwnerClaim]) -> Taken:
        firsts = [(claim.epoch, claim.first_append(part)) for claim in claims]
        runs = [RunStart(epoch, first) for epoch, first in firsts if first is not None]
        objects = [(info.key, info.size, info.etag) for found in listed for info in found.objects.values()]
        made_of = hash((tuple(objects), tuple(runs), self._etag_of(head)))
        before = self._taken.get(part)
        if before is not None and before[0] == made_of:
            return before[1]
        taken = PartitionLook(self.bucket, self.catalog).take(part, listed, head, runs)
        self._note(part, listed[0].name.topic if listed else head.topic if head else "", taken.shown)
        self._taken[part] = made_of, taken
        self._changes.gone += taken.gone
        if taken.rearranged:
            self._changes.rearranged.add(part)
        return taken

    def _note(self, part: PartitionId, topic: str, shown: ArchivedPartition) -> None:
        """What no segment says of the partition, for the status of an archive that does not run."""
        row = self.catalog.partition(part)
        if row is None:
            self.catalog.know(part, topic)
        if shown.log_start > (row.log_start or 0 if row else 0):
            self.catalog.set_log_start(part, shown.log_start)
        if shown.log_end > (row.copied_to or 0 if row else 0):
            self.catalog.set_copied_to(part, shown.log_end)

    def _etag_of(self, head: Head | None) -> str | None:
        if head is None:
            return None
        return self._heads.etag(self.bucket.keys.head(head.topic, head.topic_id, head.partition))

    def _drop(self, parts: Iterable[PartitionId]) -> None:
        """Partitions that have left the bucket."""
        for part in parts:
            rows = self.catalog.segments(part)
            if rows:
                self.catalog.deleting(*rows)
                self.catalog.deleted(*rows)
            self.catalog.drop_partition(part)
            self._taken.pop(part, None)
            self._changes.gone += [row.remote.segment_id for row in rows]
            self._changes.rearranged.add(part)

    def _all(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        with ThreadPoolExecutor(_THREADS, "survey") as pool:
            return list(pool.map(work, items))


def _topics(
    files: Iterable[TopicFile], heads: Iterable[Head], parts: Mapping[PartitionId, list[Found]]
) -> dict[Uuid, _Topic]:
    """Those that are not deleted; each has as many partitions as anything says: the highest number + 1."""
    found: dict[Uuid, _Topic] = {}
    for head in heads:
        one = found.setdefault(head.topic_id, _Topic(head.topic))
        one.partitions = max(one.partitions, head.partition + 1)
    for part, stems in parts.items():
        one = found.setdefault(part.topic_id, _Topic(stems[0].name.topic))
        one.partitions = max(one.partitions, part.partition + 1)
    for file in files:
        if file.deleted_ms is not None:
            found.pop(file.topic_id, None)
            continue
        one = found.setdefault(file.topic_id, _Topic(file.topic))
        one.file, one.partitions = file, max(one.partitions, min(file.partitions, MAX_PARTITIONS))
    return found


def _named(topics: Mapping[Uuid, _Topic], taken: Mapping[PartitionId, Taken]) -> dict[Uuid, ArchivedTopic]:
    newest: dict[Uuid, int] = defaultdict(int)
    for part, one in taken.items():
        newest[part.topic_id] = max(newest[part.topic_id], one.newest_ms)
    created = {topic_id: one.file.created_ms for topic_id, one in topics.items() if one.file is not None}
    claimants = [
        Claimant(one.topic, topic_id, max(newest[topic_id], created.get(topic_id, 0)))
        for topic_id, one in topics.items()
    ]
    called = names_of(claimants)
    return {
        topic_id: ArchivedTopic(
            name=called[topic_id],
            topic_id=topic_id,
            created_ms=created.get(topic_id, newest[topic_id]),
            config={} if one.file is None else dict(one.file.config),
            partitions=tuple(_part(PartitionId(topic_id, number), taken) for number in range(one.partitions)),
        )
        for topic_id, one in topics.items()
    }


def _part(part: PartitionId, taken: Mapping[PartitionId, Taken]) -> ArchivedPartition:
    """A partition of which nothing was ever copied is empty."""
    if part in taken:
        return taken[part].shown
    nothing = RemotePartition(id=part, start=None, copied_to=None, log_start=None, size_bytes=0, leader_epoch=None)
    return ArchivedPartition(remote=nothing, log_start=0, readable_to=0, log_end=0, epochs=())
