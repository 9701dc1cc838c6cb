"""What the broker's process tells the tierer once: where things lie, limits, and the state of the log at start."""

from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.view import Claim, RemotePartition
from tierd.storage.view import PartitionView

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TiererOptions:
    """Complete before the first request; secrets travel over the socket pair, never in argv or environment."""

    url: str
    """`file:DIR` (absolute), `s3://bucket/prefix` or `memory:` (tests)."""
    state_dir: Path
    s3: dict[str, str] = field(default_factory=dict)
    """Endpoint, region, path_style, credentials, ca_bundle: as `remote.open_store` names them; absent = default."""
    copy_threads: int = 2
    part_bytes: int = 16 * MIB
    range_bytes: int = 4 * MIB
    read_ahead: int = 8
    cache_bytes: int = 1024 * MIB
    read_memory_bytes: int = 128 * MIB
    request_timeout_ms: int = 30_000
    silence_ms: int = 10_000
    """So long without an answer of the bucket, and the start goes on with a pending claim."""
    lock_wait_ms: int = 30_000
    head_interval_ms: int = 10_000
    retention_interval_ms: int = 60_000
    delete_interval_ms: int = 60_000
    retry_ms: int = 1_000
    """First pause after a failed copy; doubled up to `retry_max_ms`."""
    retry_max_ms: int = 60_000
    age_guard_ms: int = 86_400_000
    """Objects that lost against another copy of their range stay at least this long."""
    clock_limit_ms: int = 300_000
    """Evictions and deletes stop while local clock and bucket clock differ by more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this run is (BUCKET.md "One writer"): holder of the claim, and this incarnation of it."""

    directory_id: str
    machine_id: str
    inode: int
    """Of the data directory: a copied directory is another holder."""
    host: str
    incarnation: str
    """Random per start of the daemon; the same when only the tierer is started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the registry has it, or as the bucket's topic file says it."""

    topic: str
    topic_id: Uuid
    partitions: int
    config: dict[str, str]
    created_ms: int
    deleted_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    views: tuple[PartitionView, ...]
    topics: tuple[TopicState, ...]
    local_epoch: int
    """Largest leader epoch in any local checkpoint; -1 when there is none."""
    identity: Identity
    recover: bool
    claimed: Claim | None
    """The claim of this very run when the tierer is started again; None at the daemon's start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReport:
    """What the broker needs before a partition begins."""

    claim: Claim
    remotes: dict[PartitionId, RemotePartition]
    topics: tuple[TopicState, ...]
    """Topic files of the bucket (deleted ones too); empty while the claim is pending."""
