"""What a restore will make: topics, partitions and segments, as every reader of the bucket sees them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise

from tierd.base.errors import CorruptFile, StartRefused, Usage
from tierd.base.ids import PartitionId, TopicPartition
from tierd.remote.errors import NotFound
from tierd.remote.manifest import EpochStart
from tierd.remote.open import Bucket
from tierd.remote.view import ArchivedTopic
from tierd.storage.names import is_topic
from tierd.tiering.archive.survey import Survey
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.restore.journal import End
from tierd.tiering.restore.pieces import Piece, piece_below, whole
from tierd.tiering.segments import RemoteSegment


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
    pieces: tuple[Piece, ...]
    """Ascending; those of 0 bytes have no objects."""
    source_end: int
    """Where the bucket's log ends."""
    torn: bool = False
    """It ends lower than was asked for, because a transaction is open there."""

    @property
    def is_cut(self) -> bool:
        return self.log_end < self.source_end

    @property
    def segments(self) -> tuple[RemoteSegment, ...]:
        return tuple(one.segment for one in self.pieces)

    @property
    def size_bytes(self) -> int:
        """Of what comes out of the bucket, as it lies on a disk."""
        return sum(one.size_bytes + one.segment.indexes_bytes for one in self.pieces)

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """Offsets [start, stop) below the last segment that none has."""
        ends = (self.log_start, *(one.stop for one in self.pieces))
        return tuple((end, one.base) for end, one in zip(ends, self.pieces, strict=False) if end < one.base)

    def cut_at(self, offset: int, position: int | None, *, torn: bool) -> "PartitionPlan":
        """Without what lies at or above *offset*, which is at *position* of the segment that it falls into."""
        end = max(offset, self.log_start)
        pieces = [one for one in self.pieces if one.base < end] if offset > self.log_start else []
        if pieces and pieces[-1].stop > end:
            last = pieces.pop()
            assert position is not None or not last.size_bytes
            if position:
                pieces.append(Piece(last.segment, end, position))
        epochs = tuple(one for one in self.epochs if one.start < end)
        return replace(self, log_end=end, pieces=tuple(pieces), epochs=epochs, torn=torn)


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

    @property
    def ends(self) -> tuple[End, ...]:
        return tuple(
            End(topic=one.name.topic, partition=one.name.partition, offset=one.log_end) for one in self.partitions
        )

    def ending(self, partitions: Iterable[PartitionPlan]) -> "Plan":
        """With *partitions* in the place of its own of the same sources."""
        known = {one.source: one for one in partitions}
        topics = (replace(one, partitions=tuple(known[two.source] for two in one.partitions)) for one in self.topics)
        return replace(self, topics=tuple(topics))


def make_plan(survey: Survey, wanted: Sequence[str]) -> Plan:
    """Of the topics with the names *wanted*, or of all.

    Raises Usage when a topic is not there, StartRefused when none is, WrongBucket, RemoteUnavailable,
    KeyMissing, DiskFull.
    """
    found = {topic.name: topic for topic in survey.look().values()}
    url = survey.bucket.url
    if not found:
        raise StartRefused(f"{url} holds nothing that can be restored: check --remote")
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
        yield PartitionPlan(
            source=part,
            source_topic=segments[0].topic if segments else topic.name,
            name=TopicPartition(topic.name, number),
            log_start=shown.log_start,
            log_end=shown.log_end,
            epochs=shown.epochs,
            pieces=tuple(_pieces(survey.bucket, segments)),
            source_end=shown.log_end,
        )


def _pieces(bucket: Bucket, segments: Sequence[RemoteSegment]) -> Iterator[Piece]:
    """Replicas close their segments at other offsets, and both may be in the bucket, with the same records where they
    overlap: the later one has them then."""
    for before, after in pairwise(segments):
        if after.base >= before.next_base:
            yield whole(before)
            continue
        try:
            yield piece_below(bucket, before, after.base)
        except (NotFound, CorruptFile):  # whoever fetches it says so
            yield Piece(before, after.base, before.size_bytes)
    if segments:
        yield whole(segments[-1])
