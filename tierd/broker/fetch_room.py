"""Room for fetches of very many partitions: each row costs memory for as long as its request is in work, and a client
may ask to wait for days."""

import asyncio
from collections.abc import Callable
from typing import Final

MOST_ROWS: Final = 400_000
"""Partitions that all these fetches together name; some 300 bytes each."""


class FetchRoom:
    """Where there is none, those that only wait for records answer with what there is, who waits longest first.

    Loop thread only.
    """

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most = most_rows
        self.rows = 0
        """Of all that are in."""
        self._idle: dict[Callable[[], None], None] = {}
        self._outside: list[asyncio.Future[None]] = []

    async def free(self, rows: int) -> None:
        """Wait until there is room for so many, or for a request that has more than all: until it is alone."""
        while self.rows and self.rows + rows > self._most:
            if self._idle:
                next(iter(self._idle))()
            left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._outside.append(left)
            await left

    async def enter(self, rows: int) -> None:
        await self.free(rows)
        self.rows += rows

    def leave(self, rows: int) -> None:
        self.rows -= rows
        outside, self._outside = self._outside, []
        for left in outside:
            if not left.done():
                left.set_result(None)

    def idle(self, answer: Callable[[], None]) -> None:
        """One that is in does nothing but wait; *answer* ends that, and is called once at least where there is need."""
        self._idle[answer] = None
        if self._outside:
            answer()

    def busy(self, answer: Callable[[], None]) -> None:
        """It waits no more."""
        self._idle.pop(answer, None)
