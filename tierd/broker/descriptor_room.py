"""How many descriptors of remote reads may be out to clients: further reads wait until some have come back."""

import asyncio
from collections import deque
from collections.abc import Callable

A_READ = 16
"""The most that one read brings (`ReaderOptions.spans`): so much is set aside for one that is under way."""


class DescriptorRoom:
    """Loop thread only."""

    def __init__(self, most: int, spare: Callable[[], bool]) -> None:
        """*spare* gives back what nobody has come for, one at each call; False when there is nothing such."""
        self._most = most
        self._spare = spare
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.used = 0

    @property
    def short(self) -> bool:
        """Whether reads wait for descriptors."""
        return bool(self._waiting)

    async def take(self) -> None:
        """Set `A_READ` aside; waits for them. One read is let in however little may be out."""
        while not self._has_room():
            if self._spare():
                continue
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            try:
                await woken
            except asyncio.CancelledError:
                self._wake()  # it may have been this one's turn
                raise
        self.used += A_READ

    def give(self, number: int) -> None:
        self.used -= number
        self._wake()

    def _has_room(self) -> bool:
        return self.used == 0 or self.used + A_READ <= self._most

    def _wake(self) -> None:
        free = max((self._most - self.used) // A_READ, int(self.used == 0))
        while free and self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                free -= 1
