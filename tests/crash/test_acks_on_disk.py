"""tierd.acks.durability=disk under power cuts: nothing that was acknowledged or seen is lost, wherever it happens."""

import asyncio
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from kit.logs import SMALL, T0, TOPIC_ID, Place, batch
from kit.model_disk import ModelDisk, PowerCut
from tierd.base.ids import PartitionId, TopicPartition
from tierd.broker.commits import Commits
from tierd.broker.counters import Counters
from tierd.broker.partition import Partition
from tierd.storage.directory import LogDirectory

DISK = replace(SMALL, internal_segment_bytes=900, tierd_acks_durability="disk")
PARTITIONS, CLIENTS, REQUESTS = 3, 5, 6


@dataclass
class Told:
    """What the world has been told."""

    acked: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Batch by partition and base offset."""
    seen: dict[int, int] = field(default_factory=dict)
    """The largest high watermark of each partition."""
    counters: Counters = field(default_factory=Counters)
    appends: int = 0


class Producers:
    """CLIENTS clients that send to all partitions, each waiting for its answer before the next request."""

    def __init__(self, directory: LogDirectory, told: Told) -> None:
        self._told = told
        self._parts = []
        for number in range(PARTITIONS):
            log = directory.create(TopicPartition("t", number), TOPIC_ID, DISK)
            log.begin(0, 0)
            self._parts.append(Partition(log, PartitionId(TOPIC_ID, number), internal=False))
        self._commits = Commits(told.counters, committed=self._look, broken=lambda _: None)

    def _look(self, partition: Partition) -> None:
        number = partition.name.partition
        self._told.seen[number] = max(self._told.seen.get(number, 0), partition.log.high_watermark)

    async def run(self) -> None:
        clients = [asyncio.ensure_future(self._client(number)) for number in range(CLIENTS)]
        try:
            await asyncio.gather(*clients)
        finally:
            for client in clients:
                client.cancel()
            await self._commits.close()

    async def _client(self, client: int) -> None:
        for request in range(REQUESTS):
            partition = self._parts[(client + request) % PARTITIONS]
            raw = batch(2, size=50, at_ms=T0 + client * 1000 + request)
            done = partition.log.append(raw, now_ms=T0)
            self._told.appends += 1
            await self._commits.wait(partition)
            self._told.acked[partition.name.partition, done.first_offset] = bytes(raw)


async def live(place: Place, told: Told, disk: ModelDisk) -> None:
    """Until all is sent or the power goes."""
    off = asyncio.Event()
    loop = asyncio.get_running_loop()
    disk.on_cut = lambda: loop.call_soon_threadsafe(off.set)
    directory = place.open()
    running = asyncio.ensure_future(Producers(directory, told).run())
    gone = asyncio.ensure_future(off.wait())
    await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not running.done():
        running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    if disk.dies_at is None:
        directory.close(clean=True)


def check(place: Place, told: Told) -> None:
    directory = place.open()
    for (number, base), raw in told.acked.items():
        log = directory.logs[TopicPartition("t", number)]
        assert [bytes(found) for _, found in log.batches(base, base + 2)] == [raw]
    for number, seen in told.seen.items():
        assert directory.logs[TopicPartition("t", number)].log_end >= seen
    directory.close(clean=False)


def test_many_share_an_fsync(tmp_path: Path) -> None:
    disk, told = ModelDisk(tmp_path), Told()
    place = Place(tmp_path, DISK, disk=disk)
    asyncio.run(live(place, told, disk))
    assert len(told.acked) == told.appends == CLIENTS * REQUESTS
    assert told.counters.commits < told.appends
    print(f"{told.appends / told.counters.commits:.1f} appends per flush")


@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_or_seen_is_lost(part: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    disk = ModelDisk(whole)
    asyncio.run(live(Place(whole, DISK, disk=disk), Told(), disk))
    assert disk.steps > 100
    acked = 0
    for dies_at in range(1 + 2 * part, disk.steps, 8):
        for chance in (None, Random(dies_at)):
            root = tmp_path / "life"
            root.mkdir()
            dying, told = ModelDisk(root, dies_at), Told()
            with suppress(PowerCut):
                asyncio.run(live(Place(root, DISK, disk=dying), told, dying))
            dying.lose_unsynced(chance)
            try:
                check(Place(root, DISK, disk=ModelDisk(root)), told)
            except Exception as error:
                error.add_note(f"step {dies_at}: {dying.trace[-8:]}")
                raise
            acked += len(told.acked)
            shutil.rmtree(root)
    assert acked > 500
