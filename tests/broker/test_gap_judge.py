"""Offsets that the disk has lost are left to the bucket when it has all that is given up for them, and not before."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kit.logs import SMALL, TP, Place, fill, slice_bytes
from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId
from tierd.broker import gap_judge
from tierd.broker.mending import begin_one, let_wait
from tierd.broker.partition import Partition
from tierd.broker.problems import Kind, gap_problems, lost_for_good
from tierd.remote.view import RemotePartition
from tierd.storage.names import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT, Suffix, segment_file
from tierd.storage.view import PartitionView

TIERED = replace(SMALL, remote_storage_enable=True)
Gap = tuple[int, int]


@dataclass
class Tier:
    """Says what is whole, or nothing, from a list; then that all is."""

    answers: list[bool | None] = field(default_factory=list)
    asked: list[Gap] = field(default_factory=list)

    async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
        self.asked.append((start, stop))
        answer = self.answers.pop(0) if self.answers else True
        if answer is None:
            raise RemoteUnavailable("away")
        return answer

    def partition_changed(self, view: PartitionView) -> None:
        """Nobody asks."""


Work = Callable[[Partition, Gap], Awaitable[None]]


def _torn(root: Path, tier: Tier, work: Work, *, read_again: bool, lost: tuple[Gap, ...] = ()) -> None:
    """The second of several segments has lost its last batch; the bucket has had all of the closed ones."""
    place = Place(root, TIERED)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 60)
    closed = log.closed()
    directory.close(clean=True)
    second = place.data / f"{TP}" / segment_file(closed[1].base, Suffix.LOG)
    os.truncate(second, second.stat().st_size - 100)
    if read_again:
        (place.data / CLEAN_SHUTDOWN).unlink()
        (place.data / RECOVERY_POINT_CHECKPOINT).unlink()
    directory = place.open()
    logged = directory.logs[TP]
    partition = Partition(logged, PartitionId(logged.topic_id, 0), internal=False)
    partition.remote = RemotePartition(
        id=partition.id,
        start=0,
        copied_to=closed[-1].next_base,
        log_start=0,
        size_bytes=5,
        leader_epoch=None,
        lost=lost,
    )

    async def run() -> None:
        await begin_one(partition, 3, tier, over=False, start_known=True)  # type: ignore[arg-type]
        await asyncio.wait_for(work(partition, (closed[1].next_base - 2, closed[1].next_base)), 30)

    asyncio.run(run())
    directory.close(clean=True)


async def _until_moved(partition: Partition) -> None:
    moved = asyncio.Event()
    partition.wait(moved.set)
    await moved.wait()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_judge, "AGAIN_S", 0.01)


@pytest.mark.parametrize("read_again", [True, False])
def test_nothing_leaves_the_disk_before_a_list_shows_whole_copies(tmp_path: Path, soon: None, read_again: bool) -> None:
    tier = Tier([None, False, False])

    async def work(partition: Partition, gap: Gap) -> None:
        logged = partition.log
        assert slice_bytes(logged, gap[0]) == b"", "no reader passes over what the bucket may have"
        assert slice_bytes(logged, 0), "what the disk has is read"
        assert (logged.local_start, logged.found_gaps) == (0, (gap,))
        await _until_moved(partition)
        assert (logged.log_start, logged.local_start, logged.gaps) == (0, gap[1], ())
        assert set(tier.asked) == {(0, gap[1])}
        assert len(tier.asked) == 4

    _torn(tmp_path, tier, work, read_again=read_again)


@pytest.mark.parametrize("read_again", [True, False])
def test_what_the_bucket_has_lost_too_is_lost(tmp_path: Path, read_again: bool) -> None:
    tier = Tier()

    async def work(partition: Partition, gap: Gap) -> None:
        logged = partition.log
        if not read_again:
            assert slice_bytes(logged, gap[0]) == b""
            await _until_moved(partition)
        assert (logged.local_start, logged.found_gaps, logged.gaps) == (0, (), (gap,))
        assert slice_bytes(logged, gap[0]), "readers go on behind it"
        assert tier.asked == []

    _torn(tmp_path, tier, work, read_again=read_again, lost=((0, 1_000_000),))


def _two_torn(root: Path, *, side_by_side: bool = False) -> tuple[Partition, tuple[Gap, Gap]]:
    """The second and the fourth of several segments have lost their last batch; or the second, and the third all."""
    place = Place(root, TIERED)
    directory = place.open()
    fill(place.new_log(directory), 90)
    closed = directory.logs[TP].closed()
    directory.close(clean=True)
    last = closed[2 if side_by_side else 3]
    for one in (closed[1], last):
        torn = place.data / f"{TP}" / segment_file(one.base, Suffix.LOG)
        os.truncate(torn, 0 if side_by_side and one is last else torn.stat().st_size - 100)
    logged = place.open().logs[TP]
    partition = Partition(logged, PartitionId(logged.topic_id, 0), internal=False)
    partition.remote = RemotePartition(
        id=partition.id, start=0, copied_to=closed[-1].next_base, log_start=0, size_bytes=5, leader_epoch=None
    )
    first, second = ((one.next_base - 2, one.next_base) for one in (closed[1], last))
    return partition, (first, (last.base, last.next_base) if side_by_side else second)


def test_what_is_found_while_the_bucket_is_asked_is_asked_for_too(tmp_path: Path, soon: None) -> None:
    partition, (first, second) = _two_torn(tmp_path)
    logged = partition.log

    class Slow(Tier):
        async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
            if not self.asked:
                assert slice_bytes(logged, second[0]) == b""
                assert logged.found_gaps == (first, second)
            return await super().whole(part, start, stop)

    async def run() -> None:
        await begin_one(partition, 3, Slow(), over=False, start_known=True)  # type: ignore[arg-type]
        assert slice_bytes(logged, first[0]) == b""
        await asyncio.wait_for(_until_moved(partition), 30)

    asyncio.run(run())
    assert (logged.gaps, logged.local_start) == ((), second[1])


def test_lost_offsets_that_have_left_the_disk_wait_for_nothing(tmp_path: Path, soon: None) -> None:
    partition, (first, second) = _two_torn(tmp_path)
    logged = partition.log

    class Away(Tier):
        async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
            await super().whole(part, start, stop)
            if len(self.asked) > 1:
                return start < stop
            logged.evict(second[1])
            raise RemoteUnavailable("away")

    async def run() -> None:
        await begin_one(partition, 3, Away(), over=False, start_known=True)  # type: ignore[arg-type]
        assert slice_bytes(logged, first[0]) == b""
        await asyncio.wait_for(_until_moved(partition), 5)

    asyncio.run(run())
    assert (logged.gaps, logged.local_start) == ((), second[1])


def test_nobody_passes_over_lost_offsets_before_the_bucket_has_said_anything(tmp_path: Path) -> None:
    partition, (first, _) = _two_torn(tmp_path)
    let_wait(partition)
    assert slice_bytes(partition.log, first[0]) == b""
    assert slice_bytes(partition.log, first[0]) == b""


def test_what_no_bucket_has_is_passed_over_at_once(tmp_path: Path) -> None:
    """A log of groups or transactions begins with it: nothing to read there would be taken for its end."""
    partition, (first, _) = _two_torn(tmp_path)
    partition.remote = None

    async def run() -> None:
        await begin_one(partition, 3, Tier(), over=False, start_known=True)  # type: ignore[arg-type]
        assert slice_bytes(partition.log, first[0])
        assert first in partition.log.gaps
        assert partition.log.found_gaps == ()

    asyncio.run(run())


def test_of_two_lost_ranges_side_by_side_the_bucket_gives_the_one_that_it_has(tmp_path: Path, soon: None) -> None:
    partition, (first, second) = _two_torn(tmp_path, side_by_side=True)
    logged = partition.log
    assert partition.remote is not None
    partition.remote = replace(partition.remote, copied_to=second[0])

    async def run() -> None:
        await begin_one(partition, 3, Tier(), over=False, start_known=True)  # type: ignore[arg-type]
        moved = asyncio.Event()
        partition.wait(moved.set)
        assert slice_bytes(logged, second[0]) == b""
        assert slice_bytes(logged, first[0]) == b""
        await asyncio.wait_for(moved.wait(), 30)
        assert slice_bytes(logged, second[0]), "readers go on behind it"

    asyncio.run(run())
    assert (logged.local_start, logged.gaps) == (second[0], (second,))


def test_what_nobody_expects_while_a_gap_is_judged_is_heard_of_at_once(tmp_path: Path) -> None:
    partition, (first, _) = _two_torn(tmp_path)

    class Broken(Tier):
        async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
            raise ZeroDivisionError("a fault of ours")

    async def run() -> None:
        heard: asyncio.Future[dict[str, object]] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.set_result(context))
        await begin_one(partition, 3, Broken(), over=False, start_known=True)  # type: ignore[arg-type]
        assert slice_bytes(partition.log, first[0]) == b""
        assert isinstance((await asyncio.wait_for(heard, 30))["exception"], ZeroDivisionError)

    asyncio.run(run())


def test_what_the_readers_of_lost_offsets_wait_for_is_named(tmp_path: Path) -> None:
    partition, (first, _) = _two_torn(tmp_path)

    async def run() -> None:
        await begin_one(partition, 3, Tier([False]), over=False, start_known=True)  # type: ignore[arg-type]
        assert slice_bytes(partition.log, first[0]) == b""

    asyncio.run(run())
    logged = partition.log

    def told() -> str:
        (one,) = gap_problems(partition)
        assert one.kind is Kind.UNDECIDED
        return one.detail

    assert told().endswith("reads there wait until the bucket has been looked at")
    assert partition.remote is not None
    partition.remote = replace(partition.remote, lost=((0, 10),))
    assert "has lost offsets 0 to 9; they are copied again" in told()
    logged.settings = replace(logged.settings, remote_log_copy_disable=True)
    assert told().endswith("not copied again as long as remote.log.copy.disable=true")


def test_of_joined_gaps_only_what_was_decided_is_lost() -> None:
    assert list(lost_for_good([(0, 10), (20, 30)], [])) == [(0, 10), (20, 30)]
    assert list(lost_for_good([(0, 10), (20, 30)], [(8, 10), (2, 4), (20, 30)])) == [(0, 2), (4, 8)]
