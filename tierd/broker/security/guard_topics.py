"""Guards of the APIs that name topics: metadata, making and deleting, settings, records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from tierd.base.ids import Uuid
from tierd.broker.operations import OF_CLUSTER, OF_TOPIC, Operation
from tierd.broker.partitions import Partitions
from tierd.broker.security.acls import Kind
from tierd.broker.security.asking import Asking
from tierd.broker.security.guarding import (
    A_TURN,
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    Answer,
    Fields,
    Go,
    Guard,
    changed,
    split,
)
from tierd.broker.turns import in_turns
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

_DENIED_TOPIC: Final[Fields] = {"error_code": TOPIC_DENIED, "topic_id": None, "is_internal": False, "partitions": ()}
_TOPIC_CONFIG, _GROUP_CONFIG = 2, 32
"""Resource types of settings; those of all others are the cluster's."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A topic in a request that was not in it so."""

    name: str
    topic_id: None = None


class TopicGuards:
    """What they need to know of topics: which there are."""

    def __init__(self, partitions: Partitions, *, auto_create: bool) -> None:
        self._partitions = partitions
        self._auto_create = auto_create

    def table(self) -> dict[ApiKey, Guard]:
        read, describe, delete = Operation.READ, Operation.DESCRIBE, Operation.DELETE
        return {
            ApiKey.METADATA: self.metadata,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
            ApiKey.CREATE_TOPICS: create_topics,
            ApiKey.DELETE_TOPICS: self.delete_topics,
            ApiKey.CREATE_PARTITIONS: create_partitions,
            ApiKey.DESCRIBE_CONFIGS: of_configs(Operation.DESCRIBE_CONFIGS, "results", {"configs": ()}),
            ApiKey.ALTER_CONFIGS: of_configs(Operation.ALTER_CONFIGS, "responses", {}),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: of_configs(Operation.ALTER_CONFIGS, "responses", {}),
            ApiKey.LIST_OFFSETS: of_partitions(describe, _index, {"offset": -1, "timestamp": -1, "leader_epoch": -1}),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: epoch_ends,
            ApiKey.DELETE_RECORDS: of_partitions(delete, _index, {"low_watermark": -1}),
            ApiKey.DESCRIBE_PRODUCERS: of_partitions(read, _itself, {"error_message": None}, rows="partition_indexes"),
        }

    async def metadata(self, asking: Asking, request: Any, go: Go) -> Answer:
        version = asking.header.version
        refused: list[Fields] = []
        everything = request.topics is None or (version == 0 and not request.topics)
        left = request
        if not everything:
            allowed = []
            async for row in in_turns(request.topics, A_TURN):
                why = self._metadata_refusal(asking, request, row)
                if why is None:
                    allowed.append(row)
                else:
                    refused.append(why)
            left = changed(request, topics=tuple(allowed))
        answer = (
            dict(await go(left)) if everything or version or left.topics else await self._without_topics(request, go)
        )
        shown = answer["topics"]
        if everything:
            shown, _ = await split(shown, lambda row: asking.topic(Operation.DESCRIBE, row["name"], quiet=True))
        if getattr(request, "include_topic_authorized_operations", False):
            shown = await _with_bits(asking, shown)
        if getattr(request, "include_cluster_authorized_operations", False):
            answer["cluster_authorized_operations"] = cluster_bits(asking)
        return {**answer, "topics": [*shown, *unique(refused)]}

    async def _without_topics(self, request: Any, go: Go) -> Fields:
        """Of no topic at all, which in version 0 cannot be asked for."""
        answer = dict(await go(changed(request, topics=(_Named(""),))))
        return {**answer, "topics": []}

    def _metadata_refusal(self, asking: Asking, request: Any, row: Any) -> Fields | None:
        topic_id, name = getattr(row, "topic_id", None), row.name
        if topic_id is not None and name is None:
            topic = self._partitions.topic_by_id(Uuid(topic_id.bytes))
            if topic is None or asking.topic(Operation.DESCRIBE, topic.name):
                return None
            return {**_DENIED_TOPIC, "name": None, "topic_id": topic_id}
        if not asking.topic(Operation.DESCRIBE, name or ""):
            return {**_DENIED_TOPIC, "name": name}
        makes = self._auto_create and getattr(request, "allow_auto_topic_creation", True)
        if not makes or self._partitions.topic(name) is not None:
            return None
        if asking.cluster(Operation.CREATE, quiet=True) or asking.topic(Operation.CREATE, name):
            return None
        return {**_DENIED_TOPIC, "name": name}

    async def describe_topic_partitions(self, asking: Asking, request: Any, go: Go) -> Answer:
        named = [row.name for row in request.topics]
        every = named or [topic.name for topic in self._partitions.topics()]
        quiet = not named
        allowed, refused = await split(every, lambda name: asking.topic(Operation.DESCRIBE, name, quiet=quiet))
        begin = "" if request.cursor is None else request.cursor.topic_name
        rows = [{**_DENIED_TOPIC, "name": name} for name in dict.fromkeys(refused) if named and name >= begin]
        cursor = request.cursor
        if begin and begin not in allowed:
            cursor = None
            allowed = [name for name in allowed if name >= begin]
        if not allowed:
            return {"topics": rows, "next_cursor": None}
        topics = tuple(_Named(name) for name in allowed)
        answer = await go(changed(request, topics=topics, cursor=cursor))
        shown = await _with_bits(asking, answer["topics"])
        return {**answer, "topics": [*shown, *rows]}

    async def delete_topics(self, asking: Asking, request: Any, go: Go) -> Answer:
        if asking.cluster(Operation.DELETE, quiet=True):
            return await go(request)
        if not hasattr(request, "topics"):
            names, refused = await split(
                request.topic_names, lambda name: self._undeletable(asking, name, None) is None
            )
            rows = [self._undeletable(asking, name, None) for name in dict.fromkeys(refused)]
            left = changed(request, topic_names=tuple(names))
        else:
            given, wrong = await split(
                request.topics, lambda topic: self._undeletable(asking, topic.name, topic.topic_id) is None
            )
            rows = [self._undeletable(asking, topic.name, topic.topic_id) for topic in wrong]
            left = changed(request, topics=tuple(given))
        answer = await go(left)
        return {**answer, "responses": [*answer["responses"], *rows]}

    def _undeletable(self, asking: Asking, name: str | None, topic_id: Any) -> Fields | None:
        denied: Fields = {"name": name, "topic_id": topic_id, "error_code": TOPIC_DENIED, "error_message": None}
        if name is not None and topic_id is not None:
            return None  # refused whatever the rights
        if name is None:
            topic = None if topic_id is None else self._partitions.topic_by_id(Uuid(topic_id.bytes))
            if topic is None or asking.topic(Operation.DELETE, topic.name):
                return None
            shown = asking.topic(Operation.DESCRIBE, topic.name, quiet=True)
            return {**denied, "name": topic.name if shown else None}
        if not asking.topic(Operation.DESCRIBE, name):
            return {**denied, "topic_id": None}
        if self._partitions.topic(name) is None or asking.topic(Operation.DELETE, name):
            return None
        return {**denied, "topic_id": None}


async def _with_bits(asking: Asking, rows: Iterable[Fields]) -> list[Fields]:
    """Topics, each with what may be done with it; one that nobody knows has no name, and nothing to be done."""
    return [
        {**row, "topic_authorized_operations": asking.rights.bits(OF_TOPIC, Kind.TOPIC, row["name"])}
        if row["name"] is not None
        else row
        async for row in in_turns(rows, A_TURN // len(OF_TOPIC))
    ]


def cluster_bits(asking: Asking) -> int:
    """Nothing at all for who may not describe the cluster."""
    return asking.rights.bits(OF_CLUSTER, Kind.CLUSTER) if asking.cluster(Operation.DESCRIBE) else 0


def unique(rows: list[Fields]) -> list[Fields]:
    """Each topic once, however often it was named."""
    return list({(row["name"], row["topic_id"]): row for row in rows}.values())


async def create_topics(asking: Asking, request: Any, go: Go) -> Answer:
    everywhere = asking.cluster(Operation.CREATE, quiet=True)
    allowed, refused = await split(
        request.topics, lambda topic: everywhere or asking.topic(Operation.CREATE, topic.name)
    )
    answer = await go(changed(request, topics=tuple(allowed)))
    rows = [_without_config(asking, row) for row in answer["topics"]]
    for name in dict.fromkeys(topic.name for topic in refused):
        rows.append(
            {
                "name": name,
                "topic_id": None,
                "error_code": TOPIC_DENIED,
                "error_message": "Authorization failed.",
                "num_partitions": -1,
                "replication_factor": -1,
                "configs": (),
            }
        )
    return {**answer, "topics": rows}


def _without_config(asking: Asking, row: Fields) -> Fields:
    """Who may make a topic need not be allowed to see its settings."""
    if row["error_code"] or asking.topic(Operation.DESCRIBE_CONFIGS, row["name"], quiet=True):
        return row
    hidden = {"num_partitions": -1, "replication_factor": -1, "configs": (), "topic_config_error_code": TOPIC_DENIED}
    return {**row, **hidden}


async def create_partitions(asking: Asking, request: Any, go: Go) -> Answer:
    allowed, refused = await split(request.topics, lambda topic: asking.topic(Operation.ALTER, topic.name))
    answer = await go(changed(request, topics=tuple(allowed)))
    names = dict.fromkeys(topic.name for topic in refused)
    rows = [{"name": name, "error_code": TOPIC_DENIED, "error_message": None} for name in names]
    return {**answer, "results": [*answer["results"], *rows]}


def of_configs(operation: Operation, results: str, more: Fields) -> Guard:
    """Of settings, each under the kind of what has them. *more*: what a refusal has beside its error."""

    def error(asking: Asking, kind: int, name: str) -> ErrorCode:
        if kind == _TOPIC_CONFIG:
            return ErrorCode.NONE if asking.topic(operation, name) else TOPIC_DENIED
        if kind == _GROUP_CONFIG:
            return ErrorCode.NONE if asking.group(operation, name) else GROUP_DENIED
        return ErrorCode.NONE if asking.cluster(operation) else CLUSTER_DENIED

    async def guard(asking: Asking, request: Any, go: Go) -> Answer:
        errors = [
            error(asking, row.resource_type, row.resource_name) async for row in in_turns(request.resources, A_TURN)
        ]
        judged = list(zip(request.resources, errors, strict=True))
        answer = await go(changed(request, resources=tuple(row for row, code in judged if not code)))
        rows = [
            {
                "error_code": code,
                "error_message": None,
                "resource_type": row.resource_type,
                "resource_name": row.resource_name,
                **more,
            }
            for row, code in judged
            if code
        ]
        return {**answer, results: [*answer[results], *rows]}

    return guard


def _index(part: Any) -> int:
    index: int = part.partition_index
    return index


def _itself(part: Any) -> int:
    index: int = part
    return index


async def epoch_ends(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.cluster(Operation.CLUSTER_ACTION, quiet=True):  # brokers ask so, too
        return await go(request)
    allowed, refused = await split(request.topics, lambda row: asking.topic(Operation.DESCRIBE, row.topic))
    answer = await go(changed(request, topics=tuple(allowed)))
    more = {"error_code": TOPIC_DENIED, "leader_epoch": -1, "end_offset": -1}
    denied = [
        {"topic": row.topic, "partitions": [{"partition": part.partition, **more} for part in row.partitions]}
        for row in refused
    ]
    return {**answer, "topics": [*answer["topics"], *denied]}


def of_partitions(
    operation: Operation, index: Callable[[Any], int], more: Fields, *, rows: str = "partitions"
) -> Guard:
    """Of partitions under their topics, in fields `topics` of request and answer. *rows*: where the request has them.

    *more*: what a refusal has beside index and error.
    """

    async def guard(asking: Asking, request: Any, go: Go) -> Answer:
        allowed, refused = await split(request.topics, lambda topic: asking.topic(operation, topic.name))
        answer = await go(changed(request, topics=tuple(allowed)))
        denied = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index(part), "error_code": TOPIC_DENIED, **more}
                    for part in getattr(topic, rows)
                ],
            }
            for topic in refused
        ]
        return {**answer, "topics": [*answer["topics"], *denied]}

    return guard
