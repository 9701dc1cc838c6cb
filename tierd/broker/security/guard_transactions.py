"""Guards of the producer and transaction APIs, but for Produce itself."""

from typing import Any

from tierd.broker.operations import Operation
from tierd.broker.partitions import Partitions
from tierd.broker.security.acls import Kind
from tierd.broker.security.asking import Asking
from tierd.broker.security.guard_groups import committed, denied_rows
from tierd.broker.security.guarding import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    Answer,
    Fields,
    Go,
    Guard,
    changed,
    split,
)
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

_BATCHED_FROM = 4
"""AddPartitionsToTxn: from here on it is for brokers."""
_NO_PRODUCER: Fields = {"producer_id": -1, "producer_epoch": -1}


class TransactionGuards:
    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def table(self) -> dict[ApiKey, Guard]:
        return {
            ApiKey.INIT_PRODUCER_ID: init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: add_offsets,
            ApiKey.END_TXN: end,
            ApiKey.TXN_OFFSET_COMMIT: commit,
            ApiKey.WRITE_TXN_MARKERS: write_markers,
            ApiKey.DESCRIBE_TRANSACTIONS: describe,
            ApiKey.LIST_TRANSACTIONS: list_transactions,
        }

    async def add_partitions(self, asking: Asking, request: Any, go: Go) -> Answer:
        if asking.header.version >= _BATCHED_FROM:
            return await go(request) if asking.cluster(Operation.CLUSTER_ACTION) else {"error_code": CLUSTER_DENIED}
        topics = request.v3_and_below_topics
        if not asking.transaction(Operation.WRITE, request.v3_and_below_transactional_id):
            return _added((topic.name, number, TRANSACTION_DENIED) for topic in topics for number in topic.partitions)
        _, refused = await split(topics, lambda topic: asking.topic(Operation.WRITE, topic.name))
        denied = {topic.name for topic in refused}
        if not denied:
            return await go(request)
        return _added(
            (topic.name, number, self._not_added(topic.name, number, denied))
            for topic in topics
            for number in topic.partitions
        )

    def _not_added(self, topic: str, number: int, denied: set[str]) -> ErrorCode:
        """All or none is added."""
        if topic in denied:
            return TOPIC_DENIED
        known = self._partitions.get(topic, number) is not None
        return ErrorCode.OPERATION_NOT_ATTEMPTED if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _added(errors: Any) -> Fields:
    by_topic: dict[str, list[Fields]] = {}
    for topic, number, code in errors:
        by_topic.setdefault(topic, []).append({"partition_index": number, "partition_error_code": code})
    rows = [{"name": topic, "results_by_partition": found} for topic, found in by_topic.items()]
    return {"results_by_topic_v3_and_below": rows}


async def init(asking: Asking, request: Any, go: Go) -> Answer:
    """Who may write to any topic may be an idempotent producer."""
    if request.transactional_id is not None:
        if not asking.transaction(Operation.WRITE, request.transactional_id):
            return {"error_code": TRANSACTION_DENIED, **_NO_PRODUCER}
        return await go(request)
    if asking.rights.may_any(Operation.WRITE, Kind.TOPIC) or asking.cluster(Operation.IDEMPOTENT_WRITE):
        return await go(request)
    return {"error_code": CLUSTER_DENIED, **_NO_PRODUCER}


async def add_offsets(asking: Asking, request: Any, go: Go) -> Answer:
    if not asking.transaction(Operation.WRITE, request.transactional_id):
        return {"error_code": TRANSACTION_DENIED}
    return await go(request) if asking.group(Operation.READ, request.group_id) else {"error_code": GROUP_DENIED}


async def end(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.transaction(Operation.WRITE, request.transactional_id):
        return await go(request)
    return {"error_code": TRANSACTION_DENIED, **_NO_PRODUCER}


async def commit(asking: Asking, request: Any, go: Go) -> Answer:
    error = ErrorCode.NONE
    if not asking.transaction(Operation.WRITE, request.transactional_id):
        error = TRANSACTION_DENIED
    elif not asking.group(Operation.READ, request.group_id):
        error = GROUP_DENIED
    if error:
        return {"topics": [denied_rows(topic, error) for topic in request.topics]}
    return await committed(asking, request, go)


async def write_markers(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.cluster(Operation.ALTER, quiet=True) or asking.cluster(Operation.CLUSTER_ACTION):
        return await go(request)
    return {"markers": [_unwritten(marker) for marker in request.markers]}


def _unwritten(marker: Any) -> Fields:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "error_code": CLUSTER_DENIED} for index in topic.partition_indexes
            ],
        }
        for topic in marker.topics
    ]
    return {"producer_id": marker.producer_id, "topics": topics}


async def describe(asking: Asking, request: Any, go: Go) -> Answer:
    allowed, refused = await split(request.transactional_ids, lambda name: asking.transaction(Operation.DESCRIBE, name))
    answer = await go(changed(request, transactional_ids=tuple(allowed)))
    shown = [_of_its_topics(asking, row) for row in answer["transaction_states"]]
    denied = [{"transactional_id": name, "error_code": TRANSACTION_DENIED} for name in refused]
    return {**answer, "transaction_states": [*shown, *denied]}


def _of_its_topics(asking: Asking, row: Fields) -> Fields:
    if row["error_code"]:
        return row
    return {
        **row,
        "topics": [one for one in row["topics"] if asking.topic(Operation.DESCRIBE, one["topic"], quiet=True)],
    }


async def list_transactions(asking: Asking, request: Any, go: Go) -> Answer:
    answer = await go(request)
    if answer["error_code"]:
        return answer
    shown, _ = await split(
        answer["transaction_states"],
        lambda row: asking.transaction(Operation.DESCRIBE, row["transactional_id"], quiet=True),
    )
    return {**answer, "transaction_states": shown}
