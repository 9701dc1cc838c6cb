"""Where a partition begins in a run: behind what the bucket has, or not before the bucket has said so."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.logs import SMALL, TP, Place, fill
from tierd.base.errors import RemoteUnavailable
from tierd.base.exits import Exit, exit_of
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker import local_tier, mending
from tierd.broker.local_tier import LocalLog
from tierd.broker.mending import begin_one, is_behind
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.registry import Registry
from tierd.config.resolve import TopicDefaults
from tierd.config.topic import TopicSettings
from tierd.remote.view import Claim, ClaimState, RemotePartition
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.epochs import encode_epochs
from tierd.storage.names import LOG_START_CHECKPOINT
from tierd.storage.snapshot import encode_snapshot
from tierd.storage.view import PartitionView, Seed

TOPIC = Uuid(b"t" * 16)


class Tier:
    """Gives seeds, or nothing."""

    def __init__(self) -> None:
        self.away = True
        self.fails = 0
        """So many seeds are refused although it is not away."""
        self.seeds: list[int] = []
        """Whose seed was asked for, by number of the partition."""
        self.claim = Claim(state=ClaimState.HELD, epoch=3)
        self.gate: asyncio.Event | None = None

    def remote_partition(self, part: PartitionId) -> RemotePartition:
        return RemotePartition(id=part, start=0, copied_to=100, log_start=0, size_bytes=5, leader_epoch=None)

    async def seed(self, part: PartitionId) -> Seed:
        self.seeds.append(part.partition)
        if self.gate is not None:
            await self.gate.wait()
        self.fails -= 1
        if self.away or self.fails >= 0:
            raise RemoteUnavailable("S3 503")
        return Seed(snapshot=encode_snapshot([]), leader_epochs=encode_epochs([]))

    def partition_changed(self, view: PartitionView) -> None:
        """Nobody asks."""


def test_a_partition_behind_a_bucket_that_is_away_says_so_and_begins_once_it_answers(tmp_path: Path) -> None:
    directory = Place(tmp_path).open()
    logged = directory.create(TopicPartition("t", 0), TOPIC, TopicSettings())
    partition = Partition(logged, PartitionId(TOPIC, 0), internal=False)
    tier = Tier()
    partition.remote = tier.remote_partition(partition.id)
    assert is_behind(partition)

    async def begin() -> None:
        await begin_one(partition, 3, tier, over=False, start_known=True)  # type: ignore[arg-type]

    with pytest.raises(RemoteUnavailable, match=r"t-0: the disk is behind the bucket.*start again when") as caught:
        asyncio.run(begin())
    assert exit_of(caught.value) is Exit.BUCKET_SILENT
    assert logged.log_end == 0
    tier.away = False
    asyncio.run(begin())
    assert (logged.log_end, logged.leader_epoch) == (100, 3)
    assert not is_behind(partition)
    directory.close(clean=True)


@pytest.mark.parametrize("taken", [True, False])
def test_only_a_disk_that_has_lost_something_is_warned_about(
    tmp_path: Path, taken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What a recovery has just made never had what the bucket has."""
    directory = Place(tmp_path).open()
    logged = directory.create(TopicPartition("t", 0), TOPIC, TopicSettings())
    partition, tier = Partition(logged, PartitionId(TOPIC, 0), internal=False), Tier()
    tier.away, partition.taken = False, taken
    partition.remote = tier.remote_partition(partition.id)
    with caplog.at_level(logging.WARNING):
        asyncio.run(begin_one(partition, 3, tier, over=False, start_known=False))  # type: ignore[arg-type]
    told = ["the disk had fallen behind the bucket", "log start was lost, taken from the bucket"]
    assert [one.message for one in caplog.records] == ([] if taken else told)
    assert (logged.log_start, logged.log_end, directory.set_aside.count) == (0, 100, 0)
    directory.close(clean=True)


@pytest.mark.parametrize("copied_to", [100, None])
def test_offsets_of_records_that_were_deleted_before_they_were_copied_are_not_given_out_again(
    tmp_path: Path, copied_to: int | None
) -> None:
    """Else what is written there next would be below log start at the next start, and go."""
    directory = Place(tmp_path).open()
    logged = directory.create(TopicPartition("t", 0), TOPIC, TopicSettings())
    partition, tier = Partition(logged, PartitionId(TOPIC, 0), internal=False), Tier()
    tier.away = False
    partition.remote = replace(tier.remote_partition(partition.id), copied_to=copied_to, log_start=120)
    asyncio.run(begin_one(partition, 3, tier, over=False, start_known=False))  # type: ignore[arg-type]
    assert (logged.log_start, logged.log_end) == (120, 120)
    directory.close(clean=True)


def test_a_log_start_that_was_lost_is_not_listed_before_the_bucket_was_asked(tmp_path: Path) -> None:
    place = Place(tmp_path, replace(SMALL, remote_storage_enable=True))
    listing = place.data / LOG_START_CHECKPOINT
    directory = place.open()
    logged = place.new_log(directory)
    fill(logged, 60)
    start = logged.closed()[1].next_base
    logged.move_log_start(start)
    directory.close(clean=True)
    listing.unlink()

    directory = place.open()
    directory.write_checkpoints()
    directory.close(clean=True)
    assert parse_checkpoint(listing.read_bytes()) == {}, "the bucket has not answered"

    directory = place.open()
    logged = directory.logs[TP]
    partition = Partition(logged, PartitionId(logged.topic_id, 0), internal=False)
    asyncio.run(begin_one(partition, 3, None, over=False, start_known=False))
    assert logged.log_start == logged.local_start == start
    directory.write_checkpoints()
    assert parse_checkpoint(listing.read_bytes()) == {TP: start}
    directory.close(clean=True)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Partitions]:
    """Two empty partitions of a topic, of which the bucket has 100 records each."""
    directory = Place(tmp_path).open()
    for number in range(2):
        directory.create(TopicPartition("t", number), TOPIC, TopicSettings())
    registry = Registry.open(tmp_path / "registry.sqlite")
    partitions = Partitions(registry, [directory], TopicDefaults(tiering=True), FakeClock())
    partitions.load()
    yield partitions
    directory.close(clean=True)
    registry.close()


def _ends(partitions: Partitions) -> list[int]:
    return [partition.log.log_end for partition in partitions]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_tier, "FIRST_AGAIN_S", 0.01)
    monkeypatch.setattr(mending, "SEED_AGAIN_S", (0.01, 0.01))


def test_one_failed_look_keeps_neither_the_start_nor_the_other_partitions(two: Partitions, soon: None) -> None:
    tier, local = Tier(), LocalLog(two, FakeClock())
    tier.away, tier.fails = False, 2
    local.tier = tier  # type: ignore[assignment]
    remotes = {partition.id: tier.remote_partition(partition.id) for partition in two}

    async def run() -> None:
        await two.begin(3, remotes, tier)  # type: ignore[arg-type]
        assert two.waiting == {partition.id for partition in two}
        tier.fails = 1
        local.begin_waiting()
        local.begin_waiting()
        begun: list[asyncio.Event] = []
        for partition in two:
            begun.append(asyncio.Event())
            partition.wait(begun[-1].set)
        await asyncio.wait_for(begun[1].wait(), 30)
        assert two.waiting == {PartitionId(TOPIC, 0)}, "one that fails holds up no other"
        await asyncio.wait_for(begun[0].wait(), 30)

    asyncio.run(run())
    assert _ends(two) == [100, 100]
    assert tier.seeds == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("failures", [2, 3])
def test_a_take_over_asks_again_for_a_while_and_shows_nothing_meanwhile(
    two: Partitions, soon: None, failures: int
) -> None:
    tier = Tier()
    tier.away, tier.fails = False, failures
    remotes = {partition.id: tier.remote_partition(partition.id) for partition in two}

    async def run() -> None:
        await two.begin(3, remotes, tier, outside=set(remotes))  # type: ignore[arg-type]

    if failures == 2:
        asyncio.run(run())
        assert _ends(two) == [100, 100]
    else:
        with pytest.raises(RemoteUnavailable, match="start again when"):
            asyncio.run(run())


def test_a_claim_that_comes_while_partitions_begin_makes_none_begin_twice(two: Partitions) -> None:
    tier = Tier()
    tier.away = False
    remotes = {partition.id: tier.remote_partition(partition.id) for partition in two}

    async def run() -> None:
        tier.gate = asyncio.Event()
        beginning = asyncio.ensure_future(
            two.begin(3, remotes, tier, waiting=[PartitionId(TOPIC, 1)])  # type: ignore[arg-type]
        )
        while not tier.seeds:
            await asyncio.sleep(0)
        later = [asyncio.ensure_future(two.begin_waiting(tier)) for _ in range(2)]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        tier.gate.set()
        await asyncio.gather(beginning, *later)

    asyncio.run(run())
    assert _ends(two) == [100, 100]
    assert tier.seeds == [0, 1]
