"""Subscriptions by pattern (KIP-848, in RE2's syntax): which topics match now. What is known of a name stays so."""

from collections.abc import Callable
from typing import Final

from tierd.broker.groups.consumer.model import Refused
from tierd.broker.groups.ports import Topics
from tierd.broker.pattern import BadPattern, Pattern
from tierd.wire.errors import ErrorCode

_MOST_PATTERNS: Final = 200
"""That are kept ready."""


def check_pattern(pattern: str) -> None:
    """Raises Refused."""
    try:
        Pattern(pattern)
    except BadPattern as error:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex is not understood: {error}"
        ) from error


def _compiled(pattern: str) -> Pattern | None:
    try:
        return Pattern(pattern)
    except BadPattern:
        return None


class Patterns:
    """Matches all topics that there are. Loop thread only."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._ready: dict[str, tuple[Pattern | None, dict[str, bool]]] = {}

    def topics(self, pattern: str, *, sees: Callable[[str], bool]) -> frozenset[str]:
        """Those that match *pattern* as a whole, as far as somebody *sees* them.

        None for one that is not understood: another broker may have let a member in with it.
        """
        ready = self._ready.get(pattern)
        if ready is None:
            if len(self._ready) >= _MOST_PATTERNS:
                self._ready.clear()
            ready = self._ready[pattern] = _compiled(pattern), {}
        program, known = ready
        if program is None:
            return frozenset()
        names = self._topics.names()
        if len(known) > 2 * len(names):
            known.clear()  # most of them are gone
        for name in names:
            if name not in known:
                known[name] = program.matches(name)
        return frozenset(name for name in names if known[name] and sees(name))
