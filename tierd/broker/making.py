"""Partitions are made, and their directories leave: what the disk has to do with it, for threads.

The loop plans (`Partitions.making`, `Partitions.withdraw`) and takes what has become of it; meanwhile it serves others.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tierd.base.errors import DiskFull
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker.homes import Home
from tierd.broker.partition import Partition
from tierd.config.topic import TopicSettings
from tierd.storage.directory import LogDirectory
from tierd.storage.doomed import Leaving
from tierd.storage.log import Log

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Making:
    """One partition that is to be made, begun at 0 in *epoch*."""

    name: TopicPartition
    topic_id: Uuid
    settings: TopicSettings
    epoch: int | None
    """None: it is not begun."""
    homes: Sequence[Home]
    """Where, in order of preference."""

    def run(self) -> Log:
        """Any thread. Raises DiskFull, OSError."""
        _, made = make_log(self.homes, self.name, self.topic_id, self.settings, self.epoch)
        return made


def make_log(
    homes: Iterable[Home], name: TopicPartition, topic_id: Uuid, settings: TopicSettings, epoch: int | None = None
) -> tuple[LogDirectory, Log]:
    """In the first of *homes*, in the next one when that one fails or is full; begun at 0 when there is an *epoch*.

    Any thread: it is for the loop to have the directory adopt it. Raises DiskFull, OSError.
    """
    last: DiskFull | OSError | None = None
    for home in homes:
        directory = home.directory
        if directory is None or not home.online:
            continue
        try:
            made = directory.make(name, topic_id, settings)
            if epoch is not None:
                made.begin(epoch, 0)
        except (DiskFull, OSError) as error:
            log.error("partition not made", extra={"directory": str(home.path), "why": str(error)})
            last = error
        else:
            return directory, made
    raise last or DiskFull("no data directory is left to make a partition in")


@dataclass(slots=True)
class Removal:
    """The directories of partitions that nobody gets at any more, by data directory."""

    parts: dict[LogDirectory, list[tuple[Partition, Leaving]]]
    checkpoints: Sequence[Callable[[], None]]
    """What writes the directories' checkpoints without them."""

    def run(self) -> list[PartitionId]:
        """Rename all of them, durable when this returns; those that are gone. Any thread."""
        for write in self.checkpoints:
            try:
                write()
            except (DiskFull, OSError) as full:
                # A new partition of one of these names strikes the old one out first.
                log.error("checkpoint not written", extra={"why": str(full)})
        gone = []
        for directory, rows in self.parts.items():
            failed = directory.doomed.doom_all([leaving for _, leaving in rows])
            for partition, leaving in rows:
                if (error := failed.get(leaving.partition)) is None:
                    gone.append(partition.id)
                else:
                    # The registry has the deletion: the next start that can, goes on with it.
                    log.error("deletion waits", extra={"partition": str(partition), "why": str(error)})
        return gone


def removal(rows: Iterable[tuple[LogDirectory, Partition]]) -> Removal:
    """Take the partitions' logs out of their directories. Loop thread only."""
    parts: dict[LogDirectory, list[tuple[Partition, Leaving]]] = defaultdict(list)
    for directory, partition in rows:
        parts[directory].append((partition, directory.withdraw(partition.name)))
    return Removal(parts, [directory.checkpoint_job() for directory in parts])
