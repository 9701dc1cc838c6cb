"""CreateTopics and DeleteTopics on the wire."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from tierd.base.errors import DiskFull
from tierd.base.ids import Uuid
from tierd.broker.groups.coordinator import NotReady
from tierd.broker.partitions import Partitions, Topic
from tierd.broker.topics import TopicRefused, Topics, replicas_problem
from tierd.config.resolve import Source
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

_CONFIG_SOURCE = {Source.TOPIC: 1, Source.BUILT_IN: 5}
_STATIC = 4


class CreateTopics:
    """The handler of the CreateTopics API."""

    def __init__(self, topics: Topics, partitions: Partitions, *, node_id: int, default_partitions: int) -> None:
        self._topics = topics
        self._partitions = partitions
        self._node_id = node_id
        self._default_partitions = default_partitions

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        times = Counter(topic.name for topic in request.topics)
        rows = []
        for asked in {topic.name: topic for topic in request.topics}.values():
            name = asked.name
            await asyncio.sleep(0)  # Others' turn: each takes its time.
            try:
                if times[name] > 1:
                    raise TopicRefused(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {name}")
                rows.append(await self._one(asked, request.validate_only))
            except TopicRefused as error:
                rows.append(_failed(name, error.code, error.message))
            except (DiskFull, OSError) as error:
                log.error("topic not created", extra={"topic": name, "why": str(error)})
                rows.append(_failed(name, ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        return {"topics": rows}

    async def _one(self, asked: Any, validate_only: bool) -> dict[str, object]:
        partitions = self._count(asked)
        config = _config(asked)
        if validate_only:
            checked = self._topics.check(asked.name, partitions, config)
            return self._done(asked.name, None, partitions, checked)
        topic = await self._topics.create(asked.name, partitions, config)
        return self._done(topic.name, topic.id, partitions, topic.row.config)

    def _count(self, asked: Any) -> int:
        assigned = {row.partition_index: row.broker_ids for row in asked.assignments}
        if assigned and (asked.num_partitions != -1 or asked.replication_factor != -1):
            raise TopicRefused(
                ErrorCode.INVALID_REQUEST,
                "With a manual assignment, partitions and replication factor must both be -1.",
            )
        if sorted(assigned) != list(range(len(assigned))) or len(assigned) != len(asked.assignments):
            raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0 without gaps.")
        if (why := replicas_problem(asked.replication_factor, list(assigned.values()), self._node_id)) is not None:
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if assigned else ErrorCode.INVALID_REPLICATION_FACTOR
            raise TopicRefused(code, why)
        if assigned:
            return len(assigned)
        return self._default_partitions if asked.num_partitions == -1 else int(asked.num_partitions)

    def _done(self, name: str, topic_id: Uuid | None, partitions: int, config: Mapping[str, str]) -> dict[str, object]:
        shown = [
            {
                "name": setting.name,
                "value": setting.text,
                "read_only": False,
                "config_source": _CONFIG_SOURCE.get(setting.source, _STATIC),
                "is_sensitive": False,
            }
            for setting in self._partitions.defaults.in_force(name, config)
        ]
        return {
            "name": name,
            "topic_id": None if topic_id is None else UUID(bytes=topic_id.raw),
            "error_code": 0,
            "error_message": None,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": shown,
        }


_BOTH = "You may not specify both topic name and topic id."


class DeleteTopics:
    """The handler of the DeleteTopics API."""

    def __init__(
        self, topics: Topics, partitions: Partitions, *, deleted: Callable[[str, Uuid], Awaitable[object]]
    ) -> None:
        """*deleted*: told of every topic that went (groups forget their offsets in it)."""
        self._topics = topics
        self._partitions = partitions
        self._tell = deleted

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        rows = []
        for name, topic_id in _wanted(request):
            if (name is None) is (topic_id is None):  # rights are asked for by one of them, the other would be deleted
                why = "Neither topic name nor id were specified." if name is None else _BOTH
                rows.append(_deleted(name, topic_id, ErrorCode.INVALID_REQUEST, why))
                continue
            topic = self._find(name, topic_id)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else ErrorCode.UNKNOWN_TOPIC_ID
                rows.append(_deleted(name, topic_id, code, "This server does not host this topic."))
                continue
            try:
                await self._topics.delete(topic)
            except TopicRefused as error:
                rows.append(_deleted(topic.name, UUID(bytes=topic.id.raw), error.code, error.message))
            except (DiskFull, OSError) as error:
                log.error("topic not deleted", extra={"topic": topic.name, "why": str(error)})
                rows.append(_deleted(topic.name, topic_id, ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            else:
                rows.append(_deleted(topic.name, UUID(bytes=topic.id.raw), ErrorCode.NONE, None))
                await self._tell_groups(topic)
        return {"responses": rows}

    async def _tell_groups(self, topic: Topic) -> None:
        try:
            await self._tell(topic.name, topic.id)
        except NotReady as error:
            # What stays is the offsets of a topic that is gone; the next topic of that name has another id.
            log.warning("offsets not forgotten", extra={"topic": topic.name, "why": str(error)})

    def _find(self, name: str | None, topic_id: UUID | None) -> Topic | None:
        if topic_id is not None:
            return self._partitions.topic_by_id(Uuid(topic_id.bytes))
        return None if name is None else self._partitions.topic(name)


def _wanted(request: Any) -> list[tuple[str | None, UUID | None]]:
    """(name, None) or (None, id); each once."""
    if hasattr(request, "topics"):
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    return list(dict.fromkeys(wanted))


def _config(asked: Any) -> dict[str, str]:
    for row in asked.configs:
        if row.value is None:
            raise TopicRefused(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {row.name}")
    return {row.name: row.value for row in asked.configs}


def _failed(name: str, code: ErrorCode, message: str) -> dict[str, object]:
    return {
        "name": name,
        "topic_id": None,
        "error_code": code,
        "error_message": message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": (),
    }


def _deleted(name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None) -> dict[str, object]:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
