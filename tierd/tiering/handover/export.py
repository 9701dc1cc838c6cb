"""What a bucket comes to in Kafka's topic of remote log metadata: counted first, then made out of the manifests."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tierd.base.errors import CorruptFile, StartRefused, Usage
from tierd.base.ids import PartitionId
from tierd.config.resolve import LOCAL_ONLY_TOPICS
from tierd.remote.errors import NotFound
from tierd.remote.manifest import Manifest, parse_manifest
from tierd.remote.open import Bucket
from tierd.remote.topics import TopicFile
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record
from tierd.tiering.archive.survey import Survey
from tierd.tiering.handover.records import (
    PartitionState,
    SegmentState,
    metadata_partition,
    partition_deleted,
    segment_copied,
    segment_update,
)
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.segments import RemoteSegment

_BATCH_RECORDS = 1000
"""A record has up to 350 bytes with the longest topic name: less than half of what a broker takes in a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPartition:
    """Log start is the first offset that counts; segments wholly below it are there until their delete is due."""

    part: PartitionId
    topic: str
    log_start: int
    log_end: int
    segments: tuple[RemoteSegment, ...]
    """Ascending; without ranges that have no objects."""
    lost: tuple[tuple[int, int], ...]
    """Offsets [start, stop) that nothing in the bucket has."""

    def is_released(self, segment: RemoteSegment) -> bool:
        return segment.next_base <= self.log_start

    @property
    def released(self) -> int:
        return sum(map(self.is_released, self.segments))

    @property
    def size_bytes(self) -> int:
        """Of its segments, as they lie on a disk."""
        return sum(one.size_bytes for one in self.segments)

    @property
    def records(self) -> int:
        return 2 * len(self.segments) + self.released


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedPartition:
    part: PartitionId
    topic: str
    deleted_ms: int
    has_objects: bool
    """Some are still in the bucket. Kafka deletes nothing of a topic that it does not have."""

    @property
    def states(self) -> Sequence[PartitionState]:
        passed = [PartitionState.DELETE_MARKED, PartitionState.DELETE_STARTED]
        return passed if self.has_objects else [*passed, PartitionState.DELETE_FINISHED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What is to be written."""

    partitions: tuple[ExportedPartition, ...]
    deleted: tuple[DeletedPartition, ...]

    @property
    def segments(self) -> int:
        """So many manifests are read."""
        return sum(len(one.segments) for one in self.partitions)

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions) + sum(len(one.states) for one in self.deleted)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A segment of which the manifest went, or broke, since the bucket was looked at: it has no records."""

    key: str
    reason: str


def plan_export(survey: Survey, wanted: Sequence[str]) -> Export:
    """Of the topics with the names *wanted*, or of all and those that were deleted; never of those that Kafka does not
    tier, as the topic itself that the export is for.

    Raises Usage when a topic is not there, StartRefused when none is, WrongBucket, RemoteUnavailable, DiskFull.
    """
    found = {topic.name: topic for topic in survey.look().values()}
    if not found and not survey.deleted:
        raise StartRefused(f"{survey.bucket.url} holds no segments: check --remote")
    found = {name: topic for name, topic in found.items() if name not in LOCAL_ONLY_TOPICS}
    for name in wanted:
        if name not in found:
            raise Usage(f"{survey.bucket.url} has no topic {name!r} that Kafka tiers")
    partitions = [
        ExportedPartition(
            part=PartitionId(topic.topic_id, number),
            topic=topic.name,
            log_start=shown.log_start,
            log_end=shown.log_end,
            segments=_segments(survey, PartitionId(topic.topic_id, number)),
            lost=shown.remote.lost,
        )
        for topic in (found[name] for name in sorted(set(wanted) or found))
        for number, shown in enumerate(topic.partitions)
    ]
    deleted = () if wanted else tuple(_deleted(survey))
    return Export(partitions=tuple(partitions), deleted=deleted)


def _segments(survey: Survey, part: PartitionId) -> tuple[RemoteSegment, ...]:
    rows = survey.catalog.segments(part, CopyState.COPY_FINISHED)
    return tuple(sorted((row.remote for row in rows if row.remote.size_bytes), key=lambda one: one.base))


def _deleted(survey: Survey) -> Iterator[DeletedPartition]:
    for file in sorted((one for one in survey.deleted if one.topic not in LOCAL_ONLY_TOPICS), key=_order):
        for number in range(file.partitions):
            part = PartitionId(file.topic_id, number)
            left = part in survey.left_of_deleted
            yield DeletedPartition(part=part, topic=file.topic, deleted_ms=file.deleted_ms or 0, has_objects=left)


def _order(file: TopicFile) -> tuple[str, str]:
    return file.topic, str(file.topic_id)


@dataclass(frozen=True, slots=True)
class Made:
    """Values of records by partition of Kafka's topic, in the order in which Kafka has to read them."""

    values: dict[int, list[bytes]]
    unreadable: tuple[Unreadable, ...]


def make_values(
    bucket: Bucket,
    export: Export,
    *,
    partitions: int,
    node_id: int,
    now_ms: int,
    threads: int,
    progress: Callable[[int], None],
) -> Made:
    """Read every manifest. *node_id*: who says that topics were deleted. *progress* hears how many have been read.

    Raises RemoteUnavailable.
    """
    values: dict[int, list[bytes]] = defaultdict(list)
    unreadable: list[Unreadable] = []
    done = 0
    with ThreadPoolExecutor(threads, "manifests") as pool:
        for one in export.partitions:
            out = values[metadata_partition(one.part, partitions)]
            manifests = pool.map(lambda row: _read(bucket, row), one.segments)
            for segment, manifest in zip(one.segments, manifests, strict=True):
                if isinstance(manifest, Unreadable):
                    unreadable.append(manifest)
                else:
                    out += segment_copied(manifest)
                    if one.is_released(segment):
                        out.append(segment_update(manifest, SegmentState.DELETE_STARTED, now_ms))
                done += 1
                progress(done)
    for gone in export.deleted:
        out = values[metadata_partition(gone.part, partitions)]
        out += (partition_deleted(gone.topic, gone.part, state, node_id, gone.deleted_ms) for state in gone.states)
    return Made(values, tuple(unreadable))


def _read(bucket: Bucket, segment: RemoteSegment) -> Manifest | Unreadable:
    try:
        return parse_manifest(bucket.store.get(segment.manifest_key), segment.manifest_key)
    except (NotFound, CorruptFile) as error:
        return Unreadable(segment.manifest_key, str(error))


def batches(values: Sequence[bytes], now_ms: int) -> list[bytes]:
    """The log of one partition. Its records have the present time: they are as new to Kafka as any."""
    found = []
    for start in range(0, len(values), _BATCH_RECORDS):
        some = values[start : start + _BATCH_RECORDS]
        found.append(encode_batch([Record(start + i, now_ms, None, value) for i, value in enumerate(some)]))
    return found
