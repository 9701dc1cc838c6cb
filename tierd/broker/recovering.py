"""Topics that only the bucket still has are made here again, empty: `Partitions.begin` then takes them to where the
bucket ends. Every step may be repeated: what a killed start has made, the next one finds. Loop thread only.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

from tierd.base.ids import PartitionId, Uuid
from tierd.broker.groups.coordinator import Coordinator
from tierd.broker.groups.export import Restored, restore
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.making import Making
from tierd.broker.outages import NOWHERE
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions, Topic
from tierd.broker.ports import RemoteTier
from tierd.broker.registry import TopicRow
from tierd.config.topic_rules import TopicConfigError
from tierd.remote.groups import GroupFile, GroupOffset
from tierd.storage.log import Log

log = logging.getLogger(__name__)

_A_TURN = 64
"""Partitions made side by side."""


async def take_topics(partitions: Partitions, rows: Iterable[TopicRow]) -> None:
    """Make those of *rows* that are not here yet. Of several with one name the newest is taken: the others stay in the
    bucket as they are. Raises DiskFull, OSError."""
    for row in sorted(rows, key=lambda row: (row.name, -row.created_ms, row.id)):
        there = partitions.topic(row.name)
        if there is None:
            there = await _take(partitions, _checked(partitions, row))
        if there.id == row.id:
            _note_taken(there)
        else:
            facts = {"topic": row.name, "topic_id": str(row.id), "taken": str(there.id)}
            log.warning(
                "another topic of that name is newer: this one stays in the bucket, and is not served", extra=facts
            )


def _note_taken(topic: Topic) -> None:
    """Also of what a start has made that was killed before it took it to where the bucket ends."""
    for partition in topic.partitions.values():
        partition.taken = not partition.log.log_end


async def made_here(partitions: Partitions, topic_ids: Iterable[Uuid], tier: RemoteTier) -> None:
    """Those of the topics that were adopted since their registry is lost, but made here once, as the bucket says: what
    is not set for them is the default again."""
    for topic in filter(None, map(partitions.topic_by_id, topic_ids)):
        if topic.row.adopted and not topic.read_only:
            await asyncio.to_thread(partitions.registry.made_here, topic.id)
            topic.row = replace(topic.row, adopted=False)
            partitions.configure(topic, topic.row.config, tier)
            log.info("the bucket knows the topic, whose registry is lost", extra={"topic": topic.name})


def _checked(partitions: Partitions, row: TopicRow) -> TopicRow:
    """With settings that are not right none counts, and nothing of the topic goes."""
    try:
        return replace(row, config=partitions.defaults.check(row.name, row.config, adopted=row.adopted))
    except TopicConfigError as error:
        log.error("a topic's settings are not right, none counts", extra={"topic": row.name, "why": str(error)})
        return replace(row, config={}, adopted=True)


async def _take(partitions: Partitions, row: TopicRow) -> Topic:
    registry, numbers = partitions.registry, range(row.partitions)
    # Their places first: a start that finds the topic makes all of them, also those of an adopted one.
    await asyncio.to_thread(registry.place, {PartitionId(row.id, number): NOWHERE for number in numbers})
    await asyncio.to_thread(registry.add, row)
    topic = partitions.add(row)
    for at in range(0, len(numbers), _A_TURN):
        jobs = partitions.making(topic, numbers[at : at + _A_TURN])
        logs = await asyncio.gather(*(asyncio.to_thread(_made, job) for job in jobs))
        places = {PartitionId(row.id, one.name.partition): partitions.homes.of(one).id or "" for one in logs}
        await asyncio.to_thread(registry.place, places)
        partitions.made(topic, logs, None)
    facts = {"topic": row.name, "topic_id": str(row.id), "partitions": row.partitions}
    log.info("topic taken from the bucket", extra=facts)
    return topic


def _made(job: Making) -> Log:
    return replace(job, epoch=None).run()  # where it begins the bucket says


async def restore_groups(file: GroupFile, coordinator: Coordinator, partitions: Partitions) -> Restored:
    """Commit what *file* has, durable when this returns. Raises TierdError, OSError."""

    def end_of(one: GroupOffset) -> int | None:
        found = partitions.get(one.topic, one.partition)
        return None if found is None or one.topic_id not in (None, found.id.topic_id) else _end(found)

    restored = await restore(file, coordinator, end_of)
    topic = partitions.topic(OFFSETS_TOPIC)
    for partition in topic.partitions.values() if topic is not None else ():
        if (job := partition.log.unflushed(active=True)) is not None:
            await asyncio.to_thread(job.run)
            partition.log.flushed(job)
    return restored


def _end(partition: Partition) -> int:
    """Also of one that waits for the bucket: there it will begin."""
    return max(partition.log.log_end, partition.copied_to or 0)
