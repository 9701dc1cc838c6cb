"""Groups and their offsets, kept in memory and in `__consumer_offsets`: state machine, log and timers joined.

A partition of the topic is read on first use; until then and when it cannot be read its groups do not exist here.
Everything is written before it is answered.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tierd.base.clock import Clock
from tierd.base.errors import TierdError
from tierd.base.ids import Uuid
from tierd.broker.groups import weight
from tierd.broker.groups.alarms import Alarms
from tierd.broker.groups.codec import (
    Commit,
    CommitKey,
    encode_commit,
    encode_commit_key,
    encode_group,
    encode_group_key,
)
from tierd.broker.groups.consumer.group import ConsumerGroup
from tierd.broker.groups.consumer.model import ConsumerState
from tierd.broker.groups.consumer.records import difference
from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import Action, GroupLimits, Join, JoinAnswer, Persist, StoredGroup, SyncAnswer
from tierd.broker.groups.ports import OFFSETS_TOPIC, OffsetsLog
from tierd.broker.groups.replay import GroupReplay
from tierd.broker.groups.shard import Shard
from tierd.broker.key_hash import partition_of
from tierd.broker.loading import Loading, read_all
from tierd.storage.batch import encode_batch
from tierd.storage.errors import ProducerFenced
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.records import Record
from tierd.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_FORGET_EVERY_MS = 1_000
_FORGET_AT_A_TIME = 500
"""Of one shard."""

Answer = JoinAnswer | SyncAnswer
Commits = Mapping[tuple[str, int], Commit]
"""By topic and partition."""
Row = tuple[bytes, bytes | None]
"""Key and value; None deletes."""


class NotReady(TierdError):
    """The group's partition is not there or cannot be read or written now; the client looks again later."""


class GroupTooLarge(TierdError):
    """What is written at once would be larger than the offsets topic takes; asking again changes nothing."""


class NoRoom(TierdError):
    """All groups together take the memory that is theirs; there is room again when some have ended."""


class Coordinator:
    """Loop thread only."""

    def __init__(self, offsets: OffsetsLog, clock: Clock, *, limits: GroupLimits | None = None) -> None:
        self.limits = limits or GroupLimits()
        self._forget_again_ms = 0
        self.held_bytes = 0
        """What all groups take, as `weight` counts it."""
        self.on_read: Callable[[Shard], None] = lambda shard: None
        """Called when a partition of the topic was read."""
        self._log = offsets
        self._clock = clock
        self._shards = Loading(self._load, clock)
        self._alarms: Alarms[tuple[Shard, Group]] = Alarms(self.now_ms, self.run_due)

    @property
    def most_record_bytes(self) -> int:
        """Largest batch that one group may fill."""
        return self._log.max_batch_bytes

    def now_ms(self) -> int:
        """The clock of the state machines."""
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        """The clock of what is stored."""
        return self._clock.now_ms()

    async def shard(self, group_id: str) -> Shard:
        """The shard that holds *group_id*, read from the log when it has not been yet. Raises NotReady."""
        try:
            partitions = await self._log.ensure()
        except (TierdError, OSError) as error:
            raise NotReady(f"{OFFSETS_TOPIC}: {error}") from error
        shard = await self._shards.get(partition_of(group_id, partitions))
        if (why := shard.damaged.get(group_id)) is not None:
            raise NotReady(f"{OFFSETS_TOPIC}-{shard.index}: {why}")
        return shard

    async def load(self, index: int) -> Shard:
        """The shard of that partition of the topic. Raises NotReady."""
        return await self._shards.get(index)

    def loaded(self, index: int) -> Shard | None:
        """The same, if it has been read."""
        return self._shards.ready.get(index)

    async def load_all(self) -> list[Shard]:
        """Every shard; none while the topic does not exist."""
        return [await self._shards.get(index) for index in range(self._log.count() or 0)]

    async def _load(self, index: int) -> Shard:
        replay = GroupReplay(f"{OFFSETS_TOPIC}-{index}")
        try:
            await read_all(self._log, index, replay, "groups")
        except (TierdError, OSError) as error:
            log.error("groups not readable", extra={"partition": replay.where, "error": str(error)})
            raise NotReady(f"{replay.where}: {error}") from error
        for why in replay.wrong:
            log.error("group not readable", extra={"partition": replay.where, "error": why})
        shard = Shard(index, pending=replay.pending, damaged=replay.without_damaged())
        self.held_bytes += sum(weight.commit_bytes(key.topic, commit) for key, commit in replay.pending.commits())
        for key, commit in replay.commits.items():
            shard.commits.setdefault(key.group, {})[key.topic, key.partition] = commit
        for group_id, commits in shard.commits.items():
            self.held_bytes += weight.offsets_bytes(group_id) + weight.commits_bytes(commits, commits)
        for group_id, stored in replay.groups.items():
            self.arm(shard, self._stored(shard, group_id, stored))
        for group_id, state in replay.consumers.groups.items():
            consumers = shard.consumers[group_id] = self.consumer_group(group_id, state)
            self.recount(consumers)
        self.on_read(shard)
        if replay.groups or replay.commits:
            facts = {"partition": replay.where, "groups": len(replay.groups), "offsets": len(replay.commits)}
            log.info("groups read", extra=facts)
        return shard

    def _stored(self, shard: Shard, group_id: str, stored: StoredGroup) -> Group:
        group = shard.groups[group_id] = Group(group_id, self.limits)
        group.load(stored, self.now_ms())
        self.recount(group)
        return group

    # groups

    def take_over(self, shard: Shard, group_id: str, stored: StoredGroup, *, settled: bool) -> None:
        """A group of another protocol goes on as this one, which is written. Unless *settled* members join again."""
        group = self._stored(shard, group_id, stored)
        self.act(shard, group, [] if settled else group.start_over(self.now_ms()))

    def admit(self, shard: Shard, group_id: str, ask: Join) -> Group:
        """The group that *ask* is for, made and written when it is a new one.

        Raises GroupTooLarge and NoRoom when the group, or all groups, would become too large with the member, NotReady.
        """
        group = shard.groups.get(group_id)
        made = group is None
        if group is None:
            group = Group(group_id, self.limits)
            self.recount(group)
        try:
            self._check_room(group, ask)
            if made:
                self._write_group(shard, group, group.stored())
        except TierdError:
            if made:
                self.held_bytes -= group.counted_bytes
            raise
        shard.groups[group_id] = group
        return group

    def _check_room(self, group: Group, ask: Join) -> None:
        most_bytes = self._log.max_batch_bytes
        growth_bytes = group.growth_bytes(ask)
        # The count is above the record's size: only where it is not below the limit a closer look is needed.
        if group.counted_bytes + growth_bytes > most_bytes and (size := group.stored_bytes(ask)) > most_bytes:
            raise GroupTooLarge(f"a record of {size} bytes, {OFFSETS_TOPIC} takes {most_bytes}")
        self.take(growth_bytes, group.id)
        group.counted_bytes += growth_bytes

    def take(self, growth_bytes: int, group_id: str) -> None:
        """Count *growth_bytes* more, for *group_id*. Raises NoRoom; then nothing is counted."""
        most_bytes = self.limits.memory_bytes
        if growth_bytes > 0 and self.held_bytes + growth_bytes > most_bytes:
            self._forget_idle(group_id)
            if self.held_bytes + growth_bytes > most_bytes:
                raise NoRoom(f"groups take {self.held_bytes} bytes, tierd.groups.memory.bytes is {most_bytes}")
        self.held_bytes += growth_bytes

    def _forget_idle(self, but: str) -> None:
        """Delete groups that have neither members nor offsets, as Kafka does after a while; not too often, a few."""
        now_ms = self.now_ms()
        if now_ms < self._forget_again_ms:
            return
        self._forget_again_ms = now_ms + _FORGET_EVERY_MS
        for shard in self._shards.ready.values():
            idle = (group for group in shard.groups.values() if group.idle and not shard.keeps_offsets(group.id))
            gone = list(itertools.islice((group for group in idle if group.id != but), _FORGET_AT_A_TIME))
            self.forget(shard, (), [group.id for group in gone])

    def check_room(self, more_bytes: int, group_id: str) -> None:
        """Raises NoRoom when the group must not take so much more."""
        self.take(more_bytes, group_id)
        self.held_bytes -= more_bytes

    def consumer_group(self, group_id: str, state: ConsumerState) -> ConsumerGroup:
        """A group of the consumer protocol, in memory only."""
        session_ms = self.limits.consumer_session_ms
        return ConsumerGroup(group_id, state, session_ms=session_ms, now_ms=self.now_ms(), wall_ms=self.wall_ms())

    def recount(self, group: Group | ConsumerGroup) -> None:
        """Call when members have gone: what was put down to them is free again."""
        now_bytes = group.held_bytes()
        self.held_bytes += now_bytes - group.counted_bytes
        group.counted_bytes = now_bytes

    def act(self, shard: Shard, group: Group, actions: Sequence[Action]) -> None:
        """Do what the machine says: persist first, then answer. When persisting fails the answers become errors."""
        failed: ErrorCode | None = None
        for action in actions:
            if isinstance(action, Persist):
                failed = self._persist(shard, group, action) or failed
            else:
                _answer(action.ticket, action.answer if failed is None else _refused(action.answer, failed))
        if failed is not None:
            self.act(shard, group, group.start_over(self.now_ms()))  # what was to be written is not
        self.arm(shard, group)

    def _persist(self, shard: Shard, group: Group, action: Persist) -> ErrorCode | None:
        """What to answer, as Kafka does, when the group cannot be written."""
        try:
            self._write_group(shard, group, action.group, self._log.max_batch_bytes)
        except (NotReady, GroupTooLarge) as error:
            log.warning("group not written", extra={"group": group.id, "error": str(error)})
            too_large = isinstance(error, GroupTooLarge)
            return ErrorCode.UNKNOWN_SERVER_ERROR if too_large else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.recount(group)
        return None

    def commit(self, shard: Shard, group_id: str, commits: Commits) -> None:
        """Write offsets, then let them be seen. Raises NotReady, NoRoom, GroupTooLarge; then none of them holds."""
        self.check_number(group_id, len(commits))
        growth_bytes = self.growth_bytes(shard, group_id, commits)
        self.take(growth_bytes, group_id)
        try:
            written_at = self.write(shard, commit_rows(group_id, commits), self.most_record_bytes)
        except (NotReady, GroupTooLarge):
            self.held_bytes -= growth_bytes
            raise
        held = shard.commits.setdefault(group_id, {})
        for at, (place, commit) in enumerate(commits.items(), written_at):
            held[place] = replace(commit, written_at=at)

    def check_number(self, group_id: str, count: int) -> None:
        """Raises GroupTooLarge when so many offsets do not fit one batch, however short they are."""
        if weight.least_bytes(group_id, count) > self.most_record_bytes:
            raise GroupTooLarge(f"{count} offsets, {OFFSETS_TOPIC} takes {self.most_record_bytes} bytes at a time")

    def growth_bytes(self, shard: Shard, group_id: str, commits: Commits) -> int:
        """How much more the group's offsets take with *commits*."""
        known = shard.commits.get(group_id)
        more = weight.commits_bytes(commits, commits) - weight.commits_bytes(known or {}, commits)
        return more + (weight.offsets_bytes(group_id) if known is None else 0)

    async def forget_topic(self, topic: str, topic_id: Uuid) -> int:
        """The topic was deleted: drop every offset committed for it, give how many. Raises NotReady.

        A topic of the same name that was made since keeps its own.
        """
        dropped = 0
        for shard in await self.load_all():
            gone = shard.of_topic(topic, topic_id)
            self.forget(shard, gone)
            dropped += len(gone)
        return dropped

    def forget(self, shard: Shard, offsets: Collection[CommitKey], groups: Collection[str] = ()) -> None:
        """Delete committed offsets and groups: first in the log, then here. Raises NotReady; then all are kept."""
        known = [shard.groups[group_id] for group_id in groups if group_id in shard.groups]
        rows: list[Row] = [(encode_commit_key(key), None) for key in offsets]
        rows += [(encode_group_key(group.id), None) for group in known]
        consumers = [shard.consumers[group_id] for group_id in groups if group_id in shard.consumers]
        for ended in consumers:
            rows += difference(ended.id, ended.state, None)
        if rows:
            self.write(shard, rows)
        for key in offsets:
            self._drop(shard, key)
        for group in known:
            self.let_go(shard, group)
        for ended in consumers:
            self.let_go(shard, ended)

    def let_go(
        self, shard: Shard, group: Group | ConsumerGroup, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ) -> None:
        """Forget a group that is deleted in the log; who waits in it is told *error*."""
        if isinstance(group, Group):
            self.act(shard, group, group.die(error))
            del shard.groups[group.id]
        else:
            del shard.consumers[group.id]
        self.held_bytes -= group.counted_bytes

    def _drop(self, shard: Shard, key: CommitKey) -> None:
        """Of open transactions, too: none brings it back."""
        commits = shard.commits.get(key.group, {})
        known = commits.pop((key.topic, key.partition), None)
        if known is not None and not commits:
            del shard.commits[key.group]
            self.held_bytes -= weight.offsets_bytes(key.group)
        for commit in (known, *shard.pending.drop(key)):
            self.held_bytes -= 0 if commit is None else weight.commit_bytes(key.topic, commit)

    def _write_group(self, shard: Shard, group: Group, stored: StoredGroup, most_bytes: int | None = None) -> None:
        """Raises NotReady, GroupTooLarge."""
        group.changed_ms = now_ms = self._clock.now_ms()
        self.write(shard, [(encode_group_key(group.id), encode_group(stored, now_ms))], most_bytes)

    def write(
        self,
        shard: Shard,
        rows: Iterable[Row],
        most_bytes: int | None = None,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Write *rows*, as part of the transaction of *producer* (id, epoch) if given; the offset of the first.

        Raises NotReady; GroupTooLarge when the batch has more than *most_bytes*; ProducerFenced.
        """
        now_ms = self._clock.now_ms()
        records = [Record(offset, now_ms, key, value) for offset, (key, value) in enumerate(rows)]
        producer_id, epoch = producer or (-1, -1)
        bits = 0 if producer is None else TRANSACTIONAL
        # Base sequence 0 is what Kafka's coordinator writes.
        batch = encode_batch(records, base_sequence=0, producer_id=producer_id, producer_epoch=epoch, attributes=bits)
        if most_bytes is not None and len(batch) > most_bytes:
            raise GroupTooLarge(f"a record of {len(batch)} bytes, {OFFSETS_TOPIC} takes {most_bytes}")
        try:
            self._log.append(shard.index, batch)
            return self._log.end(shard.index) - len(records)
        except ProducerFenced:
            raise
        except (TierdError, OSError) as error:
            raise NotReady(f"{OFFSETS_TOPIC}-{shard.index}: {error}") from error

    # time

    def run_due(self) -> None:
        """Give every group whose time has come its tick."""
        now_ms = self.now_ms()
        for due_ms, (shard, group) in self._alarms.due(now_ms):
            if due_ms == group.armed_ms:
                group.armed_ms = None
            if group.wake_ms is not None and group.wake_ms <= now_ms:
                self.act(shard, group, group.tick(now_ms))
                self.recount(group)
            else:
                self.arm(shard, group)

    def close(self) -> None:
        """No more ticks. Who waits for an answer is left to the closing of the connections."""
        self._alarms.close()
        self._shards.close()

    def arm(self, shard: Shard, group: Group) -> None:
        """Call after everything that may have moved the group's deadlines."""
        wake_ms = group.wake_ms
        if wake_ms is None or (group.armed_ms is not None and group.armed_ms <= wake_ms):
            return
        group.armed_ms = wake_ms
        self._alarms.set(wake_ms, (shard, group))


def commit_rows(group_id: str, commits: Commits) -> list[Row]:
    return [
        (encode_commit_key(CommitKey(group_id, *place)), encode_commit(commit)) for place, commit in commits.items()
    ]


def _answer(ticket: object, answer: Answer) -> None:
    assert isinstance(ticket, asyncio.Future)
    if not ticket.done():
        ticket.set_result(answer)


def _refused(answer: Answer, error: ErrorCode) -> Answer:
    if isinstance(answer, JoinAnswer):
        return JoinAnswer(error=error, member_id=answer.member_id)
    return SyncAnswer(error=error)
