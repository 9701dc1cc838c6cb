"""The questions of `kit.access`: one request of every API, and with which rights it is sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from broker.client import batch
from tierd.broker.operations import Operation as Op
from tierd.broker.security.acls import CLUSTER_NAME, Kind, Pattern, Permission
from tierd.wire.api import API, ApiKey


@dataclass(frozen=True)
class IdOf:
    """In fields, the id that a topic has at the broker that is asked."""

    name: str


Grant = tuple[Op, Kind, str]
T1, T2, GROUP, TX = "t1", "t2", "g", "tx"
_GROUP, _CLUSTER, _TXID = (Kind.GROUP, GROUP), (Kind.CLUSTER, CLUSTER_NAME), (Kind.TRANSACTIONAL_ID, TX)


def topic(operation: Op, name: str = T1) -> Grant:
    return operation, Kind.TOPIC, name


def group(operation: Op) -> Grant:
    return operation, *_GROUP


def cluster(operation: Op) -> Grant:
    return operation, *_CLUSTER


def txid(operation: Op) -> Grant:
    return operation, *_TXID


@dataclass(frozen=True)
class Case:
    """One request, and with which grants it is sent; always also with none."""

    key: ApiKey
    fields: dict[str, Any]
    grants: Sequence[Sequence[Grant]]
    version: int | None = None
    note: str = ""

    @property
    def name(self) -> str:
        version = API[self.key].last if self.version is None else self.version
        return f"{self.key.name} v{version}{self.note and ' ' + self.note}"


def _each(make: Callable[[Op], Grant], *operations: Op) -> list[list[Grant]]:
    return [[make(operation)] for operation in operations]


_PARTS = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1, "offset": 0}]
_BOTH = [{"name": T1, "partitions": _PARTS}, {"name": T2, "partitions": _PARTS}]
_COMMITS = [
    {
        "name": name,
        "topic_id": IdOf(name),
        "partitions": [
            {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        ],
    }
    for name in (T1, T2)
]
_NAMES = [{"name": T1}, {"name": T2}, {"name": "nowhere"}]
_FETCHED = [
    {
        "topic": name,
        "topic_id": IdOf(name),
        "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}],
    }
    for name in (T1, T2)
]
_MARKER = {
    "producer_id": 1,
    "producer_epoch": 0,
    "transaction_result": False,
    "coordinator_epoch": 0,
    "topics": [{"name": "nowhere", "partition_indexes": [0]}],
}
_ACL = {
    "resource_type": Kind.GROUP,
    "resource_name": "other",
    "resource_pattern_type": Pattern.LITERAL,
    "principal": "User:x",
    "host": "*",
    "operation": Op.READ,
    "permission_type": Permission.ALLOW,
}
_ACL_FILTER = {
    "resource_type_filter": Kind.GROUP,
    "resource_name_filter": "other",
    "pattern_type_filter": Pattern.ANY,
    "principal_filter": "User:x",
    "host_filter": None,
    "operation": Op.ANY,
    "permission_type": Permission.ANY,
}
_MEMBER = {"group_id": GROUP, "member_id": "nobody", "generation_id": 1, "group_instance_id": None}
_NEW = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
_NOT_JOINED = {
    "group_id": "fresh",
    "member_id": "m",
    "member_epoch": 5,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": -1,
    "subscribed_topic_names": [T1, T2],
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}


def _configs(kind: int, name: str) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"], "configs": ()}]


def produced(name: str | None = None) -> dict[str, Any]:
    partitions = [{"index": 0, "records": batch(1)}]
    data = [{"name": one, "topic_id": IdOf(one), "partition_data": partitions} for one in (T1, T2)]
    return {"transactional_id": name, "acks": -1, "timeout": 5000, "topic_data": data}


def cases() -> list[Case]:
    return [
        *_records(),
        *_topics(),
        *_configurations(),
        *_groups(),
        *_groups_for_administrators(),
        *_transactions(),
        *_cluster(),
    ]


def _records() -> Iterator[Case]:
    for version in (12, 13):
        yield Case(ApiKey.PRODUCE, produced(), _each(topic, Op.WRITE, Op.READ, Op.ALL), version=version)
    fetched = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "session_epoch": -1}
    read = {**fetched, "isolation_level": 0, "topics": _FETCHED}
    for version in (12, 18):
        yield Case(ApiKey.FETCH, read, _each(topic, Op.READ, Op.WRITE, Op.DESCRIBE), version=version)
    yield Case(
        ApiKey.LIST_OFFSETS,
        {"replica_id": -1, "isolation_level": 0, "topics": _BOTH},
        _each(topic, Op.DESCRIBE, Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.CREATE, Op.DESCRIBE_CONFIGS),
    )
    yield Case(
        ApiKey.DELETE_RECORDS, {"topics": _BOTH, "timeout": 5000}, _each(topic, Op.DELETE, Op.DESCRIBE, Op.WRITE)
    )
    asked = [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]} for name in (T1, T2, "nowhere")]
    yield Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        {"replica_id": -1, "topics": asked},
        _each(topic, Op.DESCRIBE, Op.READ, Op.ALTER),
    )
    indexes = [{"name": name, "partition_indexes": [0]} for name in (T1, T2, "nowhere")]
    yield Case(ApiKey.DESCRIBE_PRODUCERS, {"topics": indexes}, _each(topic, Op.READ, Op.DESCRIBE))


def _topics() -> Iterator[Case]:
    asked = {"topics": _NAMES, "allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    several = _each(topic, Op.DESCRIBE, Op.READ, Op.ALTER_CONFIGS, Op.ALL)
    nowhere = [[topic(Op.DESCRIBE, "nowhere")], [topic(Op.DESCRIBE), topic(Op.DESCRIBE, "nowhere")]]
    yield Case(ApiKey.METADATA, asked, [*several, *nowhere])
    yield Case(ApiKey.METADATA, {**asked, "topics": None}, several, note="of all")
    yield Case(ApiKey.METADATA, {**asked, "topics": ()}, several, note="of none")
    by_id = [{"name": None, "topic_id": IdOf(name)} for name in (T1, T2)]
    unknown = {"name": None, "topic_id": UUID(int=7)}
    yield Case(ApiKey.METADATA, {**asked, "topics": [*by_id, unknown]}, several, note="by id")
    makes = {**asked, "allow_auto_topic_creation": True, "topics": [{"name": "made"}]}
    yield Case(ApiKey.METADATA, makes, [[topic(Op.DESCRIBE, "made")], [topic(Op.CREATE, "made")]], note="that makes")
    with_cluster = {**asked, "include_cluster_authorized_operations": True}
    yield Case(ApiKey.METADATA, with_cluster, [[], *_each(cluster, Op.DESCRIBE, Op.ALTER)], version=8)
    pages = {"response_partition_limit": 100, "cursor": None}
    yield Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {**pages, "topics": _NAMES}, [*several, *nowhere])
    yield Case(ApiKey.DESCRIBE_TOPIC_PARTITIONS, {**pages, "topics": ()}, several, note="of all")
    new = {"topics": [_NEW, {**_NEW, "name": "newer"}], "timeout": 5000, "validate_only": True}
    yield Case(
        ApiKey.CREATE_TOPICS,
        new,
        [
            *_each(cluster, Op.CREATE, Op.ALTER),
            [topic(Op.CREATE, "new")],
            [topic(Op.CREATE, "new"), topic(Op.DESCRIBE_CONFIGS, "new")],
        ],
    )
    gone = {"topics": [{"name": "nowhere", "topic_id": None}, {"name": T2, "topic_id": None}], "timeout": 5000}
    yield Case(
        ApiKey.DELETE_TOPICS,
        gone,
        [
            [topic(Op.DESCRIBE, "nowhere")],
            [topic(Op.DELETE, "nowhere")],
            [topic(Op.DESCRIBE, T2)],
            [topic(Op.READ, T2)],
        ],
    )
    yield Case(
        ApiKey.DELETE_TOPICS, {"topic_names": ["nowhere", T2], "timeout": 5000}, [[topic(Op.DESCRIBE, T2)]], version=5
    )
    one_by_id = {"topics": [by_id[1], unknown], "timeout": 5000}
    yield Case(ApiKey.DELETE_TOPICS, one_by_id, [[topic(Op.DESCRIBE, T2)], [topic(Op.WRITE, T2)]], note="by id")
    one_by_both = {"topics": [{"name": "nowhere", "topic_id": IdOf(T2)}], "timeout": 5000}
    rights = [topic(Op.DELETE, "nowhere"), topic(Op.DESCRIBE, T2)]
    yield Case(ApiKey.DELETE_TOPICS, one_by_both, [rights], note="by name and id")
    more = {
        "topics": [{"name": name, "count": 2, "assignments": None} for name in (T1, T2)],
        "timeout": 5000,
        "validate_only": True,
    }
    yield Case(ApiKey.CREATE_PARTITIONS, more, _each(topic, Op.ALTER, Op.CREATE, Op.DESCRIBE))


def _configurations() -> Iterator[Case]:
    for key, fields in (
        (ApiKey.DESCRIBE_CONFIGS, {"include_synonyms": False, "include_documentation": False}),
        (ApiKey.ALTER_CONFIGS, {"validate_only": True}),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, {"validate_only": True}),
    ):
        operations = Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.DESCRIBE, Op.ALL
        yield Case(key, {**fields, "resources": _configs(2, T1)}, _each(topic, *operations), note="of a topic")
        if key is not ApiKey.ALTER_CONFIGS:
            yield Case(
                key, {**fields, "resources": _configs(4, "1")}, _each(cluster, *operations), note="of the broker"
            )


def _groups() -> Iterator[Case]:
    for kind, key, make in ((0, GROUP, group), (1, TX, txid)):
        asked = {"key_type": kind, "coordinator_keys": [key, "another"], "key": key}
        for version in (3, 6):
            yield Case(
                ApiKey.FIND_COORDINATOR,
                asked,
                _each(make, Op.DESCRIBE, Op.READ if kind == 0 else Op.WRITE),
                version=version,
                note=f"type {kind}",
            )
    readers = _each(group, Op.READ, Op.DESCRIBE)
    joining = {**_MEMBER, "session_timeout": 10_000, "rebalance_timeout": 10_000, "protocol_type": "consumer"}
    yield Case(ApiKey.JOIN_GROUP, {**joining, "protocols": [{"name": "range", "metadata": b""}]}, readers)
    yield Case(
        ApiKey.SYNC_GROUP,
        {**_MEMBER, "protocol_type": "consumer", "protocol_name": "range", "assignments": ()},
        readers,
    )
    yield Case(ApiKey.HEARTBEAT, _MEMBER, readers)
    leaving = {"member_id": "nobody", "group_instance_id": None, "reason": None}
    yield Case(ApiKey.LEAVE_GROUP, {"group_id": GROUP, "members": [leaving]}, readers)
    commit = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": _COMMITS,
    }
    member = group(Op.READ)
    committers = [[member], [member, topic(Op.READ)], [member, topic(Op.DESCRIBE)], [topic(Op.READ)]]
    for version in (9, 10):
        yield Case(ApiKey.OFFSET_COMMIT, commit, committers, version=version)
    wanted = [{"name": name, "topic_id": IdOf(name), "partition_indexes": [0]} for name in (T1, T2)]
    seers = [[group(Op.DESCRIBE)], [group(Op.READ), topic(Op.READ)], [topic(Op.READ)]]
    for topics, note in ((wanted, ""), (None, "of all")):
        asked = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": topics}
        for version in (9, 10):
            fields = {"groups": [asked], "require_stable": False}
            yield Case(ApiKey.OFFSET_FETCH, fields, seers, version=version, note=note)
        yield Case(ApiKey.OFFSET_FETCH, {**asked, "require_stable": False}, seers, version=7, note=note)


def _groups_for_administrators() -> Iterator[Case]:
    readers = _each(group, Op.READ, Op.DESCRIBE)
    shown = {"groups": [GROUP, "other"], "include_authorized_operations": True}
    yield Case(ApiKey.DESCRIBE_GROUPS, shown, _each(group, Op.DESCRIBE, Op.READ, Op.DELETE, Op.ALL))
    yield Case(ApiKey.LIST_GROUPS, {"states_filter": (), "types_filter": ()}, [*readers, *_each(cluster, Op.DESCRIBE)])
    yield Case(ApiKey.DELETE_GROUPS, {"groups_names": ["other", "nobody"]}, _each(group, Op.DELETE))
    yield Case(
        ApiKey.OFFSET_DELETE,
        {"group_id": GROUP, "topics": [{"name": T2, "partitions": [{"partition_index": 7}]}]},
        [[group(Op.DELETE)], [group(Op.DELETE), topic(Op.READ, T2)], [topic(Op.READ, T2)]],
    )
    reads = Op.READ, Kind.GROUP, "fresh"
    yield Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        _NOT_JOINED,
        [[reads], [reads, topic(Op.DESCRIBE)], [topic(Op.ALL), topic(Op.ALL, T2)]],
    )
    yield Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": ["fresh", "other"], "include_authorized_operations": True},
        [[(Op.DESCRIBE, Kind.GROUP, "fresh")], [reads]],
    )


def _transactions() -> Iterator[Case]:
    idempotent = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    yield Case(
        ApiKey.INIT_PRODUCER_ID,
        idempotent,
        [*_each(cluster, Op.IDEMPOTENT_WRITE, Op.ALTER), *_each(topic, Op.WRITE, Op.READ, Op.ALL)],
        note="idempotent",
    )
    producer = {"transactional_id": TX, "producer_id": 12345, "producer_epoch": 0}
    yield Case(ApiKey.INIT_PRODUCER_ID, {**idempotent, "transactional_id": TX}, _each(txid, Op.WRITE, Op.DESCRIBE))
    old = {
        "v3_and_below_transactional_id": TX,
        "v3_and_below_producer_id": 12345,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in (T1, T2)],
    }
    writes = txid(Op.WRITE)
    yield Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        old,
        [[writes], [writes, topic(Op.WRITE)], [writes, topic(Op.WRITE), topic(Op.WRITE, T2)], [topic(Op.WRITE)]],
        version=3,
    )
    yield Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        {**producer, "group_id": GROUP},
        [[writes], [writes, group(Op.READ)], [group(Op.READ)]],
    )
    yield Case(ApiKey.END_TXN, {**producer, "committed": True}, _each(txid, Op.WRITE, Op.DESCRIBE))
    offsets = {**producer, "group_id": GROUP, "generation_id": -1, "member_id": "", "group_instance_id": None}
    yield Case(
        ApiKey.TXN_OFFSET_COMMIT,
        {**offsets, "topics": _COMMITS},
        [[writes], [writes, group(Op.READ)], [group(Op.READ)]],
    )
    yield Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [TX, "another"]},
        _each(txid, Op.DESCRIBE, Op.WRITE, Op.READ),
    )
    every = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None}
    yield Case(ApiKey.LIST_TRANSACTIONS, every, _each(txid, Op.DESCRIBE, Op.WRITE, Op.READ))


def _cluster() -> Iterator[Case]:
    asked = {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
    yield Case(ApiKey.DESCRIBE_CLUSTER, asked, _each(cluster, Op.DESCRIBE, Op.ALTER, Op.CREATE, Op.ALL))
    described = _each(cluster, Op.DESCRIBE, Op.ALTER, Op.CREATE)
    yield Case(ApiKey.DESCRIBE_LOG_DIRS, {"topics": ()}, described)
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    yield Case(ApiKey.DESCRIBE_QUORUM, {"topics": quorum}, described, version=1)
    moved = [{"path": "/nowhere", "topics": [{"name": T1, "partitions": [0]}]}]
    yield Case(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": moved}, _each(cluster, Op.ALTER, Op.DESCRIBE))
    assigned = [{"name": T1, "partitions": [{"partition_index": 0, "replicas": None}]}]
    yield Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {"topics": assigned, "timeout": 5000},
        _each(cluster, Op.ALTER, Op.DESCRIBE),
    )
    yield Case(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None, "timeout": 5000}, described)
    elected = [{"topic": T1, "partitions": [0]}, {"topic": "nowhere", "partitions": [0]}]
    yield Case(
        ApiKey.ELECT_LEADERS,
        {"election_type": 0, "topic_partitions": elected, "timeout": 5000},
        _each(cluster, Op.ALTER, Op.DESCRIBE),
    )
    yield Case(
        ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": (2, 4)}, _each(cluster, Op.DESCRIBE_CONFIGS, Op.DESCRIBE)
    )
    yield Case(ApiKey.DESCRIBE_ACLS, _ACL_FILTER, described)
    yield Case(ApiKey.CREATE_ACLS, {"creations": [_ACL]}, _each(cluster, Op.ALTER, Op.DESCRIBE))
    yield Case(ApiKey.DELETE_ACLS, {"filters": [_ACL_FILTER]}, _each(cluster, Op.ALTER, Op.DESCRIBE))
    quotas = {"components": [{"entity_type": "user", "match_type": 0, "match": "x"}], "strict": False}
    yield Case(ApiKey.DESCRIBE_CLIENT_QUOTAS, quotas, _each(cluster, Op.DESCRIBE_CONFIGS, Op.DESCRIBE))
    entity = {"entity": [{"entity_type": "user", "entity_name": "x"}], "ops": ()}
    yield Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {"entries": [entity], "validate_only": True},
        _each(cluster, Op.ALTER_CONFIGS, Op.ALTER),
    )
    yield Case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "nobody"}]}, described)
    gone = [{"name": "nobody", "mechanism": 1}]
    yield Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": gone, "upsertions": ()}, _each(cluster, Op.ALTER, Op.CREATE)
    )
