"""Subscriptions by pattern (KIP-848, in RE2's syntax): which topics match now. What is known of a name stays so."""

from collections.abc import Callable
from typing import Final

from tierd.broker.groups.consumer.model import Matching, Refused
from tierd.broker.groups.ports import Topics
from tierd.broker.pattern import BadPattern, Pattern
from tierd.wire.errors import ErrorCode

_MOST_PATTERNS: Final = 10_000
"""Of which is kept what they match."""
_MOST_MATCHED: Final = 500_000
"""Names that all of these match together."""


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
    """Matches all topics that there are; of each pattern only those that are new. Loop thread only."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._names: frozenset[str] = frozenset()
        self._ready: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        """By pattern, the one not asked for longest first: the names that were looked at, and those that match."""
        self._held = 0
        """Names in what they match."""

    def matching(self, sees: Callable[[str], bool]) -> Matching:
        """Gives the topics that match a pattern as a whole, as far as somebody *sees* them. For one turn of the loop:
        names are looked up once, however many members have a pattern."""
        found: dict[str, frozenset[str]] = {}

        def topics(pattern: str) -> frozenset[str]:
            if not found:
                self._look()
            if pattern not in found:
                matched = self._matched(pattern)
                seen = frozenset(filter(sees, matched))
                found[pattern] = seen if len(seen) < len(matched) else matched  # shared by members alike
            return found[pattern]

        return topics

    def _look(self) -> None:
        names = frozenset(self._topics.names())
        if names != self._names:
            for pattern in [pattern for pattern, (seen, _) in self._ready.items() if seen is not self._names]:
                self._forget(pattern)  # nobody has asked since the names changed before
            self._names = names

    def _matched(self, pattern: str) -> frozenset[str]:
        """None for one that is not understood: another broker may have let a member in with it."""
        seen, matched = self._forget(pattern)
        if seen is not self._names:
            fresh, program = self._names - seen, _compiled(pattern)
            if program is not None:
                matched = (matched & self._names).union(name for name in fresh if program.matches(name))
        while self._ready and (len(self._ready) >= _MOST_PATTERNS or self._held + len(matched) > _MOST_MATCHED):
            self._forget(next(iter(self._ready)))
        self._ready[pattern] = self._names, matched
        self._held += len(matched)
        return matched

    def _forget(self, pattern: str) -> tuple[frozenset[str], frozenset[str]]:
        """What was known of it."""
        known = self._ready.pop(pattern, (frozenset[str](), frozenset[str]()))
        self._held -= len(known[1])
        return known
