"""Topics of a bucket that is only read, served as its other side shows them. Loop thread only.

Nothing of them is in registry or data directories: each partition is a log without files (`storage/remote_only.py`),
which is replaced when the bucket has more of it.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tierd.base.ids import TopicPartition, Uuid
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions, Topic
from tierd.broker.registry import TopicRow
from tierd.config.topic import TopicSettings
from tierd.config.topic_rules import TopicConfigError
from tierd.remote.view import ArchivedPartition, ArchivedTopic
from tierd.storage.directory import LogDirectory
from tierd.storage.epochs import EpochEntry
from tierd.storage.log import Log
from tierd.storage.remote_only import remote_only

log = logging.getLogger(__name__)


class Archived:
    """See the module."""

    def __init__(self, partitions: Partitions, home: LogDirectory) -> None:
        """*home* is the data directory of the broker's own topics."""
        self._partitions = partitions
        self._home = home
        self._shown: dict[Uuid, ArchivedTopic] = {}

    def show(self, topics: Iterable[ArchivedTopic], gone: Iterable[Uuid]) -> None:
        """*topics* are new or others than before; those with the ids *gone* are no more."""
        topics = tuple(topics)
        for topic_id in gone:
            self._hide(topic_id)
        for topic in topics:  # before others take their names
            known = self._shown.get(topic.topic_id)
            if known is not None and _must_open_anew(known, topic):
                self._hide(topic.topic_id)
        for topic in topics:
            served = self._partitions.topic_by_id(topic.topic_id)
            if served is None:
                self._open(topic)
            else:
                self._renew(served, topic)
            self._shown[topic.topic_id] = topic

    def _hide(self, topic_id: Uuid) -> None:
        self._shown.pop(topic_id, None)
        served = self._partitions.topic_by_id(topic_id)
        if served is not None:
            log.info("topic is not served any more", extra={"topic": served.name, "topic_id": str(topic_id)})
            self._partitions.withdraw(served)  # no directory is to be renamed

    def _open(self, topic: ArchivedTopic) -> None:
        row = TopicRow(
            id=topic.topic_id,
            name=topic.name,
            partitions=len(topic.partitions),
            created_ms=topic.created_ms,
            config=self._checked(topic),
            adopted=True,
        )
        settings = self._partitions.defaults.resolve(row.name, row.config, adopted=True)
        logs = {number: self._log(topic, number, one, settings) for number, one in enumerate(topic.partitions)}
        served = self._partitions.open_topic(row, logs, read_only=True)
        for number, partition in served.partitions.items():
            _set(partition, topic.partitions[number])
        facts = {"topic": topic.name, "topic_id": str(topic.topic_id), "partitions": len(topic.partitions)}
        log.info("topic is served from the bucket", extra=facts)

    def _checked(self, topic: ArchivedTopic) -> Mapping[str, str]:
        try:
            return self._partitions.defaults.check(topic.name, topic.config, adopted=True)
        except TopicConfigError as error:
            log.error("a topic's settings are not right, none counts", extra={"topic": topic.name, "why": str(error)})
            return {}

    def _renew(self, served: Topic, topic: ArchivedTopic) -> None:
        before = self._shown[topic.topic_id].partitions
        for number, one in enumerate(topic.partitions):
            if number < len(before) and before[number] == one:
                continue
            logged = self._log(topic, number, one, served.settings)
            partition = served.partitions.get(number)
            if partition is None:
                partition = self._partitions.take(served, number, logged)
            partition.log = logged
            _set(partition, one)
            partition.wake()
        if len(topic.partitions) > served.row.partitions:
            served.row = replace(served.row, partitions=len(topic.partitions))
        self._partitions.generation += 1

    def _log(self, topic: ArchivedTopic, number: int, one: ArchivedPartition, settings: TopicSettings) -> Log:
        return remote_only(
            self._home.context,
            self._home.path,
            TopicPartition(topic.name, number),
            topic.topic_id,
            settings,
            log_start=one.log_start,
            local_start=one.readable_to,
            log_end=one.log_end,
            epochs=[EpochEntry(entry.epoch, entry.start) for entry in one.epochs],
        )


def _must_open_anew(known: ArchivedTopic, now: ArchivedTopic) -> bool:
    """Its name and settings stay as they are while it is open, and no partition goes alone."""
    return (known.name, known.config) != (now.name, now.config) or len(known.partitions) > len(now.partitions)


def _set(partition: Partition, shown: ArchivedPartition) -> None:
    partition.archived, partition.remote = True, shown.remote
