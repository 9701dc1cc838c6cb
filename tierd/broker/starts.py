"""Log starts move: durable first, in a thread, then what lies below them goes, on the loop.

One move at a time in a data directory, which takes as many partitions along as the caller has: they share the fsyncs.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from tierd.base.errors import DiskFull
from tierd.broker.homes import Homes
from tierd.broker.ongoing import Ongoing
from tierd.broker.partition import Partition
from tierd.storage.directory import LogDirectory

Targets = Mapping[Partition, int]
Failed = dict[Partition, DiskFull | OSError]


class Starts:
    """Loop thread only. What has begun goes on when its caller is cancelled."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._locks: dict[LogDirectory, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._ongoing = Ongoing()

    async def move(self, targets: Targets) -> Failed:
        """Move log starts up to *targets*, and make log starts durable that are there already; what failed, and why.

        Nothing happens to partitions that are deleted or go offline meanwhile: look at that when this returns.
        """
        return await self._ongoing.whole(self._move({p: min(to, p.log.log_end) for p, to in targets.items()}))

    async def settle(self) -> None:
        """Wait for what is under way."""
        await self._ongoing.settle()

    async def _move(self, targets: Targets) -> Failed:
        failed: Failed = {}
        left = dict(targets)
        while left:
            parts: dict[LogDirectory, dict[Partition, int]] = defaultdict(dict)
            for partition, to in left.items():
                directory = self._directory(partition)
                if directory is not None:
                    parts[directory][partition] = to
            await asyncio.gather(*(self._move_in(directory, rows, failed) for directory, rows in parts.items()))
            # Those whose log has gone to another directory meanwhile are left.
            left = {
                partition: to
                for rows in parts.values()
                for partition, to in rows.items()
                if partition not in failed and self._to_do(partition, to)
            }
        return failed

    def _directory(self, partition: Partition) -> LogDirectory | None:
        """Where its log lies; None when nobody gets at it any more."""
        if partition.deleted or partition.offline:
            return None
        return self._homes.of(partition.log).directory

    def _to_do(self, partition: Partition, to: int) -> bool:
        directory = self._directory(partition)
        start = partition.log.log_start
        return directory is not None and (to > start or not directory.starts.lists(partition.name, start))

    async def _move_in(self, directory: LogDirectory, targets: Targets, failed: Failed) -> None:
        async with self._locks[directory]:
            going = {
                partition: max(to, partition.log.log_start)
                for partition, to in targets.items()
                if self._directory(partition) is directory and self._to_do(partition, to)
            }
            if not going:
                return
            memories = [job for partition, to in going.items() if (job := partition.log.memory_below(to)) is not None]
            move = directory.starts.move({partition.name: to for partition, to in going.items()})
            durable = False
            try:
                for job in (*memories, move.run):
                    await asyncio.to_thread(job)
                durable = True
            except (DiskFull, OSError) as error:
                failed |= dict.fromkeys(going, error)
                return
            finally:
                move.ended(durable=durable)
            jobs = await self._drop(directory, going, failed)
            for partition, found in zip(jobs, await _side_by_side(jobs.values()), strict=True):
                if found is not None and not partition.deleted:
                    failed[partition] = found

    async def _drop(
        self, directory: LogDirectory, going: Targets, failed: Failed
    ) -> dict[Partition, Callable[[], None]]:
        """What is below goes, a partition in a turn; what is still to be written."""
        jobs = {}
        for partition, to in going.items():
            if self._directory(partition) is directory and to > partition.log.log_start:
                try:
                    jobs[partition] = partition.log.start_moved(to)
                except (DiskFull, OSError) as error:
                    failed[partition] = error
                partition.wake()
                await asyncio.sleep(0)
        return jobs


async def _side_by_side(jobs: Iterable[Callable[[], None]]) -> list[DiskFull | OSError | None]:
    async def run(job: Callable[[], None]) -> DiskFull | OSError | None:
        try:
            await asyncio.to_thread(job)
        except (DiskFull, OSError) as error:
            return error
        return None

    return await asyncio.gather(*map(run, jobs))
