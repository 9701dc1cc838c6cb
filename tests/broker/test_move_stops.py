"""A move between data directories that is stopped at any step, or meets a disk that fails, leaves one whole copy."""

import asyncio
import errno
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from kit.clock import FakeClock
from kit.failing_disk import FailingDisk
from kit.logs import SMALL, T0, log_bytes
from kit.logs import batch as log_batch
from kit.model_disk import ModelDisk, PowerCut
from tierd.base.disk import Disk
from tierd.base.errors import DiskFull
from tierd.base.ids import TopicPartition, Uuid
from tierd.broker.homes import unusable
from tierd.broker.moves import Moves
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.registry import MoveRow, Registry, TopicRow
from tierd.config.resolve import TopicDefaults
from tierd.storage.batch import walk
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.wire.errors import ErrorCode

_T = TypeVar("_T")
TOPIC = Uuid(b"t" * 16)
NAME = TopicPartition("t", 0)


class Inline(Moves):
    """Copies on the loop, and appends after each round: the same steps each time."""

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        done = work()
        for move in self:
            move.partition.log.append(log_batch(2, size=100), now_ms=T0)
        return done


class Two:
    """Two directories with one partition, opened again and again."""

    def __init__(self, root: Path, disk: Disk, *, away: str = "") -> None:
        self.root = root
        self.registry = Registry.open(root.parent / "registry.sqlite")
        if not self.registry.topics():
            config = {"segment.bytes": "1048576", "internal.segment.bytes": "4096"}
            self.registry.add(TopicRow(id=TOPIC, name="t", partitions=1, created_ms=1, config=config))
        self.directories = [self._open(root / name, disk) for name in ("a", "b") if name != away]
        ids = {self.registry.get(name): name for name in ("a", "b")}
        for directory in self.directories:
            self.registry.put(directory.path.name, str(directory.directory_id))
        missing = [unusable(root / name, known, "away") for known, name in ids.items() if name == away]
        layers = TopicDefaults(tiering=False)
        self.partitions = Partitions(self.registry, self.directories, layers, FakeClock(), unusable=missing)
        self.partitions.load()

    def _open(self, path: Path, disk: Disk) -> LogDirectory:
        return LogDirectory.open(
            path,
            disk,
            FakeClock(),
            settings_for=lambda _: SMALL,
            node_id=1,
            cluster_id=None,
            set_aside=self.root / "aside",
            reserve_bytes=0,
        )

    async def begin(self) -> None:
        await self.partitions.begin(1 + max((p.log.leader_epoch for p in self.partitions), default=-1), {}, None)

    @property
    def partition(self) -> Partition:
        found = self.partitions.get("t", 0)
        assert found is not None
        return found

    async def move(self, moves: Moves | None = None) -> None:
        moves = moves or Inline(self.partitions, None, swap_bytes=300)
        await moves.resume()
        if not list(moves):
            here = self.partitions.homes.of(self.partition.log)
            await moves.begin(self.partition, next(home for home in self.partitions.homes if home is not here))
        running, idle = asyncio.ensure_future(moves.run()), asyncio.ensure_future(moves.idle.wait())
        await asyncio.wait({running, idle}, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        moves.stop()
        await running

    def close(self) -> None:
        for directory in self.directories:
            directory.close(clean=True)
        self.registry.close()

    def give_up(self) -> None:
        for directory in self.directories:
            directory._lock.release()
            directory._fds.close()
        self.registry.close()


def record_count(raw: bytes) -> int:
    return sum(header.count for _, header in walk(raw))


def plain(root: Path) -> list[str]:
    return [path.parent.name for path in sorted(root.glob("?/t-0"))]


async def one_stop(root: Path, at: int, power: Random | str | None) -> bool:
    """Stop at step *at* of a move; whether it came so far. Then all is there, once, and the move can be done again."""
    root.mkdir(parents=True)
    disk = ModelDisk(root)
    two = Two(root, disk)
    await two.begin()
    logged = two.partition.log
    for _ in range(8):
        logged.append(log_batch(3, size=400), now_ms=T0)
    job = logged.unflushed(active=True)
    assert job is not None
    job.run()
    logged.flushed(job)
    logged.move_log_start(4)
    for directory in two.directories:
        directory.write_checkpoints()
    flushed = log_bytes(logged)
    disk.dies_at = disk.steps + at
    stopped = False
    try:
        await two.move()
    except PowerCut:
        stopped = True
    acked = log_bytes(logged) if power is None else flushed
    two.give_up()
    if power is not None:
        disk.lose_unsynced(None if isinstance(power, str) else power)
    again = Two(root, PosixDisk())
    found = log_bytes(again.partition.log)
    assert (again.partition.log.log_start, found[: len(acked)]) == (4, acked), (at, len(found), len(acked))
    await again.begin()
    again.partition.log.append(log_batch(1), now_ms=T0)
    if again.partitions.outages.unfinished or not stopped:
        await again.move()
    for directory in again.directories:
        directory.purge()
    assert len(plain(root)) == 1
    left = sorted(path.name for path in root.glob("?/t-0?*") if not path.name.endswith("-delete"))
    assert left == [], at
    assert again.registry.moves() == []
    assert record_count(log_bytes(again.partition.log)) > record_count(acked)
    again.close()
    return stopped


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: hundreds of starts wait for nothing there."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(dir=shared))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("power", [None, "all", 1, 2], ids=["kill", "power, all lost", "power, some", "power, others"])
def test_a_stop_at_every_step_leaves_one_whole_copy(memory: Path, power: Any) -> None:
    steps = 0
    for at in itertools.count(1, 3 if isinstance(power, int) else 1):
        chance = Random(power * 1000 + at) if isinstance(power, int) else power
        if not asyncio.run(one_stop(memory / str(at) / "disk", at, chance)):
            break
        steps = at
    assert steps > 40, "a move has that many steps at least"


class FailsAtSwap(Inline):
    """The last steps of a move meet a disk that fails."""

    fault: Callable[[], None]

    def _swap(self, *how: Any) -> None:
        self.fault()
        super()._swap(*how)


@pytest.mark.parametrize("failing", ["source", "target"])
def test_a_disk_that_fails_at_the_swap_loses_nothing_that_comes_later(tmp_path: Path, failing: str) -> None:
    """The names of both copies last; the one that goes on counts at the next start, however equal they were."""

    async def scenario() -> None:
        root = tmp_path / "disk"
        root.mkdir()
        disk = FailingDisk()
        two = Two(root, disk)
        await two.begin()
        logged = two.partition.log
        logged.append(log_batch(3), now_ms=T0)
        source = logged.directory.parent
        target = root / ("b" if source.name == "a" else "a")
        step, below = ("replace", source) if failing == "source" else ("fsync_dir", target)
        moves = FailsAtSwap(two.partitions, None)
        moves.fault = lambda: disk.fail(errno.EIO, step, below=below, exactly=failing == "target")
        await two.move(moves)
        assert plain(root) == ["a", "b"]
        logged.append(log_batch(5), now_ms=T0)  # only in the one that goes on
        expected = log_bytes(logged)
        assert logged.directory.parent == (target if failing == "source" else source)
        disk.heal()
        two.give_up()
        again = Two(root, PosixDisk())
        assert log_bytes(again.partition.log) == expected
        assert again.partition.log.directory == logged.directory
        assert len(plain(root)) == 1
        again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("noting", ["place", "end_move"])
def test_a_registry_without_room_leaves_one_copy_that_counts(
    tmp_path: Path, noting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the log goes on in the target nothing calls it back, and the next start is not refused for the two."""

    async def scenario() -> None:
        root = tmp_path / "disk"
        root.mkdir()
        two = Two(root, PosixDisk())
        await two.begin()
        logged = two.partition.log
        logged.append(log_batch(3), now_ms=T0)
        source = logged.directory.parent

        def full(*_: object) -> None:
            raise DiskFull("no room")

        monkeypatch.setattr(two.registry, noting, full)
        await two.move()
        logged.append(log_batch(5), now_ms=T0)
        expected = log_bytes(logged)
        assert logged.directory.parent != source
        assert [len(directory.logs) for directory in two.directories if directory.path == source] == [0]
        two.close()
        again = Two(root, PosixDisk())
        assert log_bytes(again.partition.log) == expected
        assert again.partition.log.directory == logged.directory
        assert len(plain(root)) == 1
        assert again.registry.moves() == []
        again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("away", ["a", "b"])
def test_a_copy_whose_rival_is_away_is_not_served(tmp_path: Path, away: str) -> None:
    """Which one counts is known, but it is not there: serving the other would lose or fork records."""
    root = tmp_path / "disk"
    root.mkdir()

    async def scenario() -> None:
        two = Two(root, PosixDisk())
        await two.begin()
        two.partition.log.append(log_batch(3), now_ms=T0)
        source = two.partition.log.directory.parent.name
        target = "b" if source == "a" else "a"
        ids = {name: two.registry.get(name) or "" for name in ("a", "b")}
        row = MoveRow(
            part=two.partition.id,
            source=ids[source],
            target=ids[target],
            folder=f"t-0.{'0' * 32}-future",
            swapped=away == target,
        )
        two.registry.note_move(row)
        two.close()
        os.rename(root / source / "t-0", root / ("b" if away == "a" else "a") / "t-0")
        again = Two(root, PosixDisk(), away=away)
        assert again.partitions.get("t", 0) is None
        assert again.partitions.missing("t", 0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert plain(root) == ["b" if away == "a" else "a"]
        again.close()

    asyncio.run(scenario())
