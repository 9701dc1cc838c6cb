"""Topics come and go: registry first (durable), then directories, then the bucket is told. Threads do what may wait."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tierd.base.clock import Clock
from tierd.base.errors import DiskFull, TierdError
from tierd.base.ids import ID_BYTES, PartitionId, Uuid
from tierd.broker.partitions import Partitions, Topic
from tierd.broker.ports import RemoteTier
from tierd.broker.registry import TopicRow
from tierd.config.resolve import is_internal
from tierd.config.topic import MAX_PARTITIONS
from tierd.config.topic_names import collision_key, problem
from tierd.config.topic_rules import TopicConfigError
from tierd.storage.log import Log
from tierd.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_A_TURN = 64
"""Partitions made side by side, and then served."""


class TopicRefused(TierdError):
    """A topic cannot be made or deleted; *code* is what the client hears."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Topics:
    """Makes and deletes topics. Loop thread only."""

    def __init__(self, partitions: Partitions, tier: RemoteTier | None, clock: Clock) -> None:
        self._partitions = partitions
        self._tier = tier
        self._clock = clock
        self._changes = partitions.changes

    async def resume(self) -> None:
        """Tell the bucket's side of every topic and of deletions that it has not yet confirmed."""
        registry = self._partitions.registry
        for topic in self._partitions.topics():
            self._tell(topic)
        for row in await self._changes.in_thread(registry.deleted):
            await self._tell_deleted(row)

    def check(self, name: str, partitions: int, config: Mapping[str, str]) -> dict[str, str]:
        """Whether the topic may be made; give its settings in Kafka's form. Raises TopicRefused."""
        if (why := problem(name)) is not None:
            raise TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        if self._partitions.topic(name) is not None:
            raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        key = collision_key(name)
        for topic in self._partitions.topics():
            if collision_key(topic.name) == key:
                raise TopicRefused(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {topic.name}"
                )
        if not 0 < partitions <= MAX_PARTITIONS:
            raise TopicRefused(
                ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be 1 to {MAX_PARTITIONS}, got {partitions}."
            )
        try:
            return self._partitions.defaults.check(name, config)
        except TopicConfigError as error:
            raise TopicRefused(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def create(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        """Make the topic. Raises TopicRefused, DiskFull or OSError; then nothing of it stays."""
        return await self._changes.whole(self._create(name, partitions, config))

    async def _create(self, name: str, partitions: int, config: Mapping[str, str]) -> Topic:
        registry = self._partitions.registry
        async with self._changes.turn:
            checked = self.check(name, partitions, config)
            row = TopicRow(
                id=_new_id(),
                name=name,
                partitions=partitions,
                created_ms=self._clock.now_ms(),
                config=checked,
            )
            await self._changes.in_thread(registry.add, row)
            topic = self._partitions.add(row)
            try:
                await self._make(topic, range(partitions))
            except (DiskFull, OSError):
                await self._remove(topic)
                await self._changes.in_thread(registry.mark_deleted, row.id, self._clock.now_ms())
                await self._changes.in_thread(registry.forget, row.id)
                raise
            self._tell(topic)
            log.info("topic created", extra={"topic": name, "topic_id": str(row.id), "partitions": partitions})
            return topic

    async def _make(self, topic: Topic, numbers: Sequence[int]) -> None:
        """Raises DiskFull or OSError; those that could be made stay."""
        registry, homes = self._partitions.registry, self._partitions.homes
        for at in range(0, len(numbers), _A_TURN):
            jobs = self._partitions.making(topic, numbers[at : at + _A_TURN])
            done = await asyncio.gather(*(self._changes.in_thread(job.run) for job in jobs), return_exceptions=True)
            made = [one for one in done if isinstance(one, Log)]
            failed = [one for one in done if isinstance(one, BaseException)]
            places = {PartitionId(topic.id, one.name.partition): homes.of(one).id or "" for one in made}
            try:
                await self._changes.in_thread(registry.place, places)
            finally:
                self._partitions.made(topic, made, self._tier)
            if self._partitions.topic(topic.name) is not topic:
                await self._remove(topic)
                raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' was deleted meanwhile.")
            if failed:
                raise failed[0]

    async def _remove(self, topic: Topic) -> None:
        gone = await self._changes.in_thread(self._partitions.withdraw(topic).run)
        await self._changes.in_thread(self._partitions.registry.unplace, gone)

    async def close(self) -> None:
        """Finish what is under way."""
        await self._changes.close()

    async def ensure(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> Topic:
        """The topic, made when it is not there. Raises as `create`."""
        known = self._partitions.topic(name)
        if known is not None and known.whole:
            return known
        try:
            return await self.create(name, partitions, config or {})
        except TopicRefused as error:
            known = self._partitions.topic(name)
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and known is not None:
                return known
            raise

    async def delete(self, topic: Topic) -> None:
        """Delete it; a topic that is deleted already stays so. Raises TopicRefused for Kafka's own topics."""
        if is_internal(topic.name):
            raise TopicRefused(ErrorCode.INVALID_REQUEST, f"{topic.name} is the broker's own and cannot be deleted")
        _refuse_read_only(topic)
        await self._changes.whole(self._delete(topic))

    async def _delete(self, topic: Topic) -> None:
        registry = self._partitions.registry
        async with self._changes.turn:
            if self._partitions.topic(topic.name) is not topic:
                raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' is deleted already.")
            now_ms = self._clock.now_ms()
            await self._changes.in_thread(registry.mark_deleted, topic.id, now_ms)
            await self._remove(topic)
            for row in await self._changes.in_thread(registry.deleted):
                if row.id == topic.id:
                    await self._tell_deleted(row)
            log.info("topic deleted", extra={"topic": topic.name, "topic_id": str(topic.id)})

    async def grow(self, name: str, partitions: int, *, check_only: bool = False) -> None:
        """Give the topic more partitions. Raises TopicRefused, DiskFull or OSError; made ones stay then."""
        await self._changes.whole(self._grow(name, partitions, check_only))

    async def _grow(self, name: str, partitions: int, check_only: bool) -> None:
        async with self._changes.turn:
            topic = self._partitions.topic(name)
            if topic is None:
                raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            _refuse_read_only(topic)
            have, numbers = topic.row.partitions, [*_not_made(topic), *range(topic.row.partitions, partitions)]
            if (why := _growth_problem(topic, partitions)) is not None:
                raise TopicRefused(ErrorCode.INVALID_PARTITIONS, why)
            if check_only:
                return
            # The registry first: a start after a crash makes the partitions that are missing.
            await self._changes.in_thread(self._partitions.registry.set_partitions, topic.id, partitions)
            topic.row = replace(topic.row, partitions=partitions)
            await self._make(topic, numbers)
            self._tell(topic)
            log.info("partitions added", extra={"topic": name, "partitions": partitions, "before": have})

    async def reconfigure(self, topic: Topic, config: Mapping[str, str], *, check_only: bool = False) -> None:
        """Make *config* all that a client has set for the topic. Raises TopicRefused, DiskFull, OSError."""
        await self._changes.whole(self._reconfigure(topic, config, check_only))

    async def _reconfigure(self, topic: Topic, config: Mapping[str, str], check_only: bool) -> None:
        async with self._changes.turn:
            if self._partitions.topic(topic.name) is not topic:
                raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{topic.name}' was deleted.")
            _refuse_read_only(topic)
            defaults = self._partitions.defaults
            try:
                checked = defaults.check(topic.name, config, adopted=topic.row.adopted)
            except TopicConfigError as error:
                raise TopicRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
            self._refuse_untiering(topic, checked)
            if check_only:
                return
            await self._changes.in_thread(self._partitions.registry.set_config, topic.id, checked)
            self._partitions.configure(topic, checked, self._tier)
            self._tell(topic)
            log.info("settings changed", extra={"topic": topic.name, "config": checked})

    def _refuse_untiering(self, topic: Topic, config: Mapping[str, str]) -> None:
        """Switching tiering off would leave what is only in the bucket unreadable; Kafka refuses likewise."""
        now = self._partitions.defaults.resolve(topic.name, config, adopted=topic.row.adopted)
        if topic.settings.remote_storage_enable and not now.remote_storage_enable:
            raise TopicRefused(
                ErrorCode.INVALID_CONFIG,
                "Invalid value false for configuration remote.storage.enable: the topic is tiered, and what lies only "
                "in the bucket would be lost. Set remote.log.copy.disable=true to copy no more, or delete the topic.",
            )

    def _tell(self, topic: Topic) -> None:
        if self._tier is not None and not topic.internal and not topic.read_only:
            row = topic.row
            self._tier.topic_changed(row.name, row.id, row.partitions, dict(row.config), row.created_ms)

    async def _tell_deleted(self, row: TopicRow) -> None:
        """With a bucket the id stays until the tombstone is there (`LocalTier.tombstone_written`)."""
        if self._tier is None:
            await self._changes.in_thread(self._partitions.registry.forget, row.id)
        else:
            assert row.deleted_ms is not None
            self._tier.topic_deleted(row.name, row.id, row.partitions, row.deleted_ms)


def _refuse_read_only(topic: Topic) -> None:
    if topic.read_only:
        raise TopicRefused(ErrorCode.POLICY_VIOLATION, f"topic {topic.name} is read-only: nobody knows its id")


def _not_made(topic: Topic) -> list[int]:
    """Numbers of partitions that a disk had no room for when the topic grew: asked again they are made, and at the next
    start. What an adopted topic lacks may lie elsewhere."""
    there = () if topic.row.adopted else range(topic.row.partitions)
    return [number for number in there if number not in topic.partitions and number not in topic.offline]


def _growth_problem(topic: Topic, partitions: int) -> str | None:
    if topic.internal:
        return f"{topic.name} is the broker's own: its partitions are counted once and for all."
    if partitions < topic.row.partitions or (partitions == topic.row.partitions and not _not_made(topic)):
        verb = "already has" if partitions == topic.row.partitions else "currently has"
        return f"The topic {topic.name} {verb} {topic.row.partitions} partition(s); it can only get more."
    if partitions > MAX_PARTITIONS:
        return f"Number of partitions must be 1 to {MAX_PARTITIONS}, got {partitions}."
    return None


def _new_id() -> Uuid:
    """Random; none that begins with '-' in its text form (it would look like an option to tools), as Kafka does."""
    while True:
        made = Uuid(os.urandom(ID_BYTES))
        if not str(made).startswith("-"):
            return made


def replicas_problem(factor: int, assignments: Sequence[Sequence[int]], node_id: int) -> str | None:
    """Why a single node cannot place the replicas as asked, or None. A factor of -1 leaves it to us."""
    if not assignments and factor not in (-1, 1):
        return f"Replication factor: {factor} larger than available brokers: 1."
    if any(list(replicas) != [node_id] for replicas in assignments):
        return f"Replicas can only be assigned to node {node_id}."
    return None
