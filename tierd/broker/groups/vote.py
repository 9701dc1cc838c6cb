"""Which assignment protocol a group uses: each member votes for its favourite among those that all speak."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tierd.broker.groups.model import Member

Names = tuple[str, ...]
"""What one member speaks, its favourite first."""


class Ballots:
    """Which lists of names members give, and how many give each: few, however many members there are."""

    def __init__(self) -> None:
        self.lists: dict[Names, int] = {}

    def add(self, member: Member) -> None:
        names = _names(member)
        self.lists[names] = self.lists.get(names, 0) + 1

    def remove(self, member: Member) -> None:
        names = _names(member)
        self.lists[names] -= 1
        if not self.lists[names]:
            del self.lists[names]


def common_protocols(lists: Iterable[Names]) -> set[str]:
    """Names that every member speaks."""
    sets = [set(names) for names in lists]
    return set.intersection(*sets) if sets else set()


def vote(lists: Mapping[Names, int]) -> str | None:
    """The protocol with most votes, among equals that of the list given first; None when they have none in common."""
    common = common_protocols(lists)
    votes: Counter[str] = Counter()
    for names, members in lists.items() if common else ():
        votes[next(name for name in names if name in common)] += members
    return max(votes, key=lambda name: votes[name], default=None)


def _names(member: Member) -> Names:
    return tuple(name for name, _ in member.protocols)
