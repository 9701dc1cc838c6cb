"""Metadata: who leads what, and topics made on first mention."""

import logging
from typing import Any
from uuid import UUID

from tierd.base.errors import DiskFull
from tierd.base.ids import Uuid
from tierd.broker.entrances import Advertised
from tierd.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tierd.broker.partitions import Partitions, Topic
from tierd.broker.topics import TopicRefused, Topics
from tierd.broker.turns import in_turns
from tierd.config.resolve import is_internal
from tierd.config.topic_names import problem
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

_MOST_CREATED = 100
"""Topics that one request may make; who asks again for the others gets them then."""
_TOPICS_A_TURN = 50
"""Topics shown before others get their turn."""


class Metadata:
    """The handler of the Metadata API."""

    def __init__(
        self,
        topics: Topics,
        partitions: Partitions,
        *,
        node_id: int,
        cluster_id: str,
        advertised: Advertised,
        auto_create: bool,
        default_partitions: int,
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._advertised = advertised
        self._auto_create = auto_create
        self._default_partitions = default_partitions

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        host, port = self._advertised(header.session.listener)
        return {
            "brokers": [{"node_id": self._node_id, "host": host, "port": port, "rack": None}],
            "cluster_id": self._cluster_id,
            "controller_id": self._node_id,
            "topics": await self._with_operations(header, request),
            "cluster_authorized_operations": (
                CLUSTER_OPERATIONS if getattr(request, "include_cluster_authorized_operations", False) else NOT_ASKED
            ),
        }

    async def _with_operations(self, header: RequestHeader, request: Any) -> list[dict[str, object]]:
        rows = await self._wanted(header, request)
        if getattr(request, "include_topic_authorized_operations", False):
            known = {"topic_authorized_operations": TOPIC_OPERATIONS}
            return [row if row["name"] is None else {**row, **known} for row in rows]
        return rows

    async def _wanted(self, header: RequestHeader, request: Any) -> list[dict[str, object]]:
        if request.topics is None or (header.version == 0 and not request.topics):
            return await self._all()
        may_create = self._auto_create and getattr(request, "allow_auto_topic_creation", True)
        left = _MOST_CREATED if may_create else 0
        rows = []
        async for asked in in_turns(dict.fromkeys(request.topics), _TOPICS_A_TURN):
            topic_id = getattr(asked, "topic_id", None)
            if topic_id is not None and asked.name is None:
                rows.append(self._by_id(topic_id))
            else:
                name = asked.name or ""
                known = self._partitions.topic(name) is not None
                rows.append(await self._by_name(name, left > 0))
                left -= not known
        return rows

    async def _all(self) -> list[dict[str, object]]:
        rows = []
        async for name in in_turns(sorted(topic.name for topic in self._partitions.topics()), _TOPICS_A_TURN):
            topic = self._partitions.topic(name)
            if topic is not None:
                rows.append(self.shown(topic))
        return rows

    def _by_id(self, topic_id: UUID) -> dict[str, object]:
        topic = self._partitions.topic_by_id(Uuid(topic_id.bytes))
        return _unknown(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID) if topic is None else self.shown(topic)

    async def _by_name(self, name: str, may_create: bool) -> dict[str, object]:
        topic = self._partitions.topic(name)
        if topic is not None:
            return self.shown(topic)
        if problem(name) is not None:
            return _unknown(name, None, ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not may_create or is_internal(name):
            return _unknown(name, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            return self.shown(await self._topics.ensure(name, self._default_partitions))
        except TopicRefused as error:
            return _unknown(name, None, error.code)
        except (DiskFull, OSError) as error:
            log.error("topic not created", extra={"topic": name, "why": str(error)})
            return _unknown(name, None, ErrorCode.KAFKA_STORAGE_ERROR)

    def shown(self, topic: Topic) -> dict[str, object]:
        """A topic with all its partitions."""
        return {**self.head(topic), "partitions": [self.partition(topic, n) for n in range(topic.row.partitions)]}

    def head(self, topic: Topic) -> dict[str, object]:
        """A topic without its partitions."""
        return {
            "error_code": 0,
            "name": topic.name,
            "topic_id": UUID(bytes=topic.id.raw),
            "is_internal": topic.internal,
        }

    def partition(self, topic: Topic, number: int) -> dict[str, object]:
        leader = self._partitions.leader_of(topic, number)
        if leader is None:
            away = topic.offline.get(number)
            replicas = () if away is None else (self._node_id,)
            return {
                "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
                "partition_index": number,
                "leader_id": -1,
                "leader_epoch": -1 if away is None or away.log is None else away.log.leader_epoch,
                "replica_nodes": replicas,
                "isr_nodes": replicas,
                "offline_replicas": replicas,
            }
        return {
            "error_code": 0,
            "partition_index": number,
            "leader_id": leader,
            "leader_epoch": topic.partitions[number].log.leader_epoch,
            "replica_nodes": (leader,),
            "isr_nodes": (leader,),
            "offline_replicas": (),
        }


def _unknown(name: str | None, topic_id: UUID | None, code: ErrorCode) -> dict[str, object]:
    return {"error_code": code, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": ()}
