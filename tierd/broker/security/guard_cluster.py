"""Guards of the APIs that are about the cluster as a whole: one right opens all of the request."""

from typing import Any

from tierd.broker.operations import Operation
from tierd.broker.security.asking import Asking
from tierd.broker.security.guard_topics import cluster_bits
from tierd.broker.security.guarding import CLUSTER_DENIED, Answer, Fields, Go, Guard
from tierd.wire.api import ApiKey

_WHOLE: Fields = {"error_code": CLUSTER_DENIED, "error_message": "Cluster authorization failed."}


def table() -> dict[ApiKey, Guard]:
    describe, alter = Operation.DESCRIBE, Operation.ALTER
    return {
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        ApiKey.DESCRIBE_QUORUM: whole(describe, _WHOLE),
        ApiKey.DESCRIBE_LOG_DIRS: whole(describe, {"error_code": CLUSTER_DENIED, "results": ()}),
        ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_reassignments,
        ApiKey.ELECT_LEADERS: elect_leaders,
        ApiKey.LIST_CONFIG_RESOURCES: whole(
            Operation.DESCRIBE_CONFIGS, {"error_code": CLUSTER_DENIED, "config_resources": ()}
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: whole(describe, _WHOLE),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: whole(Operation.DESCRIBE_CONFIGS, {**_WHOLE, "entries": None}),
        ApiKey.ALTER_CLIENT_QUOTAS: alter_quotas,
        ApiKey.DESCRIBE_ACLS: whole(describe, _WHOLE),
        ApiKey.CREATE_ACLS: for_each(alter, "creations", "results"),
        ApiKey.DELETE_ACLS: for_each(alter, "filters", "filter_results"),
        ApiKey.SASL_HANDSHAKE: for_everybody,
        ApiKey.SASL_AUTHENTICATE: for_everybody,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: whole(describe, {**_WHOLE, "results": [{"user": "", **_WHOLE}]}),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_users,
    }


def whole(operation: Operation, refusal: Fields) -> Guard:
    """The right to *operation* on the cluster opens the API; else *refusal* is the answer."""

    async def guard(asking: Asking, request: Any, go: Go) -> Answer:
        return await go(request) if asking.cluster(operation) else refusal

    return guard


def for_each(operation: Operation, asked: str, answered: str) -> Guard:
    """The same, where each row of the request has its answer."""

    async def guard(asking: Asking, request: Any, go: Go) -> Answer:
        if asking.cluster(operation):
            return await go(request)
        return {answered: [_WHOLE] * len(getattr(request, asked))}

    return guard


async def for_everybody(asking: Asking, request: Any, go: Go) -> Answer:
    return await go(request)


async def alter_users(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.cluster(Operation.ALTER):
        return await go(request)
    users = dict.fromkeys(row.name for row in (*request.deletions, *request.upsertions))
    return {"results": [{"user": user, **_WHOLE} for user in users]}


async def describe_cluster(asking: Asking, request: Any, go: Go) -> Answer:
    """Everybody may ask where the brokers are."""
    answer = await go(request)
    if answer["error_code"] or not request.include_cluster_authorized_operations:
        return answer
    return {**answer, "cluster_authorized_operations": cluster_bits(asking)}


async def alter_replica_log_dirs(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.cluster(Operation.ALTER):
        return await go(request)
    results: dict[str, list[Fields]] = {}
    for wish in request.dirs:
        for topic in wish.topics:
            rows = results.setdefault(topic.name, [])
            rows += ({"partition_index": number, "error_code": CLUSTER_DENIED} for number in topic.partitions)
    return {"results": [{"topic_name": topic, "partitions": rows} for topic, rows in results.items()]}


async def elect_leaders(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.cluster(Operation.ALTER):
        return await go(request)
    refused = {"error_code": CLUSTER_DENIED, "error_message": _WHOLE["error_message"]}
    rows = [
        {"topic": row.topic, "partition_result": [{"partition_id": n, **refused} for n in row.partitions]}
        for row in request.topic_partitions or ()
    ]
    return {"error_code": CLUSTER_DENIED, "replica_election_results": rows}


async def alter_reassignments(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.cluster(Operation.ALTER):
        return await go(request)
    rows = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": part.partition_index, "error_code": CLUSTER_DENIED} for part in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {**_WHOLE, "responses": rows}


async def alter_quotas(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.cluster(Operation.ALTER_CONFIGS):
        return await go(request)
    entities = [
        [{"entity_type": row.entity_type, "entity_name": row.entity_name} for row in entry.entity]
        for entry in request.entries
    ]
    return {"entries": [{**_WHOLE, "entity": entity} for entity in entities]}
