"""Offsets committed inside transactions that have no marker yet: stored, but not to be seen. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from tierd.broker.groups.codec import Commit, CommitKey


class PendingOffsets:
    """Of one partition of the topic, by producer id."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[CommitKey, Commit]] = {}
        self._holders: dict[str, Counter[CommitKey]] = {}
        """By group: how many transactions are about to commit each key."""

    def __contains__(self, key: CommitKey) -> bool:
        return key in self._holders.get(key.group, ())

    def of_group(self, group_id: str) -> Collection[CommitKey]:
        return self._holders.get(group_id, ())

    @property
    def groups(self) -> Collection[str]:
        """Those that have any."""
        return self._holders.keys()

    def commits(self) -> Iterator[tuple[CommitKey, Commit]]:
        for held in self._by_producer.values():
            yield from held.items()

    def get(self, producer_id: int, key: CommitKey) -> Commit | None:
        return self._by_producer.get(producer_id, {}).get(key)

    def put(self, producer_id: int, commits: Iterable[tuple[CommitKey, Commit]]) -> None:
        """A later commit of the same transaction takes the place of an earlier one."""
        held = self._by_producer.setdefault(producer_id, {})
        for key, commit in commits:
            if key not in held:
                self._holders.setdefault(key.group, Counter())[key] += 1
            held[key] = commit

    def take(self, producer_id: int) -> dict[CommitKey, Commit]:
        """The transaction has ended: what it was about to commit."""
        held = self._by_producer.pop(producer_id, {})
        for key in held:
            self._let_go(key)
        return held

    def drop(self, key: CommitKey) -> list[Commit]:
        """The offset was deleted meanwhile: no transaction brings it back. What they held."""
        dropped = []
        for held in self._by_producer.values():
            if key in held:
                dropped.append(held.pop(key))
                self._let_go(key)
        return dropped

    def _let_go(self, key: CommitKey) -> None:
        holders = self._holders[key.group]
        holders[key] -= 1
        if not holders[key]:
            del holders[key]
        if not holders:
            del self._holders[key.group]


def holds(known: Commit | None, commit: Commit) -> bool:
    """Whether *commit*, whose transaction has just ended well, is what counts: the record written later does, so that
    the same holds after a compaction, which keeps no marker's place."""
    return known is None or known.written_at < commit.written_at
