"""Where a partition begins in a run: behind what the bucket has, or not before the bucket has said so."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kit.logs import SMALL, TP, Place, fill
from tierd.base.errors import RemoteUnavailable
from tierd.base.exits import Exit, exit_of
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker.mending import begin_one, is_behind
from tierd.broker.partition import Partition
from tierd.config.topic import TopicSettings
from tierd.remote.view import RemotePartition
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

    async def seed(self, part: PartitionId) -> Seed:
        if self.away:
            raise RemoteUnavailable("S3 503")
        return Seed(snapshot=encode_snapshot([]), leader_epochs=encode_epochs([]))

    def partition_changed(self, view: PartitionView) -> None:
        """Nobody asks."""


def test_a_partition_behind_a_bucket_that_is_away_says_so_and_begins_once_it_answers(tmp_path: Path) -> None:
    directory = Place(tmp_path).open()
    logged = directory.create(TopicPartition("t", 0), TOPIC, TopicSettings())
    partition = Partition(logged, PartitionId(TOPIC, 0), internal=False)
    partition.remote = RemotePartition(
        id=partition.id, start=0, copied_to=100, log_start=0, size_bytes=5, leader_epoch=None
    )
    assert is_behind(partition)
    tier = Tier()

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
