"""Values that the remote side shows to other rooms: who owns the bucket, and what it holds of a partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.manifest import EpochStart


class ClaimState(StrEnum):
    """Whether this process may write into the bucket (LAYOUT.md, "One writer")."""

    HELD = "held"
    PENDING = "pending"
    LOST = "lost"
    NONE = "none"
    """Nobody asks for it: the bucket is only read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The epoch of this run and what stands behind it."""

    state: ClaimState
    epoch: int
    detail: str = ""
    """Why it is pending or lost, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartition:
    """What the bucket has of one partition: committed segments over offsets [start, copied_to)."""

    id: PartitionId
    start: int | None
    """First committed offset; None when nothing is committed."""
    copied_to: int | None
    """Offset after the last committed segment; stays when retention has deleted every segment. None: never copied."""
    log_start: int | None
    """Log start kept in the bucket's head; None when no head says so."""
    size_bytes: int
    leader_epoch: int | None
    """Largest leader epoch in the committed segments."""
    deleting_bytes: int = 0
    lost: tuple[tuple[int, int], ...] = ()
    """Offsets [start, stop) of committed segments whose objects the bucket has lost."""
    rotten_head: str | None = None
    """Why its head in the bucket cannot be read; None once it has been written again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The one reason that the next closed segment is not copied now."""

    reason: str
    """One of `reasons.NEXT_STEPS`."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStatus:
    """One partition's row as the tierer sees it."""

    remote: RemotePartition
    oldest_uncopied_ms: int | None
    waiting: Waiting | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """What readers are shown of a partition that is only in the bucket: offsets [log_start, log_end)."""

    remote: RemotePartition
    """`lost`: offsets above log start that nothing in the bucket has."""
    log_start: int
    readable_to: int
    """The offset after the last segment; behind it nothing is left of what was copied."""
    log_end: int
    epochs: tuple[EpochStart, ...]
    """Leader epochs and where each begins, out of the newest segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTopic:
    """A topic as an archive shows it."""

    name: str
    """What clients call it: with its id when a newer topic has the name that it had."""
    topic_id: Uuid
    created_ms: int
    config: Mapping[str, str]
    partitions: tuple[ArchivedPartition, ...]
    """By number, from 0 on."""
