"""Consumer groups joined with the log and the clock: what a step changes is written before it holds."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from tierd.broker.groups.alarms import Alarms
from tierd.broker.groups.codec import encode_group, encode_group_key
from tierd.broker.groups.consumer.group import ConsumerGroup
from tierd.broker.groups.consumer.migration import given_back, taken_along
from tierd.broker.groups.consumer.model import JOINING, Beat, ConsumerMember, ConsumerState, Refused
from tierd.broker.groups.consumer.patterns import Patterns
from tierd.broker.groups.consumer.records import difference
from tierd.broker.groups.consumer.rules import beaten, left
from tierd.broker.groups.coordinator import Coordinator, NoRoom, NotReady, Row
from tierd.broker.groups.ports import Topics
from tierd.broker.groups.shard import Shard
from tierd.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_LOOK_EVERY_MS = 1_000
"""How often at most a group looks whether its topics have changed."""
_AGAIN_MS = 1_000
"""After the log could not be written."""


class Heard(NamedTuple):
    """What a heartbeat led to."""

    member: ConsumerMember
    moved: bool
    """Whether it is to read something else than before."""


class ConsumerGroups:
    """What ConsumerGroupHeartbeat acts on; `run_due` sends overdue members away. Loop thread only."""

    def __init__(self, coordinator: Coordinator, topics: Topics) -> None:
        self._coordinator = coordinator
        self._topics = topics
        self._patterns = Patterns(topics)
        self._alarms: Alarms[tuple[Shard, ConsumerGroup]] = Alarms(coordinator.now_ms, self.run_due)
        coordinator.on_read = self._read

    async def beat(self, group_id: str, beat: Beat, sees: Callable[[str], bool]) -> Heard | None:
        """Hear a member, which *sees* topics by their names; None when it has left. Raises Refused."""
        try:
            shard = await self._coordinator.shard(group_id)
            if beat.epoch >= JOINING:
                return self._hear(shard, group_id, beat, sees)
            group = self._known(shard, group_id)
            self._become(shard, group, left(group.state, beat))
        except NotReady as error:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except NoRoom as error:
            raise Refused(ErrorCode.POLICY_VIOLATION, str(error)) from error
        return None

    def send_away(self, shard: Shard, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """What an administrator does with LeaveGroup, who may name a static member by its instance alone."""
        group = shard.consumers[group_id]
        static = None if instance_id is None else group.state.by_instance(instance_id)
        member = static if instance_id is not None else group.state.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id not in ("", member.id):
            return ErrorCode.FENCED_INSTANCE_ID
        try:
            self._become(shard, group, group.without({member.id}))
        except NotReady:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        except Refused as error:
            return error.code
        return ErrorCode.NONE

    def _hear(self, shard: Shard, group_id: str, beat: Beat, sees: Callable[[str], bool]) -> Heard:
        group = self._joinable(shard, group_id) if beat.epoch == JOINING else self._known(shard, group_id)
        return self.hear(shard, group, beat, sees)

    def hear(self, shard: Shard, group: ConsumerGroup, beat: Beat, sees: Callable[[str], bool]) -> Heard:
        """The same of a group that is known. A group that is left with classic members becomes a classic one.

        Raises Refused, NotReady, NoRoom.
        """
        now_ms = self._coordinator.now_ms()
        look = group.looked_ms is None or now_ms - group.looked_ms >= _LOOK_EVERY_MS
        most = self._coordinator.limits.consumer_max_size
        old = group.state
        matching = self._patterns.matching(sees)
        new = beaten(old, beat, self._topics.layout, matching, most_members=most, look=look)
        if new is not old:
            self._coordinator.check_room(group.growth_bytes(new), group.id)
        self._become(shard, group, new, heard=beat.member_id)
        if look:
            group.looked_ms = now_ms
        member, before = new.members[beat.member_id], old.members.get(beat.member_id)
        return Heard(member, before is None or before.assigned != member.assigned)

    def _known(self, shard: Shard, group_id: str) -> ConsumerGroup:
        """Raises Refused; who is in no group is to join again."""
        group = shard.consumers.get(group_id)
        if group is None and group_id in shard.groups:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        if group is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} does not exist.")
        return group

    def _joinable(self, shard: Shard, group_id: str) -> ConsumerGroup:
        """The group, or a new one that nobody knows of yet, with the members of a classic one. Raises Refused."""
        classic = shard.groups.get(group_id)
        if classic is not None and classic.members:
            return self._coordinator.consumer_group(group_id, taken_along(classic, self._topics.layout))
        return shard.consumers.get(group_id) or self._coordinator.consumer_group(group_id, ConsumerState())

    def _read(self, shard: Shard) -> None:
        """A partition of the log was read."""
        for group in shard.consumers.values():
            self.arm(shard, group)

    def _become(self, shard: Shard, group: ConsumerGroup, new: ConsumerState, *, heard: str | None = None) -> None:
        """Raises NotReady, and Refused where a record would be too large; then nothing has changed."""
        if new.is_classic and self._give_back(shard, group, new, heard=heard):
            return
        old = group.state if group.id in shard.consumers else None
        classic = shard.groups.get(group.id)
        rows: list[Row] = [] if new is old else list(difference(group.id, old, new))
        self._write(shard, [(encode_group_key(group.id), None), *rows] if classic is not None else rows)
        if classic is not None:
            self._coordinator.let_go(shard, classic, ErrorCode.REBALANCE_IN_PROGRESS)
        shard.consumers[group.id] = group
        group.become(new, self._coordinator.now_ms(), self._coordinator.wall_ms(), heard=heard)
        if new is not old:
            self._coordinator.recount(group)
        self.arm(shard, group)

    def _give_back(self, shard: Shard, group: ConsumerGroup, new: ConsumerState, *, heard: str | None) -> bool:
        """False when the one record of a classic group would be too large: then it stays as it is. Raises NotReady.

        Where a static member has changed its protocol and nobody reads anything else than before, they need not join.
        """
        settled = heard is not None and new.epoch == group.state.epoch and new.name == "Stable"
        stored = given_back(new, group.state.epoch, self._topics.name_of)
        record = encode_group_key(group.id), encode_group(stored, self._coordinator.wall_ms())
        if len(record[1]) > self._coordinator.most_record_bytes:
            return False
        self._write(shard, [*difference(group.id, group.state, None), record])
        self._coordinator.let_go(shard, group)
        self._coordinator.take_over(shard, group.id, stored, settled=settled)
        log.info("group is a classic one again", extra={"group": group.id, "members": len(stored.members)})
        return True

    def _write(self, shard: Shard, rows: list[Row]) -> None:
        if not rows:
            return
        largest, most = max(len(value or b"") for _, value in rows), self._coordinator.most_record_bytes
        if largest > most:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"a record of {largest} bytes, at most {most} are written")
        self._coordinator.write(shard, rows)

    # time

    def run_due(self) -> None:
        """Send members away that are overdue."""
        now_ms = self._coordinator.now_ms()
        for _, (shard, group) in self._alarms.due(now_ms):
            group.armed_ms = None
            if shard.consumers.get(group.id) is group:
                self._look_after(shard, group, now_ms)

    def _look_after(self, shard: Shard, group: ConsumerGroup, now_ms: int) -> None:
        gone = group.overdue(now_ms)
        if not gone:
            self.arm(shard, group)
            return
        try:
            self._become(shard, group, group.without(gone), heard=None)
        except (NotReady, Refused) as error:
            log.warning("members not sent away", extra={"group": group.id, "why": str(error)})
            self.arm(shard, group, now_ms + _AGAIN_MS)
            return
        log.info("members are gone", extra={"group": group.id, "members": len(gone)})

    def close(self) -> None:
        """Nobody is sent away any more."""
        self._alarms.close()

    def arm(self, shard: Shard, group: ConsumerGroup, least_ms: int = 0) -> None:
        """A deadline moves with every heartbeat: only when its old time has come is it looked at again."""
        wake_ms = group.wake_ms
        if wake_ms is None or (group.armed_ms is not None and group.armed_ms <= wake_ms):
            return
        group.armed_ms = max(wake_ms, least_ms)
        self._alarms.set(group.armed_ms, (shard, group))
