"""Others run between the turns, and at no other time."""

import asyncio

from tierd.broker.turns import in_turns


async def _gone_through(count: int, a_turn: int) -> list[str]:
    """What happened, in order: a number for each thing, "others" for each time the loop served somebody else."""
    happened: list[str] = []
    done = asyncio.Event()

    async def others() -> None:
        while not done.is_set():
            happened.append("others")
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    async for number in in_turns(range(count), a_turn):
        happened.append(str(number))
    done.set()
    await beside
    return happened


def test_others_run_after_each_turn() -> None:
    assert asyncio.run(_gone_through(5, 2)) == ["0", "1", "others", "2", "3", "others", "4"]


def test_a_short_row_is_gone_through_at_once() -> None:
    assert asyncio.run(_gone_through(3, 100)) == ["0", "1", "2"]


def test_a_thing_is_taken_only_when_its_turn_comes() -> None:
    row = [1, 2, 3]

    async def without_the_last() -> list[int]:
        asyncio.get_running_loop().call_soon(row.pop)
        return [number async for number in in_turns(row, 2)]

    assert asyncio.run(without_the_last()) == [1, 2]
