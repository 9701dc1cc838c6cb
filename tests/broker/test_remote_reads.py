"""Reads from the bucket that fail again and again: each is counted, few are worth a line."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kit.clock import FakeClock
from tierd.base import descriptors
from tierd.base.errors import Archived, CorruptFile, RemoteUnavailable, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.broker.counters import Counters
from tierd.broker.remote_reads import RemoteReads, RemoteWant
from tierd.storage.view import EMPTY_SLICE, FileSpan, LogSlice

PART = PartitionId(Uuid(b"t" * 16), 0)


class Failing:
    """A tier whose reads below *good_from* fail."""

    def __init__(self, error: TierdError, good_from: int) -> None:
        self.error, self.good_from = error, good_from

    async def read(self, part: PartitionId, offset: int, **_: object) -> LogSlice:
        if offset < self.good_from:
            raise self.error
        return EMPTY_SLICE


@pytest.mark.parametrize("error", [RemoteUnavailable("away"), CorruptFile("object", 0, "gone"), Archived("frozen")])
def test_the_first_failure_is_told_then_each_that_doubles_their_number(
    error: TierdError, caplog: pytest.LogCaptureFixture
) -> None:
    partition: Any = SimpleNamespace(id=PART, silent_ms=None, tried_ms=0, unreadable=None)
    counters, tier = Counters(), Failing(error, good_from=100)

    async def run() -> None:
        reads = RemoteReads(tier, FakeClock(), counters)  # type: ignore[arg-type]

        async def ask(offset: int) -> None:
            await reads.begin(RemoteWant(partition, offset, 1000, 200, False))

        for _ in range(9):
            with pytest.raises(type(error)):
                await ask(5)
            await ask(150)  # others read well meanwhile
        assert [record.__dict__["times"] for record in caplog.records] == [1, 2, 4, 8]
        tier.good_from = 0
        await ask(5)
        tier.good_from = 100
        with pytest.raises(type(error)):
            await ask(5)
        assert caplog.records[-1].__dict__["times"] == 1

    asyncio.run(run())
    assert counters.remote_reads_failed == 10
    assert partition.unreadable == (None if isinstance(error, RemoteUnavailable) else (5, str(error)))


class Place:
    """What a read asks of its partition."""

    id = PART
    silent_ms: int | None = None
    unreadable: tuple[int, str] | None = None
    tried_ms = 0


class Giving:
    """A tier whose reads each bring one descriptor, when the door is open."""

    def __init__(self) -> None:
        self.door = asyncio.Event()
        self.out = self.most = 0

    async def read(self, part: PartitionId, offset: int, **_: object) -> LogSlice:
        await self.door.wait()
        self.out += 1
        self.most = max(self.most, self.out)
        return LogSlice((FileSpan(0, 0, 10),), 10, (), offset + 1, self._back)

    def _back(self) -> None:
        self.out -= 1


def test_results_that_nobody_takes_are_let_go_when_descriptors_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "for_remote_reads", lambda: 64)
    partition: Any = Place()

    async def run() -> None:
        tier = Giving()
        reads = RemoteReads(tier, FakeClock(), Counters())  # type: ignore[arg-type]
        wants = [RemoteWant(partition, offset, 1000, 700, False) for offset in range(600)]
        tasks = [reads.begin(want) for want in wants]
        for want, task in zip(wants, tasks, strict=True):
            reads.leave(want, task)  # all of these clients have hung up
        tier.door.set()
        await asyncio.wait(tasks)
        assert tier.most <= 64
        assert reads.room.used == tier.out
        wanted = await reads.begin(RemoteWant(partition, 650, 1000, 700, False))
        assert wanted.length == 10
        wanted.release()
        await reads.close()
        await asyncio.sleep(0)
        assert (tier.out, reads.room.used) == (0, 0)

    asyncio.run(run())


def test_a_read_that_is_given_up_while_it_waits_lets_the_next_one_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "for_remote_reads", lambda: 1)
    partition: Any = Place()

    async def run() -> None:
        tier = Giving()
        tier.door.set()
        reads = RemoteReads(tier, FakeClock(), Counters())  # type: ignore[arg-type]
        first, second, third = (reads.begin(RemoteWant(partition, at, 1000, 700, False)) for at in range(3))
        held = await first
        await asyncio.sleep(0)
        assert not second.done()
        held.release()
        second.cancel()  # just when its turn has come
        (await asyncio.wait_for(third, 60)).release()
        assert reads.room.used == 0

    asyncio.run(run())
