"""All partitions of this daemon: found by name or id, adopted from the data directories, begun with the run's epoch.

Nothing here assumes that this node leads everything: who leads a partition is looked up (`leader_of`).
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, DiskFull, RemoteUnavailable, StartRefused, TierdError
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker.adopting import listed, refuse_copies, refuse_strangers, say_what_is_missing, without_id
from tierd.broker.changes import Changes
from tierd.broker.error_map import code_of
from tierd.broker.homes import Home, Homes, Offline
from tierd.broker.making import Making, Removal, make_log, removal
from tierd.broker.mending import begin_one, is_behind, let_wait, refuse_untiered
from tierd.broker.outages import Outages
from tierd.broker.partition import Partition
from tierd.broker.ports import RemoteTier
from tierd.broker.registry import Registry, TopicRow
from tierd.broker.starts import Starts
from tierd.broker.topic_table import TopicTable
from tierd.config.resolve import TopicDefaults, is_internal
from tierd.config.topic import TopicSettings
from tierd.remote.view import ClaimState, RemotePartition
from tierd.storage.directory import LogDirectory
from tierd.storage.log import Log
from tierd.storage.names import LOG_START_CHECKPOINT
from tierd.wire.errors import ErrorCode

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Topic:
    """A live topic. `partitions` may lack numbers below `row.partitions` when only some were adopted."""

    row: TopicRow
    settings: TopicSettings
    partitions: dict[int, Partition] = field(default_factory=dict)
    offline: dict[int, Offline] = field(default_factory=dict)
    """Those in a data directory that is offline; the others lead on."""
    read_only: bool = False
    """Nobody knows its id: no registry and no bucket has it, and nothing may change."""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def id(self) -> Uuid:
        return self.row.id

    @property
    def internal(self) -> bool:
        return is_internal(self.row.name)

    @property
    def whole(self) -> bool:
        """Whether every partition is there, or in a directory that is offline; not while it is being made."""
        return len(self.partitions) + len(self.offline) >= self.row.partitions


class Partitions:
    """The one place that knows topics and partitions. Loop thread only."""

    def __init__(
        self,
        registry: Registry,
        directories: Sequence[LogDirectory],
        defaults: TopicDefaults,
        clock: Clock,
        *,
        node_id: int = 1,
        unusable: Iterable[Home] = (),
    ) -> None:
        """*directories* are open; *unusable* ones could not be opened."""
        self.registry = registry
        self.defaults = defaults
        self.homes = Homes(directories, unusable)
        self.starts = Starts(self.homes)
        self.outages = Outages(registry, self.homes)
        self.clock = clock
        self._node_id = node_id
        self._topics: TopicTable[Topic] = TopicTable()
        self.names = self._topics.names
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[PartitionId, Partition] = {}
        self._known_starts: set[TopicPartition] = set()
        self.waiting: set[PartitionId] = set()
        """Those that take no appends yet: only the bucket, which has not answered, knows where they go on."""
        self.changes = Changes()
        self._beginning = asyncio.Lock()
        """No partition begins twice: `begin` still runs when the claim comes that ends a wait."""
        self.generation = 0
        """Changes with every topic that comes, goes or changes."""
        self.epoch = 0
        """Leader epoch of this run, once `begin` was called."""

    # Looking up.

    def get(self, topic: str, partition: int) -> Partition | None:
        return self._by_name.get((topic, partition))

    def by_id(self, part: PartitionId) -> Partition | None:
        return self._by_id.get(part)

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        return self._topics.get(self.names.get(topic_id.raw, ""))

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    def __iter__(self) -> Iterator[Partition]:
        """Those that are written to and looked after; `get` finds the others, too."""
        return iter(list(self._by_id.values()))

    @property
    def read_only(self) -> list[Partition]:
        """Those of topics whose id nobody knows."""
        return [one for topic in self._topics.values() if topic.read_only for one in topic.partitions.values()]

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def directories(self) -> tuple[LogDirectory, ...]:
        """Those that are in use; `homes` has the others, too."""
        return self.homes.online

    def leader_of(self, topic: Topic, partition: int) -> int | None:
        """Node id of the leader; None when nobody has the partition, or nobody gets at it."""
        return self._node_id if partition in topic.partitions else None

    def missing(self, topic: str, partition: int) -> ErrorCode:
        """What to answer where `get` finds nothing."""
        known = self._topics.get(topic)
        if known is not None and partition in known.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # Opening, in this order: load, begin.

    def load(self) -> None:
        """Join registry and data directories: adopt what only the disk knows, finish deletions, make what is missing.

        What a directory that is offline may have is not made anew. Raises StartRefused when one name has two topic ids,
        or one partition two directories; OSError.
        """
        self._resume_deletions()
        self.outages.settle()
        self._known_starts = {name for one in self.directories for name in listed(one, LOG_START_CHECKPOINT)}
        rows = {row.name: row for row in self.registry.topics()}
        found: dict[str, dict[int, Log]] = {}
        for directory in self.directories:
            for name, logged in list(directory.logs.items()):
                if self.outages.counts(PartitionId(logged.topic_id, name.partition)):
                    found.setdefault(name.topic, {})[name.partition] = logged
        refuse_copies(rows, found)
        refuse_strangers(self.registry, self.homes, found)
        for topic, logs in found.items():
            rows[topic] = self._row_for(topic, logs, rows.get(topic))
        for row in rows.values():
            self.open_topic(row, found.get(row.name, {}))
        self.outages.note_places((partition.id, partition.log) for partition in self)
        for row, logs in without_id(self.directories, self._topics, self.clock.now_ms()):
            self.open_topic(row, logs, read_only=True)

    def _resume_deletions(self) -> None:
        deleted = {row.id for row in self.registry.deleted()}
        for directory in self.directories:
            for name, logged in list(directory.logs.items()):
                if logged.topic_id in deleted:
                    log.info("deletion resumed", extra={"partition": str(name)})
                    directory.remove(name)

    def _row_for(self, name: str, logs: Mapping[int, Log], row: TopicRow | None) -> TopicRow:
        ids = {logged.topic_id for logged in logs.values()} | ({row.id} if row is not None else set())
        if len(ids) > 1:
            raise StartRefused(
                f"topic {name} has several ids: {', '.join(sorted(map(str, ids)))}; one of its directories, or the "
                "state directory, belongs to another history: move it away, or give the --state that belongs here"
            )
        if row is None:
            row = TopicRow(
                id=ids.pop(), name=name, partitions=max(logs) + 1, created_ms=self.clock.now_ms(), adopted=True
            )
            self.registry.add(row)
            log.info("topic adopted", extra={"topic": name, "topic_id": str(row.id), "partitions": sorted(logs)})
            if not self.defaults.tiering:
                say_what_is_missing(name, logs)
        elif max(logs, default=-1) >= row.partitions:
            row = replace(row, partitions=max(logs) + 1)
            self.registry.set_partitions(row.id, row.partitions)
        return row

    def open_topic(self, row: TopicRow, logs: Mapping[int, Log], *, read_only: bool = False) -> Topic:
        topic = Topic(row, self.defaults.resolve(row.name, row.config, adopted=row.adopted), read_only=read_only)
        logs, tiered = dict(logs), topic.settings.remote_storage_enable
        for number in range(row.partitions):
            if number in logs:
                continue
            part = PartitionId(row.id, number)
            if (away := self.outages.away(part)) is not None:
                topic.offline[number] = away
            elif not row.adopted or topic.internal or self.outages.lost(part, tiered=tiered):  # groups: all are here
                logs[number] = self._make_log(topic, number)
        for number, logged in sorted(logs.items()):
            self.take(topic, number, logged)
        self._topics[row.name] = topic
        self.generation += 1
        return topic

    async def begin(
        self,
        epoch: int,
        remotes: Mapping[PartitionId, RemotePartition],
        tier: RemoteTier | None,
        *,
        waiting: Iterable[PartitionId] = (),
        outside: Collection[PartitionId] = (),
    ) -> None:
        """Enter *epoch* in every partition, above what the bucket has. After this the logs accept appends.

        *waiting*: those that do so only after `begin_waiting`, as does one whose bucket fails now. *outside*: those
        whose local log is given up for what the bucket has. Raises StartRefused, and RemoteUnavailable for these.
        """
        async with self._beginning:
            refuse_untiered(self, remotes)
            self.epoch = epoch
            self.waiting = set(waiting)
            for partition in self:
                partition.remote = remotes.get(partition.id)
                if partition.offline:
                    continue
                if tier is not None and tier.claim.state is not ClaimState.HELD and is_behind(partition):
                    self.waiting.add(partition.id)  # what it needs to go on lies in the bucket
                if partition.id not in self.waiting:
                    await self._begin_now(partition, tier, over=partition.id in outside)
                if partition.id in self.waiting:
                    let_wait(partition)
                    partition.tell(tier)

    async def _begin_now(self, partition: Partition, tier: RemoteTier | None, *, over: bool) -> None:
        try:
            await self._try_begin(partition, tier, over=over)
        except RemoteUnavailable as error:
            if over:
                raise
            log.warning("the bucket fails: %s", error, extra={"partition": str(partition)})
            self.waiting.add(partition.id)

    async def begin_waiting(self, tier: RemoteTier) -> None:
        """The bucket has answered: what it has is known, and the claim is held.

        Raises the first TierdError or OSError that one of them met; then it may be called again for what is left.
        """
        failed: list[TierdError | OSError] = []
        async with self._beginning:
            for part in sorted(self.waiting):
                partition = self.by_id(part)
                if partition is not None and not partition.offline:
                    partition.remote = tier.remote_partition(part)
                    try:
                        await self._try_begin(partition, tier)
                    except (TierdError, OSError) as error:
                        failed.append(error)
                        continue
                    partition.wake()
                    log.info("partition takes appends now", extra={"partition": str(partition)})
                self.waiting.discard(part)
        if failed:
            raise failed[0]

    async def _try_begin(self, partition: Partition, tier: RemoteTier | None, *, over: bool = False) -> None:
        try:
            known = partition.name in self._known_starts
            await begin_one(partition, self.epoch, tier, over=over, start_known=known)
        except (DiskFull, OSError) as error:
            home = self.homes.of(partition.log)
            if home.directory is None or len(self.directories) == 1:
                raise
            home.directory.health.fail(str(error))
            self.take_offline(home)

    # Changing.

    def add(self, row: TopicRow) -> Topic:
        """Open an empty topic that the registry has; its partitions come with `making` and `made`."""
        topic = Topic(row, self.defaults.resolve(row.name, row.config, adopted=row.adopted))
        self._topics[row.name] = topic
        self.generation += 1
        return topic

    def configure(self, topic: Topic, config: Mapping[str, str], tier: RemoteTier | None) -> None:
        """Make *config*, which the registry has, all that is set for the topic. Raises TopicConfigError, and nothing
        changes."""
        settings = self.defaults.resolve(topic.name, config, adopted=topic.row.adopted)
        topic.row, topic.settings = replace(topic.row, config=config), settings
        for partition in topic.partitions.values():
            partition.log.settings = settings
            partition.tell(tier)
        self.generation += 1

    def making(self, topic: Topic, numbers: Sequence[int]) -> list[Making]:
        """What is to be done for new partitions, in threads; `made` is told what has become of it."""
        return [
            Making(TopicPartition(topic.name, number), topic.id, topic.settings, self.epoch, homes)
            for number, homes in zip(numbers, self.homes.emptiest_first(len(numbers)), strict=True)
        ]

    def made(self, topic: Topic, logs: Iterable[Log], tier: RemoteTier | None) -> None:
        """Serve partitions that have been made and whose places the registry knows."""
        for logged in logs:
            home = self.homes.of(logged)
            assert home.directory is not None
            home.directory.adopt(logged)
            partition = self.take(topic, logged.name.partition, logged)
            if home.reason is not None:  # it went offline meanwhile
                self._withdraw(partition, home)
            partition.tell(tier)
        self.generation += 1

    def withdraw(self, topic: Topic) -> Removal:
        """Take a topic away from clients; its directories are still to be renamed."""
        if self._topics.get(topic.name) is topic:
            del self._topics[topic.name]
        self.generation += 1
        gone = []
        for number, partition in topic.partitions.items():
            partition.deleted = True
            self._by_name.pop((topic.name, number), None)
            self._by_id.pop(partition.id, None)
            partition.wake()
            if partition.archived:
                continue  # nothing of it lies anywhere
            directory = self.homes.of(partition.log).directory
            assert directory is not None
            gone.append((directory, partition))
        for number in topic.offline:
            self.outages.forget(PartitionId(topic.id, number))
        return removal(gone)

    def note(self, partition: Partition, error: BaseException) -> None:
        """Work on *partition*'s files met *error*: when that is the disk's, its directory goes offline."""
        directory = self.homes.of(partition.log).directory
        if directory is not None:
            directory.health.note(error)

    def met(self, partition: Partition, error: TierdError | OSError, event: str, *, at: int | None = None) -> ErrorCode:
        """Work on *partition*'s files met *error*, reading offset *at*: log it as *event*, `note`; what to answer."""
        log.error(event, extra={"partition": str(partition), "why": str(error)})
        if at is not None and isinstance(error, CorruptFile):
            partition.unreadable = (at, str(error))
        self.note(partition, error)
        return code_of(error)

    def take_offline(self, home: Home) -> None:
        """Serve nothing of *home* any more: its partitions have no leader, until the next start."""
        if home.directory is None or home.reason is not None:
            return
        home.reason = home.directory.health.reason or "it failed"
        self.generation += 1
        for partition in (*self, *self.read_only):
            if self.homes.of(partition.log) is home:
                self._withdraw(partition, home)
        log.error("partitions are offline", extra={"directory": str(home.path), "why": home.reason})

    def _withdraw(self, partition: Partition, home: Home) -> None:
        name = partition.name
        topic = self._topics[name.topic]
        del topic.partitions[name.partition]
        del self._by_name[name.topic, name.partition]
        self._by_id.pop(partition.id, None)
        topic.offline[name.partition] = self.outages.add(partition.id, home, partition.log)
        partition.offline = True
        partition.wake()

    def take(self, topic: Topic, number: int, logged: Log) -> Partition:
        partition = Partition(logged, PartitionId(topic.id, number), internal=topic.internal)
        topic.partitions[number] = partition
        self._by_name[topic.name, number] = partition
        if not topic.read_only:
            self._by_id[partition.id] = partition
        return partition

    def _make_log(self, topic: Topic, number: int) -> Log:
        (homes,) = self.homes.emptiest_first()
        directory, made = make_log(homes, TopicPartition(topic.name, number), topic.id, topic.settings)
        directory.adopt(made)
        return made
