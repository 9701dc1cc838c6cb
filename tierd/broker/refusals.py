"""Lines about connections that were refused or closed: so many in a minute, then only how many more there were.

Strangers cause them: whoever connects a thousand times a second, from one address or from many, fills no disk.
"""

import logging

from tierd.base.clock import Clock
from tierd.broker.security.audit import Budget

log = logging.getLogger(__name__)


class Refusals:
    """Loop thread only."""

    def __init__(self, clock: Clock) -> None:
        self._budget = Budget(clock)

    def say(self, level: int, event: str, **facts: object) -> None:
        """One line, or one more that is left out."""
        if self._budget.spend():
            log.log(level, event, extra=facts)

    def sum_up(self) -> None:
        """Say how many lines were left out; call every now and then."""
        if left_out := self._budget.left_out():
            log.warning("more connections were refused or closed than there are lines", extra={"left_out": left_out})


class Addresses:
    """How many connections each address has. Loop thread only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._connections: dict[str, int] = {}

    def enter(self, host: str) -> bool:
        """One more from *host*; False when it has as many as it may have."""
        number = self._connections.get(host, 0)
        if number >= self._most:
            return False
        self._connections[host] = number + 1
        return True

    def leave(self, host: str) -> None:
        """One of those that entered has gone."""
        number = self._connections.pop(host) - 1
        if number:
            self._connections[host] = number
