"""What a restore will make: topics, partitions and segments, as every reader of the bucket sees them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from tierd.base.errors import TierdError, Usage
from tierd.base.ids import PartitionId, TopicPartition
from tierd.remote.manifest import EpochStart
from tierd.remote.view import ArchivedTopic
from tierd.storage.names import is_topic
from tierd.tiering.archive.survey import Survey
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.segments import RemoteSegment


class Overlapping(TierdError):
    """Replicas closed their segments at other offsets, and both are in the bucket: no such directory has ever been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """A partition over offsets [log_start, log_end)."""

    source: PartitionId
    source_topic: str
    """Its name in the bucket's keys."""
    name: TopicPartition
    log_start: int
    log_end: int
    epochs: tuple[EpochStart, ...]
    segments: tuple[RemoteSegment, ...]
    """Ascending; those of 0 bytes have no objects."""

    @property
    def size_bytes(self) -> int:
        """Of what comes out of the bucket, as it lies on a disk."""
        return sum(one.size_bytes + one.indexes_bytes for one in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    topic: ArchivedTopic
    partitions: tuple[PartitionPlan, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    url: str
    by_tierd: bool
    """Whether a tierd wrote the bucket: then it has the topics' settings."""
    topics: tuple[TopicPlan, ...]

    @property
    def partitions(self) -> Iterator[PartitionPlan]:
        return (one for topic in self.topics for one in topic.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.partitions)


def make_plan(survey: Survey, wanted: Sequence[str]) -> Plan:
    """Of the topics with the names *wanted*, or of all.

    Raises Usage when there is nothing of the kind, Overlapping, WrongBucket, RemoteUnavailable, DiskFull.
    """
    found = {topic.name: topic for topic in survey.look().values()}
    url = survey.bucket.url
    if not found:
        raise Usage(f"{url} holds nothing that can be restored: check --remote")
    for name in wanted:
        if name not in found:
            raise Usage(f"{url} has no topic {name!r}{_meant(name, found)}")
    chosen = [found[name] for name in sorted(set(wanted) or found)]
    for topic in chosen:
        if not is_topic(topic.name):
            raise Usage(f"topic {topic.name!r} cannot be restored: no directory can have its name")
    topics = (TopicPlan(topic=one, partitions=tuple(_partitions(survey, one))) for one in chosen)
    return Plan(url, survey.has_owner, tuple(topics))


def _meant(name: str, found: Mapping[str, ArchivedTopic]) -> str:
    close = get_close_matches(name, found, n=1)
    return f": did you mean {close[0]}?" if close else ""


def _partitions(survey: Survey, topic: ArchivedTopic) -> Iterator[PartitionPlan]:
    for number, shown in enumerate(topic.partitions):
        part = PartitionId(topic.topic_id, number)
        rows = [row.remote for row in survey.catalog.segments(part, CopyState.COPY_FINISHED)]
        segments = tuple(one for one in rows if one.next_base > shown.log_start)
        for before, after in pairwise(segments):
            if after.base < before.next_base:
                raise Overlapping(f"{before.stem} and {after.stem} overlap: leave {topic.name} out (--topic)")
        yield PartitionPlan(
            source=part,
            source_topic=segments[0].topic if segments else topic.name,
            name=TopicPartition(topic.name, number),
            log_start=shown.log_start,
            log_end=shown.log_end,
            epochs=shown.epochs,
            segments=segments,
        )
