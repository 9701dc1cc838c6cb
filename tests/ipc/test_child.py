"""A real child process that ends, and the keeper that starts it again."""

import asyncio

import pytest

from tierd.base.clock import SystemClock
from tierd.ipc.child import Child

COMMAND = ("sh", "-c", "exec sleep 60")


@pytest.mark.parametrize("turns", range(8))
def test_a_keeper_that_is_ended_in_the_moment_in_which_its_child_ends_starts_no_other(turns: int) -> None:
    """*turns* of the loop after the child's end is known."""

    async def start_again() -> None:
        pytest.fail("the keeper goes on")

    async def scenario() -> None:
        child = Child("it", COMMAND, SystemClock(), lambda body, fds: None, lambda: None)
        await child.start()
        process = child._process
        assert process is not None
        keeper = asyncio.ensure_future(child.keep(start_again))
        child.let_go()
        child.kill()
        while process.returncode is None:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        keeper.cancel()
        await asyncio.wait({keeper})
        assert keeper.cancelled()
        await child.reap()

    asyncio.run(scenario())
