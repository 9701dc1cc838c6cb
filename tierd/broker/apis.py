"""Which handler serves which API, but for those that `dispatch.py` keeps to itself: Produce, Fetch and ApiVersions.

Groups and transactions have a `table` each beside their handlers: groups/handlers.py, groups/consumer/handlers.py,
groups/admin.py and transactions/handlers.py. What is served in which versions says `tierd/wire/api.py`.
"""

from collections.abc import Callable

from tierd.broker.cluster_apis import DescribeCluster, DescribeQuorum, DescribeTopicPartitions
from tierd.broker.config_apis import AlterConfigs, DescribeConfigs
from tierd.broker.create_partitions import CreatePartitions
from tierd.broker.directory_apis import (
    AlterPartitionReassignments,
    AlterReplicaLogDirs,
    DescribeLogDirs,
    ListPartitionReassignments,
)
from tierd.broker.dispatch import ControlHandler
from tierd.broker.entrances import Advertised
from tierd.broker.group_ports import OneNode, once_settled
from tierd.broker.groups.admin import GroupAdmin
from tierd.broker.groups.consumer.handlers import ConsumerHandlers
from tierd.broker.groups.consumer.mixed import MixedGroups
from tierd.broker.groups.handlers import GroupHandlers
from tierd.broker.list_offsets import ListOffsets
from tierd.broker.metadata import Metadata
from tierd.broker.node_apis import ElectLeaders, ListConfigResources, OffsetForLeaderEpoch
from tierd.broker.offset_ids import OffsetsById
from tierd.broker.operations import Operation
from tierd.broker.parts import Parts
from tierd.broker.producer_apis import DescribeProducers, WriteTxnMarkers
from tierd.broker.sasl.user_apis import UserApis
from tierd.broker.security import guard_cluster, guard_groups
from tierd.broker.security.acl_apis import AclApis
from tierd.broker.security.acls import Kind
from tierd.broker.security.audited import audited
from tierd.broker.security.guard_topics import TopicGuards
from tierd.broker.security.guard_transactions import TransactionGuards
from tierd.broker.security.guarding import Guard, guarded
from tierd.broker.security.mutations import Mutations
from tierd.broker.security.only_read import only_read
from tierd.broker.security.quota_apis import QuotaApis
from tierd.broker.topic_apis import CreateTopics, DeleteTopics
from tierd.broker.transactions.handlers import TransactionHandlers
from tierd.wire.api import ApiKey
from tierd.wire.header import RequestHeader

_Handlers = dict[ApiKey, ControlHandler]


def handlers(parts: Parts, cluster_id: str, advertised: Advertised) -> _Handlers:
    """*advertised*: the address that clients of a listener are told."""
    every = {
        **_of_topics(parts, advertised),
        **_of_records(parts),
        **_of_the_node(parts, cluster_id, advertised),
        **_of_groups(parts, advertised),
        **_of_transactions(parts),
        **UserApis(parts.users).table(),
        **AclApis(parts.authorizer).table(),
        **QuotaApis(parts.quotas).table(),
    }
    every |= Mutations(parts.quotas, parts.partitions, parts.settings.num_partitions).counted(every)
    if parts.settings.is_archive:
        every = only_read(every, guards(parts))
    if parts.authorizer is not None:
        every = guarded(every, guards(parts), parts.authorizer)
    every = OffsetsById(parts.partitions).before(every)
    return every if parts.audit is None else audited(every, parts.audit, parts.partitions)


def guards(parts: Parts) -> dict[ApiKey, Guard]:
    """What is asked before each API, where clients are held to rules."""
    topics = TopicGuards(parts.partitions, auto_create=parts.settings.auto_create_topics)
    return {
        **topics.table(),
        **guard_cluster.table(),
        **guard_groups.table(),
        **TransactionGuards(parts.partitions).table(),
    }


def _of_topics(parts: Parts, advertised: Advertised) -> _Handlers:
    settings, topics, partitions = parts.settings, parts.topics, parts.partitions
    alter = AlterConfigs(topics, partitions)
    return {
        ApiKey.CREATE_TOPICS: CreateTopics(
            topics, partitions, node_id=settings.node_id, default_partitions=settings.num_partitions
        ),
        ApiKey.DELETE_TOPICS: DeleteTopics(topics, partitions, deleted=parts.coordinator.forget_topic),
        ApiKey.CREATE_PARTITIONS: CreatePartitions(topics, node_id=settings.node_id),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigs(partitions, settings, advertised),
        ApiKey.ALTER_CONFIGS: alter,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter,
    }


def _of_records(parts: Parts) -> _Handlers:
    return {
        ApiKey.LIST_OFFSETS: ListOffsets(parts.partitions, parts.tier, parts.lookup_threads),
        ApiKey.DELETE_RECORDS: parts.delete_records,
        ApiKey.DESCRIBE_PRODUCERS: DescribeProducers(parts.partitions),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpoch(parts.partitions),
    }


def _of_the_node(parts: Parts, cluster_id: str, advertised: Advertised) -> _Handlers:
    settings, partitions, moves = parts.settings, parts.partitions, parts.moves
    node_id = settings.node_id
    metadata = Metadata(
        parts.topics,
        partitions,
        node_id=node_id,
        cluster_id=cluster_id,
        advertised=advertised,
        auto_create=settings.auto_create_topics,
        default_partitions=settings.num_partitions,
    )
    return {
        ApiKey.METADATA: metadata,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitions(partitions, metadata),
        ApiKey.DESCRIBE_CLUSTER: DescribeCluster(node_id=node_id, cluster_id=cluster_id, advertised=advertised),
        ApiKey.DESCRIBE_QUORUM: DescribeQuorum(node_id=node_id, advertised=advertised),
        ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirs(partitions, moves, with_remote=settings.log_dirs_with_remote),
        ApiKey.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirs(partitions, moves),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignments(partitions, node_id),
        ApiKey.ELECT_LEADERS: ElectLeaders(partitions),
        ApiKey.LIST_CONFIG_RESOURCES: ListConfigResources(partitions, node_id),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignments(),
    }


def _of_groups(parts: Parts, advertised: Advertised) -> _Handlers:
    coordinator, topic_ids = parts.coordinator, parts.topic_ids
    node = OneNode(parts.settings.node_id, advertised)
    table = {
        **GroupHandlers(
            coordinator,
            topic_ids,
            node,
            verifier=parts.transactions,
            mixed=MixedGroups(coordinator, parts.consumer_groups, topic_ids),
            sees=_sees(parts),
        ).table(),
        **ConsumerHandlers(coordinator, parts.consumer_groups, topic_ids, sees=_sees(parts)).table(),
        **GroupAdmin(coordinator, topic_ids).table(),
    }
    return {**once_settled(table, parts.offsets)}


def _sees(parts: Parts) -> Callable[[RequestHeader], Callable[[str], bool]]:
    """Which topics the sender of a request may be shown when nobody has named them."""
    authorizer = parts.authorizer
    if authorizer is None:
        return lambda header: lambda topic: True

    def of(header: RequestHeader) -> Callable[[str], bool]:
        rights = authorizer.rights(header.session)
        return lambda topic: rights.may(Operation.DESCRIBE, Kind.TOPIC, topic)

    return of


def _of_transactions(parts: Parts) -> _Handlers:
    ids = parts.producer_ids
    own = TransactionHandlers(parts.transactions, parts.topic_ids, ids.next_id, parts.offsets.ensure, ids.ready)
    return {**own.table(), ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkers(parts.markers)}
