"""What the broker asks the cleaner for, and what it gets back: values that cross between two processes."""

from dataclasses import dataclass
from pathlib import Path

from tierd.storage.compaction.batches import LastBatch
from tierd.storage.txnindex import AbortedEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A closed segment to clean, offsets [base, next_base)."""

    base: int
    next_base: int
    size_bytes: int
    append_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """Everything that the cleaning of one partition depends on, fixed when it begins."""

    directory: Path
    sources: tuple[Source, ...]
    """Contiguous; those that begin below `first_dirty` were cleaned before."""
    first_dirty: int
    stop: int
    """Offsets from here on are not looked at: the base of the first segment that may not be cleaned."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    keep_deletes: bool
    aborted: tuple[AbortedEntry, ...]
    """All aborted transactions that reach into the sources."""
    last_batches: tuple[LastBatch, ...]
    memory_bytes: int
    """For the offset map."""
    reserve_bytes: int
    """Disk space that must stay free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """Neighbours that became one segment, whose files lie ready under `.cleaned` names, durable."""

    bases: tuple[int, ...]
    """Of the segments that it takes the place of; its own is the first."""
    size_bytes: int
    append_ms: int
    has_txn_index: bool

    @property
    def base(self) -> int:
        return self.bases[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanReport:
    cleaned_to: int
    """Where the next cleaning's dirty part begins: the job's `stop`, or less when the map was full."""
    bytes_before: int
    bytes_after: int
