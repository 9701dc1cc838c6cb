"""The tierer without its process, over a store in memory; its broker is a FolderTier, and time is told."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from kit.clock import FakeClock
from kit.folder_tier import FolderTier
from kit.golden import golden
from tierd.base.ids import Uuid
from tierd.config.model import Remote
from tierd.config.topic import DAY_MS, TopicSettings
from tierd.remote.keyring import NO_KEYS, KeyRing
from tierd.remote.keys import Keys
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.remote.owner import Holder
from tierd.remote.view import Claim
from tierd.storage.view import PartitionView
from tierd.tiering.catalog import Catalog
from tierd.tiering.options import Identity, OpenReport, OpenRequest, TiererOptions, TopicState
from tierd.tiering.tierer import Tierer
from tierd.tiering.verbs import VerbProgress, VerbResult

SETTINGS = TopicSettings(local_retention_ms=None, tierd_delete_delay_ms=DAY_MS)
KEYS = Keys("p/")
REMOTE = Remote(url="file:/memory")


def who(directory_id: str = "d", incarnation: bytes = b"") -> Identity:
    holder = Holder(directory_id=directory_id, machine_id="m", inode=1)
    return Identity(holder=holder, host="host-a", incarnation=Uuid(incarnation or os.urandom(16)))


def no_report(progress: VerbProgress) -> None:
    """Nobody looks."""


class Bench:
    """A tierer whose broker is a FolderTier."""

    def __init__(
        self,
        root: Path,
        store: MemoryStore,
        clock: FakeClock,
        state: str = "state",
        remote: Remote = REMOTE,
        ring: KeyRing = NO_KEYS,
    ) -> None:
        self.root, self.store, self.clock = root, store, clock
        self.local = FolderTier()
        (root / state).mkdir(exist_ok=True)
        self.catalog = Catalog.open(root / state / "catalog.sqlite")
        self.options = TiererOptions(remote=remote, state_dir=root / state, retry_ms=1, silence_ms=50)
        self.tierer = Tierer(self.options, clock, Bucket(store, KEYS, "memory:", ring), self.catalog, self.local)
        self.local.changed = self.tierer.partition_changed

    def adopt(self, name: str, settings: TopicSettings = SETTINGS) -> PartitionView:
        return self.local.adopt(golden("kafka") / "clean" / name, self.root / "data", settings)

    async def open(
        self,
        identity: Identity,
        *,
        recover: bool = False,
        topics: tuple[TopicState, ...] = (),
        claimed: Claim | None = None,
        local_epoch: int = 4,
        lost_host: bool = False,
        if_silent: bool = False,
    ) -> OpenReport:
        return await self.tierer.open(
            OpenRequest(
                views=tuple(self.local.views.values()),
                topics=topics,
                local_epoch=local_epoch,
                identity=identity,
                recover=recover,
                claimed=claimed,
                lost_host=lost_host,
                if_silent=if_silent,
            )
        )

    async def copy(self) -> VerbResult:
        return await self.tierer.verbs.copy(wait=True, timeout_ms=None, report=no_report)

    def objects(self) -> set[str]:
        return {info.key for info in self.store.list("p/") if "/tierd/" not in info.key}

    async def close(self) -> None:
        await self.tierer.close()


async def copied(root: Path, store: MemoryStore, clock: FakeClock) -> tuple[Bench, PartitionView]:
    """One that owns the archive and has copied all of a recorded partition."""
    bench = Bench(root, store, clock)
    view = bench.adopt("codec-none-0")
    await bench.open(who())
    await bench.copy()
    return bench, view


def drive(
    tmp_path: Path,
    work: Callable[[Bench], Awaitable[None]],
    remote: Remote = REMOTE,
    ring: KeyRing = NO_KEYS,
) -> None:
    async def run() -> None:
        clock = FakeClock()
        bench = Bench(tmp_path, MemoryStore(clock), clock, remote=remote, ring=ring)
        try:
            await work(bench)
        finally:
            await bench.close()

    asyncio.run(run())
