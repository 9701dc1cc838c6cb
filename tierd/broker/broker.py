"""The broker, put together from explicit parts: handlers, groups, server, housekeeping."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.ids import TopicPartition
from tierd.broker.cleaning import Cleaning, CleaningLimits
from tierd.broker.cluster_apis import DescribeCluster, DescribeTopicPartitions
from tierd.broker.commits import Commits
from tierd.broker.config_apis import AlterConfigs, DescribeConfigs
from tierd.broker.counters import Counters
from tierd.broker.create_partitions import CreatePartitions
from tierd.broker.delete_records import DeleteRecords
from tierd.broker.directory_apis import (
    AlterPartitionReassignments,
    AlterReplicaLogDirs,
    DescribeLogDirs,
    ListPartitionReassignments,
)
from tierd.broker.dispatch import ControlHandler, Dispatch
from tierd.broker.fetch import Fetch
from tierd.broker.group_ports import OneNode, TopicIds, once_settled
from tierd.broker.groups.admin import GroupAdmin
from tierd.broker.groups.consumer.groups import ConsumerGroups
from tierd.broker.groups.consumer.handlers import ConsumerHandlers
from tierd.broker.groups.coordinator import Coordinator
from tierd.broker.groups.expiry import OffsetsExpiry
from tierd.broker.groups.handlers import GroupHandlers
from tierd.broker.groups.model import GroupLimits
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.groups.txn_store import TransactionalOffsets
from tierd.broker.homes import Home, NoDirectoryLeft
from tierd.broker.housekeeping import Housekeeping
from tierd.broker.internal_topic import InternalTopic
from tierd.broker.list_offsets import ListOffsets
from tierd.broker.looking import Behind, InThread
from tierd.broker.markers import Markers
from tierd.broker.metadata import Metadata
from tierd.broker.moves import Moves
from tierd.broker.partitions import Partitions
from tierd.broker.ports import Looker, RemoteTier, Worker
from tierd.broker.produce import Late, Produce
from tierd.broker.producer_apis import DescribeProducers, WriteTxnMarkers
from tierd.broker.producer_ids import ProducerIds
from tierd.broker.registry import Registry
from tierd.broker.remote_reads import RemoteReads
from tierd.broker.sending import ReadFailed
from tierd.broker.server import Limits, Server
from tierd.broker.status import status
from tierd.broker.topic_apis import CreateTopics, DeleteTopics
from tierd.broker.topics import Topics
from tierd.broker.transactions.coordinator import Limits as TransactionLimits
from tierd.broker.transactions.coordinator import Transactions
from tierd.broker.transactions.handlers import TransactionHandlers
from tierd.broker.transactions.ports import STATE_TOPIC
from tierd.config.model import Settings
from tierd.wire.api import ApiKey

log = logging.getLogger(__name__)

STOP_GRACE_S = 5.0


class Broker:
    """Built once its partitions have begun; `start` listens, `stop` ends it. Loop thread only."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        partitions: Partitions,
        tier: RemoteTier | None,
        clock: Clock,
        *,
        cluster_id: str,
        worker: Worker | None = None,
        looker: Looker | None = None,
    ) -> None:
        """Without a *worker* nothing is compacted, without a *looker* large batches are looked at in a thread."""
        self.settings = settings
        self.partitions = partitions
        self.tier = tier
        self.counters = Counters()
        self.housekeeping = Housekeeping(
            partitions,
            tier,
            clock,
            retention_check_ms=settings.retention_check_ms,
            producer_expiry_ms=settings.transactions.producer_expiry_ms,
        )
        self.commits = Commits(self.counters, committed=self.housekeeping.appended, broken=self.housekeeping.fail)
        self.topics = Topics(partitions, tier, clock)
        self.moves = Moves(partitions, tier)
        self.address: tuple[str, int] | None = None
        self.housekeeping_task: asyncio.Task[None] | None = None
        """Ends only when the broker stops, or with an error that must end the daemon."""
        self._moves_task: asyncio.Task[None] | None = None
        self._cleaning = None if worker is None else self._cleaner(worker, clock)
        self._cleaning_task: asyncio.Task[None] | None = None
        self._reads = None if tier is None else RemoteReads(tier, clock, self.counters)
        self._fetch = Fetch(partitions, self._reads, self.counters)
        self._readers = ThreadPoolExecutor(4, "reads")
        self._lookups = ThreadPoolExecutor(2, "lookups")
        self._offsets = self._internal(OFFSETS_TOPIC, settings.offsets_topic_partitions, clock)
        self._coordinator = Coordinator(self._offsets, clock, limits=_group_limits(settings))
        self._markers = Markers(
            partitions,
            tier,
            clock,
            self.commits,
            TransactionalOffsets(self._coordinator),
            appended=self.housekeeping.appended,
        )
        self._consumer_groups = ConsumerGroups(self._coordinator, TopicIds(partitions))
        self._expiry = OffsetsExpiry(
            self._coordinator,
            keep_ms=settings.groups.retention_minutes * 60_000,
            every_ms=settings.groups.expiry_check_ms,
        )
        self._expiry_task: asyncio.Task[None] | None = None
        self._delete_records = DeleteRecords(partitions, tier)
        self._behind: Behind[Late] = Behind(looker or InThread())
        producer_ids = ProducerIds(registry, clock, self._largest_producer_id)
        self._transactions = self._transaction_coordinator(producer_ids, clock)
        self._transactions_task: asyncio.Task[None] | None = None
        produce = Produce(
            partitions,
            tier,
            clock,
            self.counters,
            self.commits,
            self._behind,
            verifier=self._transactions,
            appended=self.housekeeping.appended,
        )
        control = self._control(producer_ids, cluster_id)
        listener = settings.listener
        self.server = Server(
            Dispatch(produce, self._fetch, control, self.counters),
            Limits(
                max_connections=listener.max_connections,
                max_frame_bytes=listener.max_frame_bytes,
                max_buffered_bytes=listener.max_in_flight_bytes,
                idle_ms=listener.idle_ms,
            ),
            clock,
            self._readers,
            self._read_failed,
        )

    async def start(self) -> tuple[str, int]:
        """Listen; give the real address. Raises StartRefused when the address is taken."""
        self.topics.resume()
        self.address = self.server.listen(self.settings.listener.host, self.settings.listener.port)
        self.housekeeping_task = asyncio.create_task(self.housekeeping.run())
        self.partitions.outages.watch(asyncio.get_running_loop().call_soon_threadsafe, self._directory_failed)
        self.moves.resume()
        self._moves_task = asyncio.create_task(self.moves.run())
        self._moves_task.add_done_callback(self._beside_ended)
        self._transactions_task = asyncio.create_task(self._transactions.run())
        self._transactions_task.add_done_callback(self._beside_ended)
        self._expiry_task = asyncio.create_task(self._expiry.run())
        self._expiry_task.add_done_callback(self._beside_ended)
        if self._cleaning is not None:
            self._cleaning_task = asyncio.create_task(self._cleaning.run())
            self._cleaning_task.add_done_callback(self._beside_ended)
        return self.address

    def _read_failed(self, error: ReadFailed) -> None:
        for home in self.partitions.homes:
            if home.directory is not None and Path(error.filename).is_relative_to(home.path):
                home.directory.health.note(error)

    def _directory_failed(self, home: Home) -> None:
        self.partitions.take_offline(home)
        if not self.partitions.directories:
            self.housekeeping.fail(NoDirectoryLeft(self.partitions.homes.offline))

    def _beside_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.housekeeping.fail(error)

    async def stop(self, *, quick: bool = False) -> None:
        """Answer what is in work (not when *quick*), close all connections, end housekeeping. Logs stay open."""
        self._fetch.stop()
        await self.server.stop(0 if quick else STOP_GRACE_S)
        if self._expiry_task is not None:
            self._expiry.stop()
            await asyncio.wait({self._expiry_task})
        await self._stop_transactions()
        self._consumer_groups.close()
        self._coordinator.close()
        await self._behind.close()
        await self.topics.close()
        await self.commits.close()
        await self._delete_records.close()
        if self._reads is not None:
            await self._reads.close()
        await self.stop_cleaning()
        await self.stop_moves()
        self.housekeeping.stop()
        self.partitions.outages.unwatch()
        if self.housekeeping_task is not None:
            await self.housekeeping_task
        self._readers.shutdown(wait=False)
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _stop_transactions(self) -> None:
        """What is decided and not ended yet is ended by the next start."""
        await self._transactions.close()
        if self._transactions_task is not None:
            await asyncio.wait({self._transactions_task})

    async def stop_moves(self) -> None:
        """Moves under way begin anew at the next start."""
        self.moves.stop()
        if self._moves_task is not None:
            await asyncio.wait({self._moves_task})

    async def stop_cleaning(self) -> None:
        """What is being cleaned is given up; what was cleaned stays."""
        if self._cleaning is not None and self._cleaning_task is not None:
            self._cleaning.stop()
            await asyncio.wait({self._cleaning_task})

    async def status(self) -> dict[str, object]:
        """The document of `tierd status`."""
        return await status(self.partitions, self.tier)

    def advertised(self) -> tuple[str, int]:
        """What clients are told to connect to."""
        assert self.address is not None
        told = self.settings.listener.advertise(self.address[1])
        return told.host, told.port

    def _cleaner(self, worker: Worker, clock: Clock) -> Cleaning:
        cleaner = self.settings.cleaner
        limits = CleaningLimits(
            memory_bytes=cleaner.memory_bytes,
            reserve_bytes=self.settings.disk_reserve_bytes,
            backoff_ms=cleaner.backoff_ms,
        )
        return Cleaning(
            self.partitions, worker, self.tier, clock, self.counters, limits, changed=self.housekeeping.appended
        )

    def _internal(self, name: str, default_partitions: int, clock: Clock) -> InternalTopic:
        return InternalTopic(
            name,
            self.topics,
            self.partitions,
            clock,
            self._readers,
            appended=self.housekeeping.appended,
            commits=self.commits,
            default_partitions=default_partitions,
        )

    def _transaction_coordinator(self, producer_ids: ProducerIds, clock: Clock) -> Transactions:
        wanted = self.settings.transactions
        return Transactions(
            self._internal(STATE_TOPIC, wanted.topic_partitions, clock),
            self._markers,
            clock,
            producer_ids.next_id,
            epoch=lambda: self.partitions.epoch,
            on_disk=self._on_disk,
            limits=TransactionLimits(
                max_timeout_ms=wanted.max_timeout_ms, unused_ms=wanted.unused_ms, memory_bytes=wanted.memory_bytes
            ),
            broken=self.housekeeping.fail,
        )

    def _control(self, producer_ids: ProducerIds, cluster_id: str) -> dict[ApiKey, ControlHandler]:
        settings, partitions = self.settings, self.partitions
        metadata = Metadata(
            self.topics,
            partitions,
            node_id=settings.node_id,
            cluster_id=cluster_id,
            advertised=self.advertised,
            auto_create=settings.auto_create_topics,
            default_partitions=settings.num_partitions,
        )
        create = CreateTopics(
            self.topics, partitions, node_id=settings.node_id, default_partitions=settings.num_partitions
        )
        alter = AlterConfigs(self.topics, partitions)
        topic_ids = TopicIds(partitions)
        groups = GroupHandlers(
            self._coordinator,
            topic_ids,
            OneNode(settings.node_id, self.advertised),
            verifier=self._transactions,
        )
        transactions = TransactionHandlers(self._transactions, topic_ids, producer_ids.next_id, self._offsets.ensure)
        consumers = ConsumerHandlers(self._coordinator, self._consumer_groups, topic_ids)
        admin = GroupAdmin(self._coordinator, topic_ids)
        group_apis = {**groups.table(), **consumers.table(), **admin.table()}
        cluster = DescribeCluster(node_id=settings.node_id, cluster_id=cluster_id, advertised=self.advertised)
        return {
            ApiKey.LIST_OFFSETS: ListOffsets(partitions, self.tier, self._lookups),
            ApiKey.METADATA: metadata,
            ApiKey.CREATE_TOPICS: create,
            ApiKey.DELETE_TOPICS: DeleteTopics(self.topics, partitions, deleted=self._coordinator.forget_topic),
            ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkers(self._markers),
            ApiKey.DESCRIBE_PRODUCERS: DescribeProducers(partitions),
            ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirs(
                partitions, self.moves, with_remote=settings.log_dirs_with_remote
            ),
            ApiKey.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirs(partitions, self.moves),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignments(partitions, settings.node_id),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignments(),
            ApiKey.DELETE_RECORDS: self._delete_records,
            ApiKey.CREATE_PARTITIONS: CreatePartitions(self.topics, node_id=settings.node_id),
            ApiKey.DESCRIBE_CONFIGS: DescribeConfigs(partitions, settings),
            ApiKey.ALTER_CONFIGS: alter,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: alter,
            ApiKey.DESCRIBE_CLUSTER: cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitions(partitions, metadata),
            **transactions.table(),
            **once_settled(group_apis, self._offsets),
        }

    def _on_disk(self, place: TopicPartition) -> bool:
        """Whether what is acknowledged for the partition is on the disk."""
        found = self.partitions.get(place.topic, place.partition)
        return found is not None and found.log.commits

    def _largest_producer_id(self) -> int | None:
        ids = [largest for partition in self.partitions if (largest := partition.log.largest_producer_id) is not None]
        return max(ids, default=None)


def _group_limits(settings: Settings) -> GroupLimits:
    groups = settings.groups
    return GroupLimits(
        initial_delay_ms=groups.initial_delay_ms,
        max_size=groups.max_size,
        offset_metadata=groups.offset_metadata,
        consumer_session_ms=groups.consumer_session_ms,
        consumer_heartbeat_ms=groups.consumer_heartbeat_ms,
        consumer_max_size=groups.consumer_max_size,
        memory_bytes=groups.memory_bytes,
    )
