"""Requests that wait longer than anybody expects: which, for how long, and where in the broker they stand.

A wait may be right (a disk that takes its time, a batch with very many records) and is never cut short here; but nobody
is to look at a client without an answer and a log without a word. Fetches and group members wait for others, by design.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tierd.wire.api import ApiKey

log = logging.getLogger(__name__)

LONG_S: Final = 10.0
"""Said then, and whenever the longest of its kind has waited twice as long."""
_FOR_OTHERS: Final = frozenset({int(ApiKey.FETCH), int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP)})
_STEPS: Final = 8


class Wait(NamedTuple):
    """One request that is in work."""

    api_key: int | None
    """None: of a client that is not authenticated yet."""
    for_s: float
    work: object
    """The coroutine that answers it."""


class Waits:
    """What was said already. Loop thread only."""

    def __init__(self) -> None:
        self._next_s: dict[tuple[str, str], float] = {}

    def look(self, waits: Iterable[Wait]) -> None:
        """*waits*: all that are in work now. One line for all that stand at the same place."""
        found: dict[tuple[str, str], list[float]] = {}
        for wait in waits:
            if wait.for_s >= LONG_S and wait.api_key not in _FOR_OTHERS:
                name = "?" if wait.api_key is None else ApiKey(wait.api_key).name
                found.setdefault((name, stands_at(wait.work)), []).append(wait.for_s)
        self._next_s = {kind: self._next_s.get(kind, 0.0) for kind in found}
        for kind, seconds in found.items():
            longest_s = max(seconds)
            if longest_s >= self._next_s[kind]:
                self._next_s[kind] = 2 * longest_s
                facts = {"api": kind[0], "requests": len(seconds), "longest_s": round(longest_s), "at": kind[1]}
                log.warning("requests are not answered yet", extra=facts)


def stands_at(work: object) -> str:
    """The functions that a coroutine has come to, outermost first: `Produce._ask_first, ProduceGate.ask`."""
    names: list[str] = []
    step: Any = work
    while step is not None and len(names) < _STEPS:
        if (code := getattr(step, "cr_code", None)) is not None:
            names.append(code.co_qualname)
        step = getattr(step, "cr_await", None)
    return ", ".join(names)
