"""Values that storage shows to other rooms: what a segment is, what a read gives, what a partition looks like."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tierd.base.ids import PartitionId, TopicPartition
from tierd.config.topic import TopicSettings


def age_anchor_ms(largest_timestamp_ms: int | None, append_ms: int) -> int:
    """The time from which a segment's age counts, in either tier: no timestamp in the future keeps one for ever."""
    return append_ms if largest_timestamp_ms is None else min(largest_timestamp_ms, append_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """A closed segment of either tier, offsets [base, next_base)."""

    base: int
    next_base: int
    size_bytes: int
    largest_timestamp_ms: int | None
    """Largest record timestamp; None when the segment holds no batch or none has a timestamp."""
    append_ms: int
    """Wall clock of the last append (locally the mtime of the .log)."""

    @property
    def age_anchor_ms(self) -> int:
        """The time from which its age counts, for every retention."""
        return age_anchor_ms(self.largest_timestamp_ms, self.append_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """A partition as the tierer plans with it; the whole state, so sending it again changes nothing."""

    name: TopicPartition
    id: PartitionId
    directory: Path
    settings: TopicSettings
    log_start: int
    local_start: int
    log_end: int
    last_stable: int
    recovery_point: int
    leader_epoch: int
    closed: tuple[SegmentView, ...]
    active_base: int
    active_bytes: int
    active_append_ms: int | None
    """Wall clock of the first append to the active segment; None while it is empty."""
    pinned_by: str | None = None
    """Why the last stable offset lags, in words (producer id, since when), or None."""
    cleaned_to: int | None = None
    """Compaction has cleaned all below this offset; None before the first time."""
    cleaning: bool = False
    """Compaction is about to replace closed segments: none may be copied until this is False again."""


class FileSpan(NamedTuple):
    """Bytes [position, position + length) of an open file. A tuple because a fetch makes one each time."""

    fd: int
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    offset: int
    timestamp_ms: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Seed:
    """What a log needs to go on above an end that its own files do not reach: both files as they stood there."""

    snapshot: bytes
    leader_epochs: bytes


@dataclass(slots=True)
class LogSlice:
    """Whole batches out of one or several files, to be sent as they are. Call `release` exactly once after sending."""

    spans: tuple[FileSpan, ...]
    length: int
    aborted: tuple[AbortedTxn, ...]
    """Aborted transactions for read_committed; empty otherwise."""
    stop: int | None = None
    """Offset after the last batch where known (remote reads say it, local ones need not)."""
    on_release: Callable[[], None] | None = field(default=None, repr=False)

    def release(self) -> None:
        if self.on_release is not None:
            done, self.on_release = self.on_release, None
            done()


EMPTY_SLICE = LogSlice((), 0, ())
