"""The broker's life: what listens, what runs beside it, and in which order all of it ends."""

import asyncio
from pathlib import Path
from typing import Protocol

from tierd.base.clock import Clock
from tierd.broker.apis import handlers
from tierd.broker.dispatch import Dispatch
from tierd.broker.groups.export import GroupsTier
from tierd.broker.homes import Home, NoDirectoryLeft
from tierd.broker.listeners import Listeners
from tierd.broker.listings import Listings
from tierd.broker.partitions import Partitions
from tierd.broker.parts import Parts
from tierd.broker.ports import Looker, RemoteTier, Worker
from tierd.broker.registry import Registry
from tierd.broker.security.throttle import Throttle
from tierd.broker.sending import ReadFailed
from tierd.broker.server import Server
from tierd.broker.status import status
from tierd.config.model import Settings

STOP_GRACE_S = 5.0


class _Runs(Protocol):
    async def run(self) -> None:
        """Until it is told to stop; an error ends the daemon."""


class Broker:
    """Built once its partitions have begun; `start` listens, `stop` ends it. Loop thread only."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        partitions: Partitions,
        tier: RemoteTier | None,
        clock: Clock,
        *,
        cluster_id: str,
        worker: Worker | None = None,
        looker: Looker | None = None,
        groups: GroupsTier | None = None,
    ) -> None:
        """Without a *worker* nothing is compacted, without a *looker* large batches are looked at in a thread.
        *groups*: where what consumer groups have committed is kept, too."""
        parts = self.parts = Parts(
            settings, registry, partitions, tier, clock, worker=worker, looker=looker, groups=groups
        )
        self.settings, self.partitions, self.tier = settings, partitions, tier
        self.counters, self.commits = parts.counters, parts.commits
        self.topics, self.moves, self.housekeeping = parts.topics, parts.moves, parts.housekeeping
        self.listeners = Listeners(settings, parts.users, clock, parts.counters, parts.audit)
        self.housekeeping_task: asyncio.Task[None] | None = None
        """Ends only when the broker stops, or with an error that must end the daemon."""
        self._beside: dict[_Runs, asyncio.Task[None]] = {}
        control = handlers(parts, cluster_id, self.listeners.advertised)
        self.server = Server(
            Throttle(
                Dispatch(parts.produce, parts.fetch, control, parts.counters, Listings(partitions)),
                parts.quotas,
                parts.counters,
                parts.slow_disks,
            ),
            settings.listener,
            clock,
            parts.read_threads,
            self._read_failed,
            parts.counters,
        )
        self.server.audit = parts.audit
        parts.users.removed = self.server.drop

    async def start(self) -> tuple[str, int]:
        """Listen; give the real address of the first listener. Raises StartRefused when one is taken."""
        parts = self.parts
        await self.topics.resume()
        address = self.listeners.open(self.server)
        self.housekeeping_task = asyncio.create_task(self.housekeeping.run())
        self.partitions.outages.watch(asyncio.get_running_loop().call_soon_threadsafe, self._directory_failed)
        await self.moves.resume()
        for runs in (self.moves, parts.transactions, parts.expiry, parts.export, parts.cleaning):
            if runs is not None:
                self._run_beside(runs)
        return address

    def _run_beside(self, runs: _Runs) -> None:
        task = self._beside[runs] = asyncio.create_task(runs.run())
        task.add_done_callback(self._beside_ended)

    async def _ended(self, runs: _Runs) -> None:
        """Wait until what was told to stop has done so; its error, if any, was heard."""
        if runs in self._beside:
            await asyncio.wait({self._beside[runs]})

    def _read_failed(self, error: ReadFailed) -> None:
        for home in self.partitions.homes:
            if home.directory is not None and Path(error.filename).is_relative_to(home.path):
                home.directory.health.note(error)

    def _directory_failed(self, home: Home) -> None:
        self.partitions.take_offline(home)
        if not self.partitions.directories:
            self.housekeeping.fail(NoDirectoryLeft(self.partitions.homes.offline))

    def _beside_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.housekeeping.fail(error)

    async def stop(self, *, quick: bool = False) -> None:
        """Answer what is in work (not when *quick*), close all connections, end housekeeping. Logs stay open."""
        parts = self.parts
        parts.fetch.stop()
        self.listeners.close()
        await self.server.stop(0 if quick else STOP_GRACE_S)
        parts.expiry.stop()
        await self._ended(parts.expiry)
        await self._stop_export()
        await parts.transactions.close()  # What is decided and not ended yet is ended by the next start.
        await self._ended(parts.transactions)
        parts.consumer_groups.close()
        parts.coordinator.close()
        await parts.behind.close()
        await self.topics.close()
        if parts.authorizer is not None:
            await parts.authorizer.close()
        await parts.quotas.close()
        await self.commits.close()
        await parts.delete_records.close()
        if parts.remote_reads is not None:
            await parts.remote_reads.close()
        await self.stop_cleaning()
        await self.stop_moves()
        await parts.repair_thread.close()
        self.housekeeping.stop()
        self.partitions.outages.unwatch()
        if self.housekeeping_task is not None:
            await self.housekeeping_task
        if parts.audit is not None:
            await parts.audit.close()
        await parts.users.close()
        parts.read_threads.shutdown(wait=False)
        parts.lookup_threads.shutdown(wait=False, cancel_futures=True)

    async def _stop_export(self) -> None:
        """Whether a file on its way to the bucket arrives does not matter: nobody waits for a silent one."""
        if self.parts.export is not None and self.parts.export in self._beside:
            self._beside[self.parts.export].cancel()
            await self._ended(self.parts.export)

    async def stop_moves(self) -> None:
        """Moves under way begin anew at the next start."""
        self.moves.stop()
        await self._ended(self.moves)

    async def stop_cleaning(self) -> None:
        """What is being cleaned is given up; what was cleaned stays."""
        if self.parts.cleaning is not None:
            self.parts.cleaning.stop()
            await self._ended(self.parts.cleaning)

    async def status(self) -> dict[str, object]:
        """The document of `tierd status`."""
        return await status(self.partitions, self.tier)
