"""One memory budget for everything in flight: what a reader waits for goes before what it may want later."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Ticket:
    """A request for memory; `urgent` when somebody waits for the bytes now."""

    size_bytes: int
    urgent: bool
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Permits:
    """Grants bytes and slots, urgent tickets first, each kind in its order. Event loop only."""

    def __init__(self, total_bytes: int, slots: int) -> None:
        """*slots* requests at once, one of which (when there are several) read-ahead never takes."""
        self._total_bytes = total_bytes
        self._free_bytes = total_bytes
        self._free_slots = slots
        self._kept_slots = 1 if slots > 1 else 0
        self._urgent: deque[Ticket] = deque()
        self._ahead: deque[Ticket] = deque()

    @asynccontextmanager
    async def hold(self, ticket: Ticket) -> AsyncIterator[None]:
        """Wait for the grant and give it back afterwards. More than the whole budget counts as the whole budget."""
        ticket.size_bytes = min(ticket.size_bytes, self._total_bytes)
        (self._urgent if ticket.urgent else self._ahead).append(ticket)
        self._grant()
        try:
            await ticket.granted
            yield
        finally:
            if ticket.granted.done() and not ticket.granted.cancelled():
                self._free_bytes += ticket.size_bytes
                self._free_slots += 1
            else:
                (self._urgent if ticket.urgent else self._ahead).remove(ticket)
            self._grant()

    def promote(self, ticket: Ticket) -> None:
        """Somebody waits for it now."""
        if not ticket.urgent and ticket in self._ahead:
            self._ahead.remove(ticket)
            ticket.urgent = True
            self._urgent.append(ticket)
            self._grant()

    def _grant(self) -> None:
        self._grant_from(self._urgent, 0)
        if not self._urgent:
            self._grant_from(self._ahead, self._kept_slots)

    def _grant_from(self, waiting: deque[Ticket], keep_slots: int) -> None:
        while waiting and self._free_slots > keep_slots and waiting[0].size_bytes <= self._free_bytes:
            ticket = waiting.popleft()
            self._free_bytes -= ticket.size_bytes
            self._free_slots -= 1
            ticket.granted.set_result(None)
