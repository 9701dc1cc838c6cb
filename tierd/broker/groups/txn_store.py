"""Offsets that open transactions are about to commit: written, held back, and seen or dropped with the marker."""

from dataclasses import replace

from tierd.base.errors import TierdError
from tierd.broker.groups import weight
from tierd.broker.groups.codec import Commit, CommitKey
from tierd.broker.groups.coordinator import Commits, Coordinator, NotReady, commit_rows
from tierd.broker.groups.pending import holds
from tierd.broker.groups.shard import Shard


class TransactionalOffsets:
    """Implements `markers.HeldOffsets`. Loop thread only."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def commit(self, shard: Shard, group_id: str, commits: Commits, producer: tuple[int, int]) -> None:
        """Write *commits* as part of the transaction of *producer* (id, epoch).

        Raises NotReady, NoRoom, GroupTooLarge and ProducerFenced; then none of them is part of it.
        """
        self._coordinator.check_number(group_id, len(commits))
        places = {place: CommitKey(group_id, *place) for place in commits}
        grown_bytes = sum(weight.commit_bytes(place[0], commit) for place, commit in commits.items())
        known = [shard.pending.get(producer[0], key) for key in places.values()]
        growth_bytes = grown_bytes - sum(weight.commit_bytes(p[0], c) for p, c in zip(places, known, strict=True) if c)
        self._coordinator.take(growth_bytes, group_id)
        try:
            most_bytes = self._coordinator.most_record_bytes
            written_at = self._coordinator.write(shard, commit_rows(group_id, commits), most_bytes, producer)
        except TierdError:
            self._coordinator.held_bytes -= growth_bytes
            raise
        placed = enumerate(commits.items(), written_at)
        shard.pending.put(producer[0], [(places[p], replace(commit, written_at=at)) for at, (p, commit) in placed])

    async def ready(self, partition: int) -> bool:
        """Read that partition when it has not been yet; False when that cannot be done now."""
        try:
            await self._coordinator.load(partition)
        except NotReady:
            return False
        return True

    def ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """The marker is in the log: let what the transaction committed be seen, or drop it. After `ready`."""
        shard = self._coordinator.loaded(partition)
        assert shard is not None
        for key, committed in shard.pending.take(producer_id).items():
            self._coordinator.held_bytes -= weight.commit_bytes(key.topic, committed)
            if commit:
                self._let_be_seen(shard, key, committed)

    def _let_be_seen(self, shard: Shard, key: CommitKey, committed: Commit) -> None:
        place = key.topic, key.partition
        if holds(shard.commits.get(key.group, {}).get(place), committed):
            self._coordinator.held_bytes += self._coordinator.growth_bytes(shard, key.group, {place: committed})
            shard.commits.setdefault(key.group, {})[place] = committed
