"""Damage that a read has met is repaired in a thread, a segment at a time; meanwhile what wants to read there waits."""

import logging
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tierd.base.errors import TierdError
from tierd.broker.ongoing import Ongoing
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.storage.names import parse_partition_directory
from tierd.storage.repairs import Repair, Repairs

log = logging.getLogger(__name__)


class RepairThread:
    """Takes what the data directories have to repair from its beginning to `close`. Loop thread only."""

    def __init__(
        self, partitions: Partitions, tier: RemoteTier | None, broken: Callable[[BaseException], None]
    ) -> None:
        self._partitions = partitions
        self._tier = tier
        self._thread = ThreadPoolExecutor(1, "repairs")
        self._ongoing = Ongoing(broken)
        for directory in partitions.directories:
            directory.repairs.hand_over = partial(self._begin, directory.repairs)

    async def close(self) -> None:
        """Wait for what has begun: files change no more. What is met from then on is repaired at once."""
        for directory in self._partitions.directories:
            directory.repairs.hand_over = None
        await self._ongoing.settle()
        self._thread.shutdown(wait=False)

    def _begin(self, repairs: Repairs, repair: Repair) -> None:
        self._ongoing.begin(self._run(repairs, repair))

    async def _run(self, repairs: Repairs, repair: Repair) -> None:
        where = repair.segment.where
        try:
            take_in = await get_running_loop().run_in_executor(self._thread, repair.work)
            take_in()
        except (TierdError, OSError) as error:
            repairs.end(repair, error)
            if not repair.segment.gone:  # deleted meanwhile, with its files
                log.error("a damaged segment could not be repaired", extra={"log": where, "why": str(error)})
        else:
            repairs.end(repair)
            log.info("a damaged segment has been repaired", extra={"log": where})
        self._tell(repair)

    def _tell(self, repair: Repair) -> None:
        """Whoever waits for the partition looks again."""
        name = parse_partition_directory(repair.segment.directory.name)
        partition = None if name is None else self._partitions.get(name.topic, name.partition)
        if partition is None:
            return
        if partition.id not in self._partitions.waiting:  # the tierer hears of those once they have begun
            partition.tell(self._tier)
        partition.wake()
