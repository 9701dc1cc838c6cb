"""Turns on an asyncio loop: a long row is gone through without keeping everybody else waiting."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, TypeVar

_Thing = TypeVar("_Thing")


async def in_turns(things: Iterable[_Thing], a_turn: int) -> AsyncIterator[_Thing]:
    """Each of *things*; after every *a_turn* of them the loop serves others, before the next one is taken.

    What others do in a turn may concern things still to come: each is looked at when it comes, not before. *things*
    must bear that: no dict or set that others change.
    """
    for number, thing in enumerate(things, 1):
        yield thing
        if number % a_turn == 0:
            await asyncio.sleep(0)


async def until(deadline: float, tasks: "Sequence[asyncio.Task[Any]]") -> None:
    """Wait until all *tasks* are done or the loop's clock reaches *deadline*; without tasks, until then."""
    left = deadline - asyncio.get_running_loop().time()
    if not tasks:
        await asyncio.sleep(max(left, 0))
    elif left > 0:
        await asyncio.wait(tasks, timeout=left)
    else:
        await asyncio.sleep(0)
