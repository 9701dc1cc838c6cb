"""Compaction: which partition is cleaned next, and taking in what the worker makes of it. The dirtiest comes first.

The worker writes files beside the log; here, on the loop, they take the place of the old ones. While a partition is
cleaned the tierer copies nothing of it: it is told before, and waited for.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, DiskFull, RemoteUnavailable, TierdError
from tierd.base.ids import PartitionId
from tierd.broker.counters import Counters
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier, Worker
from tierd.broker.turns import in_turns
from tierd.remote.view import ClaimState, RemotePartition
from tierd.storage.compaction.job import CleanedGroup
from tierd.storage.compaction.plan import CleanPlan
from tierd.storage.errors import Repairing, StorageFailed

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_A_TURN = 100
"""Partitions looked at before the loop serves others again."""
_HOLD_S = 30.0
"""A copy under way is waited for so long; then another partition has its turn."""
_REST_MS = 300_000
"""So long a partition that could not be cleaned is left alone."""
_SILENCE_MS = 30_000
"""So long when only the bucket did not answer, or damage is being repaired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningLimits:
    memory_bytes: int
    """For the map of keys."""
    reserve_bytes: int
    """Disk space that cleaning leaves free."""
    backoff_ms: int
    """Between two looks when nothing was to be cleaned."""


class Cleaning:
    """Loop thread only. `run` is one task; *changed* is told of each partition whose checkpoint must be written."""

    def __init__(
        self,
        partitions: Partitions,
        worker: Worker,
        tier: RemoteTier | None,
        clock: Clock,
        counters: Counters,
        limits: CleaningLimits,
        *,
        changed: Callable[[Partition], None],
    ) -> None:
        self._partitions = partitions
        self._worker = worker
        self._tier = tier
        self._clock = clock
        self._counters = counters
        self._limits = limits
        self._changed = changed
        self._stopped = asyncio.Event()
        self._stop_task: asyncio.Future[Any] | None = None
        self._resting: dict[PartitionId, int] = {}
        """Until when (monotonic)."""

    def stop(self) -> None:
        """Let `run` end; what is being cleaned is given up."""
        self._stopped.set()

    async def run(self) -> None:
        """Until `stop`. An error that nobody expected ends it, and must end the daemon."""
        stop_task: asyncio.Future[Any] = asyncio.ensure_future(self._stopped.wait())
        self._stop_task = stop_task
        try:
            while not self._stopped.is_set():
                partition = await self._dirtiest()
                if partition is not None:
                    await self._clean(partition)
                else:
                    await asyncio.wait({stop_task}, timeout=self._limits.backoff_ms / 1000)
        finally:
            stop_task.cancel()
            await self._worker.close()

    # What is next.

    async def _dirtiest(self) -> Partition | None:
        """The partition with the largest dirty part among those that are to be cleaned now."""
        best: tuple[float, Partition] | None = None
        async for partition in in_turns(self._partitions, _A_TURN):
            plan = self._plan(partition)
            if plan is not None and (best is None or plan.ratio > best[0]):
                best = plan.ratio, partition
        return None if best is None else best[1]

    def _plan(self, partition: Partition) -> CleanPlan | None:
        """What is to be cleaned now, as far as the broker knows of the bucket."""
        logged = partition.log
        if not logged.settings.compacted or partition.deleted or partition.offline or logged.failed is not None:
            return None
        if self._clock.monotonic_ms() < self._resting.get(partition.id, 0) or not self._may(partition):
            return None
        try:
            return logged.compaction.plan(partition.copied_to, self._clock.now_ms())
        except (CorruptFile, OSError) as error:
            self._failed(partition, error)
            return None

    def _may(self, partition: Partition) -> bool:
        """Whether the bucket, if there is one for it, can be asked how far it reaches."""
        if self._tier is None or not partition.tiered:
            return True
        return self._tier.claim.state is ClaimState.HELD and partition.id not in self._partitions.waiting

    # One cleaning.

    async def _clean(self, partition: Partition) -> None:
        compaction = partition.log.compaction
        compaction.running = True
        partition.tell(self._tier)
        try:
            remote = await self._held(partition)
            copied_to = None if remote is None else remote.copied_to
            plan = compaction.plan(copied_to, self._clock.now_ms())
            if plan is not None:
                await self._work(partition, plan, remote)
        except _Stopping:
            return
        except CorruptFile as error:
            if not await self._mended(partition, error):
                self._failed(partition, error)
        except (TierdError, OSError) as error:  # TimeoutError is an OSError
            self._failed(partition, error)
        finally:
            compaction.running = False
            partition.tell(self._tier)

    async def _mended(self, partition: Partition, error: CorruptFile) -> bool:
        """Whether what stopped the cleaning is known now and will not stop the next one: a `.txnindex` that is gone."""
        look = partition.log.compaction.unindexed(error)
        if look is None:
            return False
        try:
            found = await asyncio.get_running_loop().run_in_executor(None, look)
        except (CorruptFile, OSError) as another:
            log.error("a transaction index is missing", extra={"partition": str(partition), "why": str(another)})
            return False
        if found:
            partition.log.compaction.expect_index(error)
        return found

    async def _held(self, partition: Partition) -> RemotePartition | None:
        """Wait until nothing of it is being copied; what the bucket has of it."""
        if self._tier is None or (partition.remote is None and not partition.tiered):
            return None
        return await self._or_stop(self._tier.hold_copies(partition.id), _HOLD_S)

    async def _work(self, partition: Partition, plan: CleanPlan, remote: RemotePartition | None) -> None:
        compaction, begun_ms = partition.log.compaction, self._clock.monotonic_ms()
        job = compaction.job(
            plan,
            now_ms=self._clock.now_ms(),
            keep_deletes=remote is not None and remote.start is not None,
            memory_bytes=self._limits.memory_bytes,
            reserve_bytes=self._limits.reserve_bytes,
        )
        refused: list[CleanedGroup] = []

        def take(group: CleanedGroup) -> bool:
            taken = self._take(partition, group)
            if not taken:
                refused.append(group)
            return taken

        try:
            report = await self._or_stop(self._worker.clean(job, take))
        except TierdError:
            if refused:
                return  # for a reason that was told; the rest is looked at anew
            raise
        if refused:
            return
        await asyncio.get_running_loop().run_in_executor(None, compaction.flush)
        compaction.finished(report)
        self._changed(partition)
        self._counters.cleanings += 1
        self._counters.cleaned_bytes += report.bytes_before
        self._counters.kept_bytes += report.bytes_after
        facts = {"partition": str(partition), "cleaned_to": report.cleaned_to, "bytes": report.bytes_before}
        took_ms = self._clock.monotonic_ms() - begun_ms
        log.info("cleaned", extra={**facts, "left": report.bytes_after, "took_ms": took_ms})

    def _take(self, partition: Partition, group: CleanedGroup) -> bool:
        if partition.deleted or partition.offline:
            return False
        try:
            return partition.log.compaction.swap_in(group)
        except (StorageFailed, DiskFull, OSError) as error:
            self._partitions.note(partition, error)
            self._failed(partition, error)
            return False

    def _failed(self, partition: Partition, error: BaseException) -> None:
        """Leave it alone for a while. A bucket that does not answer is no fault of the partition's, nor is a repair."""
        silent = isinstance(error, (RemoteUnavailable, TimeoutError, Repairing))
        self._resting[partition.id] = self._clock.monotonic_ms() + (_SILENCE_MS if silent else _REST_MS)
        facts = {"partition": str(partition), "why": str(error) or type(error).__name__}
        if silent:
            log.warning("cleaning waits", extra=facts)
            return
        partition.log.compaction.problem = facts["why"]
        self._counters.cleanings_failed += 1
        log.error("cleaning failed", extra=facts)

    async def _or_stop(self, work: Coroutine[Any, Any, _Result], timeout_s: float | None = None) -> _Result:
        """Raises _Stopping when `stop` comes first, TimeoutError."""
        assert self._stop_task is not None
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._stop_task}
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        if self._stopped.is_set():
            raise _Stopping
        raise TimeoutError(f"no answer for {timeout_s} s")


class _Stopping(Exception):
    """`stop` was called."""
