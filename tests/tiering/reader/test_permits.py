"""The memory budget: never above it, urgent first, nothing lost when somebody gives up."""

import asyncio

import pytest

from kit.remote_log import run
from tierd.tiering.reader.permits import Permits, Ticket


class Load:
    """Holds tickets until told, and keeps the order in which they were granted."""

    def __init__(self, permits: Permits) -> None:
        self.permits = permits
        self.granted: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.tickets: dict[str, Ticket] = {}
        self._done: dict[str, asyncio.Event] = {}

    def ask(self, name: str, size_bytes: int, *, urgent: bool = False) -> None:
        self.tickets[name], self._done[name] = Ticket(size_bytes, urgent), asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._hold(name))

    async def _hold(self, name: str) -> None:
        async with self.permits.hold(self.tickets[name]):
            self.granted.append(name)
            await self._done[name].wait()

    async def finish(self, name: str) -> None:
        self._done[name].set()
        await self.tasks[name]
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_urgent_ones_first_and_each_kind_in_order() -> None:
    async def work() -> None:
        load = Load(Permits(100, slots=3))
        load.ask("a", 60)
        await settle()
        for name, urgent in (("b", False), ("c", False), ("d", True), ("e", True)):
            load.ask(name, 60, urgent=urgent)
        await settle()
        assert load.granted == ["a"]
        load.permits.promote(load.tickets["c"])
        for name in ("a", "d", "e", "c", "b"):
            await load.finish(name)
        assert load.granted == ["a", "d", "e", "c", "b"]

    run(work)


def test_read_ahead_leaves_a_slot_to_those_who_wait() -> None:
    async def work() -> None:
        load = Load(Permits(1000, slots=3))
        for name in "abc":
            load.ask(name, 1)
        await settle()
        assert load.granted == ["a", "b"]
        load.ask("now", 1, urgent=True)
        await settle()
        assert load.granted == ["a", "b", "now"]
        for name in ("a", "b", "now", "c"):
            await load.finish(name)

    run(work)


def test_more_than_everything_counts_as_everything() -> None:
    async def work() -> None:
        load = Load(Permits(100, slots=9))
        load.ask("huge", 5000, urgent=True)
        load.ask("small", 1, urgent=True)
        await settle()
        assert load.granted == ["huge"]
        await load.finish("huge")
        await load.finish("small")

    run(work)


@pytest.mark.parametrize("victim", ["a", "b"])
def test_who_gives_up_gives_back(victim: str) -> None:
    async def work() -> None:
        load = Load(Permits(100, slots=2))
        for name in "abc":
            load.ask(name, 100, urgent=True)
        await settle()
        load.tasks[victim].cancel()
        await asyncio.gather(load.tasks[victim], return_exceptions=True)
        await settle()
        for name in "abc":
            if name != victim:
                await load.finish(name)
        load.ask("last", 100)
        await settle()
        assert load.granted[-1] == "last"
        await load.finish("last")

    run(work)
