"""Work that goes on whoever waits for it."""

import asyncio

import pytest

from tierd.base.errors import TierdError
from tierd.broker.ongoing import Ongoing


class Work:
    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.done = False

    async def run(self, error: Exception | None = None) -> str:
        await self.go.wait()
        self.done = True
        if error is not None:
            raise error
        return "made"


def test_what_has_begun_ends_although_the_one_who_waited_has_gone() -> None:
    async def scenario() -> None:
        ongoing, work = Ongoing(), Work()
        waiting = asyncio.create_task(ongoing.whole(work.run()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        work.go.set()
        await ongoing.settle()
        assert work.done

    asyncio.run(scenario())


@pytest.mark.parametrize(("error", "heard"), [(TierdError("full"), 0), (OSError(5, "disk"), 0), (KeyError("fault"), 1)])
def test_a_fault_of_ours_is_heard_of_and_what_may_happen_is_for_the_asker(error: Exception, heard: int) -> None:
    async def scenario() -> None:
        faults: list[BaseException] = []
        ongoing, work = Ongoing(faults.append), Work()
        work.go.set()
        with pytest.raises(type(error)):
            await ongoing.whole(work.run(error))
        await ongoing.settle()
        assert faults == [error] * heard

    asyncio.run(scenario())


def test_without_a_listener_the_loop_hears_of_a_fault() -> None:
    async def scenario() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        ongoing, work, fault = Ongoing(), Work(), KeyError("fault")
        work.go.set()
        ongoing.begin(work.run(fault))
        await ongoing.settle()
        assert told == [fault]

    asyncio.run(scenario())


def test_at_the_end_of_its_patience_it_gives_up() -> None:
    async def scenario() -> None:
        ongoing, work = Ongoing(), Work()
        task = ongoing.begin(work.run())
        await ongoing.settle(timeout_s=0.01)
        assert task.cancelled()
        assert not work.done

    asyncio.run(scenario())
