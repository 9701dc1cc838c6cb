"""What the broker's process tells the tierer once: where things lie, limits, and the state of the log at start."""

from dataclasses import dataclass
from pathlib import Path

from tierd.base.ids import PartitionId, Uuid
from tierd.config.model import Remote
from tierd.remote.owner import Holder
from tierd.remote.view import Claim, RemotePartition
from tierd.storage.view import PartitionView

OWNER_LOOK_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TiererOptions:
    """Complete before the first request; secrets travel over the socket pair, never in argv or environment."""

    remote: Remote
    """The `[remote]` section, its URL set."""
    state_dir: Path
    node_id: int = 1
    lock_wait_ms: int = 30_000
    """How long an older tierer that still has the lock is waited for."""
    silence_ms: int = 10_000
    """So long without an answer of the bucket, and the start goes on with a pending claim."""
    owner_interval_ms: int = OWNER_LOOK_MS
    """So often the bucket is asked whose it is when nothing else asks."""
    retention_interval_ms: int = 60_000
    delete_interval_ms: int = 60_000
    retry_ms: int = 1_000
    """First pause after a failed copy; doubled up to `remote.retry_max_ms`."""
    age_guard_ms: int = 86_400_000
    """Objects that lost against another copy of their range stay at least this long."""
    sweep_look_ms: int = 3_600_000
    """So often it is looked whether a sweep is due."""
    verify_look_ms: int = 60_000
    """So often it is looked whether the window of a look at the bucket is open."""
    disk_evict_bytes: int | None = None
    """With less free disk what the bucket has leaves a data directory early."""
    room_look_ms: int = 5_000
    """So often it is looked whether it has."""
    clock_limit_ms: int = 300_000
    """Evictions and deletes stop while local clock and bucket clock differ by more."""

    @property
    def settle_ms(self) -> int:
        """Longest time after which a request in flight can still take effect: every retry of it used its whole time."""
        return 10 * self.remote.request_timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this run is (remote/LAYOUT.md, "One writer"): holder of the claim, and this incarnation of it."""

    holder: Holder
    host: str
    incarnation: Uuid
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
    adopted: bool | None = None
    """Whether what is not set for it keeps everything, for it was found in a directory that Kafka wrote; None: nobody
    says so."""


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
    registry_epoch: int | None = None
    """Of the last run that this registry knows of; None when it knows of none: it may have been lost."""
    archive_id: Uuid | None = None
    """The archive that this registry belongs to, as far as it knows: the catalog that knows it, too, may be lost."""
    offline: tuple[PartitionId, ...] = ()
    """Partitions whose directory cannot be used in this run: nothing is appended to them."""
    lost_host: bool = False
    """There is no local log: all that is known of this archive lies in the bucket, which has to answer."""
    only_copies: bool = False
    """This run appends nothing anywhere, for the logs are somebody else's: its claim says of no partition where it
    begins, so that records of older epochs count also where they come later."""
    if_silent: bool = False
    """Taken over only from somebody who has not written there lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReport:
    """What the broker needs before a partition begins."""

    claim: Claim
    remotes: dict[PartitionId, RemotePartition]
    topics: tuple[TopicState, ...]
    """Topic files of the bucket (deleted ones too); empty while the claim is pending."""
    waiting: tuple[PartitionId, ...] = ()
    """Nothing may be appended to these before the claim is held: the bucket may have more of them than the disk."""
    outside: tuple[PartitionId, ...] = ()
    """Their local logs have left the bucket's history: they begin anew at the copied end (a take-over only)."""
    archive_id: Uuid | None = None
    """Of the bucket; None while it has not answered yet."""
    claimed_ms: int | None = None
    """The latest time, by its holder's clock, at which an earlier run claimed it; None when nobody knows of any."""
