"""What the parts of the tierer share: the bucket, the catalog, the broker's views, the claim. Loop thread only."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tierd.base.clock import Clock
from tierd.base.errors import RemoteUnavailable, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.config.state_files import PAUSED
from tierd.remote import owner
from tierd.remote.errors import ClaimLost
from tierd.remote.open import Bucket
from tierd.remote.view import Claim, ClaimState, RemotePartition
from tierd.storage.view import PartitionView
from tierd.tiering.catalog import Catalog
from tierd.tiering.clockguard import ClockGuard
from tierd.tiering.losses import Losses
from tierd.tiering.options import TiererOptions
from tierd.tiering.pausing import Pause, read_pause
from tierd.tiering.ports import LocalTier
from tierd.tiering.refusals import Refusals
from tierd.tiering.runs import Run

log = logging.getLogger(__name__)

Result = TypeVar("Result")

COMMIT_WITHIN_MS = 1_000
"""A commit goes without a LIST of its own when one that began so recently showed the bucket as ours."""

UNCLAIMED = Claim(state=ClaimState.PENDING, epoch=0, detail="not opened yet")


@dataclass(slots=True)
class TierState:
    options: TiererOptions
    clock: Clock
    bucket: Bucket
    catalog: Catalog
    local: LocalTier
    threads: Executor
    """For blocking calls; never for the parts of an upload, whose callers wait here."""
    guard: ClockGuard
    losses: Losses
    forget: Callable[[Uuid], None] = lambda _: None
    """Drops what is cached of a segment."""
    views: dict[PartitionId, PartitionView] = field(default_factory=dict)
    claim: Claim = UNCLAIMED
    run: Run | None = None
    stopping: bool = False
    rotten: dict[PartitionId, str] = field(default_factory=dict)
    """Partitions whose head in the bucket does not parse, and why."""
    owned_ms: int | None = None
    """Monotonic time at which the last LIST began that showed the bucket as ours."""
    refusals: Refusals = field(init=False)
    paused: Pause | None = field(init=False)
    """Nothing is copied while there is one; `tierd pause` and `resume`."""
    notes: tuple[str, ...] = ()
    """What the start has found set on the bucket, or missing there, in sentences."""

    def __post_init__(self) -> None:
        self.refusals = Refusals(self.catalog)
        self.paused = read_pause(self.options.state_dir / PAUSED)

    async def blocking(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    @property
    def held(self) -> bool:
        return self.claim.state is ClaimState.HELD

    def now_ms(self) -> int:
        """The bucket's clock, for the ages of what lies there; ours before its first answer."""
        server_ms = self.bucket.store.now_ms()
        return self.clock.now_ms() if server_ms is None else server_ms

    def set_claim(self, claim: Claim) -> None:
        if claim != self.claim:
            self.claim = claim
            self.local.claim_changed(claim)

    def lose(self, detail: str) -> None:
        """Another run has the bucket: nothing is written there from now on."""
        self.set_claim(Claim(state=ClaimState.LOST, epoch=self.claim.epoch, detail=detail))

    def require_owned(self, within_ms: int = 0) -> None:
        """In a thread: one LIST of later claims, none when the last good one began less than *within_ms* ago.

        Raises ClaimLost, RemoteUnavailable, CorruptFile (a later claim that cannot be read).
        """
        begun_ms = self.clock.monotonic_ms()
        if self.owned_ms is not None and begun_ms - self.owned_ms < within_ms:
            return
        owner.require_newest(self.bucket.store, self.bucket.keys, self.claim.epoch)
        self.owned_ms = begun_ms

    async def owned(self, within_ms: int = 0) -> bool:
        """Ask the bucket whether we still have it (`require_owned`); False when not, or when it does not answer.

        Before each batch of evictions, deletes, heads and topic files, and now and then when there are none.
        """
        if not self.held:
            return False
        try:
            await self.blocking(lambda: self.require_owned(within_ms))
        except ClaimLost as lost:
            self.lose(str(lost))
        except RemoteUnavailable:
            return False
        except TierdError as error:  # a later claim that cannot be read: nothing is written while that is so
            log.error("whose the bucket is cannot be told: %s", error)
            return False
        return self.held

    def name_of(self, part: PartitionId) -> str:
        """Topic and partition, as people know it."""
        view = self.views.get(part)
        if view is not None:
            return str(view.name)
        row = self.catalog.partition(part)
        return str(part) if row is None else f"{row.topic}-{part.partition}"

    def tell(self, part: PartitionId) -> None:
        """Tell the broker what the bucket has of *part* now."""
        self.local.remote_changed(self.remote(part))

    def remote(self, part: PartitionId) -> RemotePartition:
        now = self.catalog.remote_partition(part)
        return replace(now, lost=self.losses.ranges(part), rotten_head=self.rotten.get(part))
