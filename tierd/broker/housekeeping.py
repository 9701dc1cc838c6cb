"""What keeps the local logs in order beside the clients: flushes, rolls by time, checkpoints, retention.

All state is touched on the loop; only fsync and unlink run in a thread.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tierd.base.clock import Clock
from tierd.base.errors import DiskFull, TierdError
from tierd.base.ids import PartitionId
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.broker.retention import released
from tierd.broker.turns import in_turns
from tierd.storage.directory import FREQUENT_CHECKPOINTS, RARE_CHECKPOINTS
from tierd.storage.errors import FlushPutOff, Repairing, StorageFailed

log = logging.getLogger(__name__)

BUSY_TICK_S = 0.25
"""After appends: how soon a closed segment is flushed and shown to the tierer."""
IDLE_TICK_S = 5.0
FREQUENT_MS, RARE_MS = 5_000, 60_000
"""Kafka writes high watermarks every 5 s, recovery points and log starts every 60 s."""
ROLL_CHECK_MS = 10_000
EXPIRY_CHECK_MS = 600_000
"""As Kafka: how often silent producers are looked for, or as often as they expire when that is sooner."""
PRODUCER_EXPIRY_MS = 86_400_000
_A_TURN = 100
"""Partitions looked at before the loop serves others again."""
_LOOKS = 16
"""Segments."""


class Housekeeping:
    """Loop thread only. `run` is one task; `appended` tells it that there is something to do."""

    def __init__(
        self,
        partitions: Partitions,
        tier: RemoteTier | None,
        clock: Clock,
        *,
        retention_check_ms: int = 30_000,
        producer_expiry_ms: int = PRODUCER_EXPIRY_MS,
    ) -> None:
        self._partitions = partitions
        self._tier = tier
        self._clock = clock
        self._retention_check_ms = retention_check_ms
        self._producer_expiry_ms = producer_expiry_ms
        self._thread = ThreadPoolExecutor(1, "flush")
        self._dirty: dict[Partition, None] = {}
        self._stopped = asyncio.Event()
        self._woken = asyncio.Event()
        self._stale: set[tuple[str, ...]] = set()
        """Groups of checkpoint files that may have to be written."""
        self._due: dict[str, int] = {}
        self._fatal: BaseException | None = None

    def appended(self, partition: Partition) -> None:
        """Called after every append: wake readers, remember to look at the partition."""
        if not self._dirty:
            self._woken.set()
        self._dirty[partition] = None
        partition.wake()

    def _touched(self) -> None:
        self._stale |= {FREQUENT_CHECKPOINTS, RARE_CHECKPOINTS}

    def stop(self) -> None:
        """Let `run` end."""
        self._stopped.set()
        self._woken.set()

    def fail(self, error: BaseException) -> None:
        """Let `run` end with *error*, and so the daemon."""
        self._fatal = self._fatal or error
        self.stop()

    async def run(self) -> None:
        """Until `stop`; an error that nobody expected ends it, and must end the daemon."""
        self._dirty.update(dict.fromkeys(self._partitions))  # a crash may have left closed segments not flushed
        try:
            while not self._stopped.is_set():
                await self.step()
                if not self._dirty and not self._stopped.is_set():
                    self._woken.clear()
                    await _wait(self._woken, IDLE_TICK_S)
                if self._dirty:
                    await _wait(self._stopped, BUSY_TICK_S)
        finally:
            await self._partitions.starts.settle()
            self._thread.shutdown(wait=True)
        if self._fatal is not None:
            raise self._fatal

    async def step(self) -> None:
        """All that is due now."""
        if self._is_due("rolls", ROLL_CHECK_MS):
            await self._roll_old()
        if self._is_due("producers", min(EXPIRY_CHECK_MS, self._producer_expiry_ms)):
            await self._expire_producers()
        dirty, self._dirty = self._dirty, {}
        if dirty:
            self._touched()
        await self.flush(dirty)
        if self._is_due("retention", self._retention_check_ms):
            await self._retain()
        await self._checkpoint()
        for directory in self._partitions.directories:
            await self._in_thread(directory.purge)

    async def _checkpoint(self) -> None:
        for files, every_ms in ((FREQUENT_CHECKPOINTS, FREQUENT_MS), (RARE_CHECKPOINTS, RARE_MS)):
            if files in self._stale and self._is_due(files[0], every_ms):
                self._stale.discard(files)
                for directory in self._partitions.directories:
                    await self._in_thread(directory.checkpoint_job(files))

    async def roll(self, parts: Collection[PartitionId] | None = None) -> int:
        """Close active segments that are not empty (of all tiered partitions, or of *parts*) and flush them.

        Gives the number of segments closed. Raises DiskFull, OSError.
        """
        rolled = []
        for partition in self._partitions:
            if (partition.tiered if parts is None else partition.id in parts) and partition.log.roll():
                self._dirty[partition] = None
                rolled.append(partition)
        await self.flush(rolled)
        return len(rolled)

    async def catch_up(self) -> None:
        """Flush closed segments of all tiered partitions and show them to the tierer now, not at the next tick."""
        await self.flush([partition for partition in self._partitions if partition.tiered])

    def tell_active(self) -> None:
        """Show the tierer how far the active segments of all tiered partitions are: else it hears of closed ones."""
        for partition in self._partitions:
            if partition.tiered and not partition.deleted and not partition.offline and partition.log.size_bytes:
                partition.tell(self._tier)

    async def flush(self, partitions: Iterable[Partition]) -> None:
        """Make closed segments durable (and what flush.ms and flush.messages ask for), then tell the tierer of them."""
        for partition in partitions:
            if partition.deleted or partition.offline:
                continue
            logged = partition.log
            job = logged.unflushed(active=logged.flush_due(self._clock.monotonic_ms()))
            if job is not None:
                try:
                    await asyncio.get_running_loop().run_in_executor(self._thread, job.run)
                except FlushPutOff as error:
                    log.warning("flush is put off", extra={"partition": str(partition), "why": str(error)})
                    self._dirty[partition] = None
                except StorageFailed as error:
                    log.error("flush failed", extra={"partition": str(partition), "why": str(error)})
                seen = logged.high_watermark
                logged.flushed(job)
                if logged.high_watermark != seen:
                    partition.wake()
            if job is not None or partition.must_tell:
                partition.tell(self._tier)
            if logged.settings.flush_ms is not None and logged.recovery_point < logged.log_end:
                self._dirty[partition] = None  # Its time comes without another append.

    async def _roll_old(self) -> None:
        now_ms = self._clock.now_ms()
        async for partition in in_turns(self._partitions, _A_TURN):
            try:
                rolled = partition.log.maybe_roll(now_ms) or (self._too_old(partition, now_ms) and partition.log.roll())
            except (TierdError, OSError) as error:
                self._partitions.met(partition, error, "no roll")
                continue
            if rolled or partition.log.flush_due(self._clock.monotonic_ms()):  # settings may have come to ask for it
                self._dirty[partition] = None

    async def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        async for partition in in_turns(self._partitions, _A_TURN):
            partition.log.expire_producers(now_ms, self._producer_expiry_ms)

    def _too_old(self, partition: Partition, now_ms: int) -> bool:
        """Whether tierd.archive.max.age.ms asks for a roll: not while an older closed segment waits to be copied."""
        limit_ms, copied_to = partition.log.settings.tierd_archive_max_age_ms, partition.copied_to
        if self._tier is None or not partition.tiered or limit_ms is None or copied_to == partition.log.log_end:
            return False
        view = partition.view()
        if view.closed and (copied_to is None or copied_to < view.closed[-1].next_base):
            return False
        return view.active_append_ms is not None and now_ms - view.active_append_ms > limit_ms

    async def _retain(self) -> None:
        """Total retention of partitions that the bucket does not hold."""
        now_ms = self._clock.now_ms()
        moving: dict[Partition, int] = {}
        async for partition in in_turns(self._partitions, _A_TURN):
            if partition.deleted or partition.offline or partition.remote is not None:
                continue
            if self._tier is not None and partition.tiered:
                continue
            view = partition.view()
            try:
                start = await self._released(partition, now_ms)
                if start > view.log_start:
                    moving[partition] = start
                elif view.closed and view.closed[0].next_base <= start:  # It was active when log start passed it.
                    await self._in_thread(partition.log.start_moved(start))
            except (TierdError, OSError) as error:
                self._keep(partition, error)
        await self._release(moving)

    async def _released(self, partition: Partition, now_ms: int) -> int:
        """The log start after retention. Segments are looked at before they go: a wrong time index makes none older."""
        view = partition.view()
        start = released(view, now_ms)
        async for segment in in_turns([one for one in view.closed if view.log_start < one.next_base <= start], _LOOKS):
            if partition.deleted or partition.offline:
                return view.log_start
            try:
                partition.log.settled(segment.base)
            except Repairing:
                return view.log_start
            except (TierdError, OSError):
                continue  # damaged as it is, it goes
        return min(start, released(partition.view(), now_ms))

    async def _release(self, targets: Mapping[Partition, int]) -> None:
        failed = await self._partitions.starts.move(targets) if targets else {}
        for partition, start in targets.items():
            if partition in failed:
                self._keep(partition, failed[partition])
            elif not (partition.deleted or partition.offline):
                log.info("retention", extra={"partition": str(partition), "log_start": start})
                self._touched()

    def _keep(self, partition: Partition, error: TierdError | OSError) -> None:
        self._partitions.met(partition, error, "retention waits")

    async def _in_thread(self, work: Callable[[], object]) -> None:
        """A full or failing disk is logged: all of this is tried again at the next tick."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (DiskFull, OSError) as error:
            log.error("housekeeping failed", extra={"why": str(error)})

    def _is_due(self, what: str, every_ms: int) -> bool:
        now = self._clock.monotonic_ms()
        if now < self._due.get(what, 0):
            return False
        self._due[what] = now + every_ms
        return True


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        return
