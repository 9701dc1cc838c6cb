"""Which assignment protocol a group uses: each member votes for its favourite among those that all speak."""

from collections import Counter
from collections.abc import Collection

from tierd.broker.groups.model import Member


def common_protocols(members: Collection[Member]) -> set[str]:
    """Names that every member speaks."""
    names = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*names) if names else set()


def vote(members: Collection[Member]) -> str | None:
    """The protocol with most votes, the earliest named among equals; None when they have none in common."""
    common = common_protocols(members)
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members if common)
    return max(votes, key=lambda name: votes[name], default=None)
