"""The groups of one partition of `__consumer_offsets`, as they are held in memory."""

from dataclasses import dataclass, field

from tierd.base.ids import NO_ID, Uuid
from tierd.broker.groups.codec import Commit, CommitKey
from tierd.broker.groups.consumer.group import ConsumerGroup
from tierd.broker.groups.machine import Group
from tierd.broker.groups.pending import PendingOffsets
from tierd.wire.errors import ErrorCode


@dataclass(slots=True)
class Shard:
    """The groups of one partition of the topic."""

    index: int
    groups: dict[str, Group] = field(default_factory=dict)
    consumers: dict[str, ConsumerGroup] = field(default_factory=dict)
    """Those of the consumer protocol; no name is in both."""
    commits: dict[str, dict[tuple[str, int], Commit]] = field(default_factory=dict)
    """By group, then topic and partition."""
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    """What open transactions are about to commit."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Groups that are not served: nobody knows all that holds for them, and why."""

    def keeps_offsets(self, group_id: str) -> bool:
        """Whether the group has offsets, or an open transaction is about to commit some."""
        return bool(self.commits.get(group_id) or self.pending.of_group(group_id))

    def may_commit_alone(self, group_id: str, generation: int, no_group: ErrorCode) -> ErrorCode:
        """Where there is no group of the name anyone may keep offsets under it, but as no member of it.

        *no_group* says that there is none.
        """
        if generation < 0:
            return ErrorCode.NONE
        # Where there are offsets already Kafka has made a group of them, without members.
        return ErrorCode.UNKNOWN_MEMBER_ID if self.keeps_offsets(group_id) else no_group

    def offsets_of(self, group_id: str) -> set[CommitKey]:
        """All of them."""
        known = {CommitKey(group_id, *place) for place in self.commits.get(group_id, ())}
        return known | set(self.pending.of_group(group_id))

    def of_topic(self, topic: str, topic_id: Uuid) -> list[CommitKey]:
        """Whose offsets go with the topic, those of open transactions among them."""
        held = [
            (CommitKey(group_id, *place), commit)
            for group_id, commits in self.commits.items()
            for place, commit in commits.items()
        ]
        held += self.pending.commits()
        mine = [key for key, commit in held if key.topic == topic and commit.topic_id in (None, NO_ID, topic_id)]
        return list(dict.fromkeys(mine))

    def names(self) -> list[str]:
        """Of all groups, those that only keep offsets among them."""
        return list(dict.fromkeys([*self.commits, *self.groups, *self.consumers, *self.pending.groups]))
