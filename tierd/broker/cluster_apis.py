"""DescribeCluster and DescribeTopicPartitions: what today's clients ask instead of Metadata. DescribeQuorum beside."""

from collections.abc import Collection
from typing import Any, Final

from tierd.broker.entrances import Advertised
from tierd.broker.metadata import Metadata
from tierd.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tierd.broker.partitions import Partitions
from tierd.broker.turns import in_turns
from tierd.config.topic_names import problem
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Fields = dict[str, object]

_BROKERS, _CONTROLLERS = 1, 2
_METADATA: Final = "__cluster_metadata"
_A_TURN: Final = 200
"""Topics of one request looked at before others are served."""
_MOST_PARTITIONS: Final = 2_000
"""In one answer; more come after its cursor. Kafka: max.request.partition.size.limit."""


class DescribeCluster:
    """One broker, which is the controller too."""

    def __init__(self, *, node_id: int, cluster_id: str, advertised: Advertised) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._advertised = advertised

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        asked = getattr(request, "endpoint_type", _BROKERS)
        if asked != _BROKERS:
            known = asked == _CONTROLLERS
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            return {"error_code": code, "error_message": f"Brokers answer here, not endpoints of type {asked}."}
        host, port = self._advertised(header.session.listener)
        broker = {"broker_id": self._node_id, "host": host, "port": port, "rack": None, "is_fenced": False}
        shown = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        return {
            "error_code": ErrorCode.NONE,
            "endpoint_type": _BROKERS,
            "cluster_id": self._cluster_id,
            "controller_id": self._node_id,
            "brokers": [broker],
            "cluster_authorized_operations": shown,
        }


class DescribeQuorum:
    """A quorum of one node, as a Kafka that is broker and controller in one has it; but there is no metadata log, so
    that its offsets are 0."""

    def __init__(self, *, node_id: int, advertised: Advertised) -> None:
        self._node_id = node_id
        self._advertised = advertised

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        asked = [(row.topic_name, [part.partition_index for part in row.partitions]) for row in request.topics[:2]]
        if asked != [(_METADATA, [0])]:
            rows = [
                {
                    "topic_name": row.topic_name,
                    "partitions": [_no_quorum(part.partition_index) for part in row.partitions],
                }
                async for row in in_turns(request.topics, _A_TURN)
            ]
            return {"error_code": ErrorCode.NONE, "error_message": "", "topics": rows}
        host, port = self._advertised(header.session.listener)
        listener = {"name": header.session.listener, "host": host, "port": port}
        return {
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "topics": [{"topic_name": _METADATA, "partitions": [self._quorum()]}],
            "nodes": [{"node_id": self._node_id, "listeners": [listener]}],
        }

    def _quorum(self) -> Fields:
        voter = {"replica_id": self._node_id, "log_end_offset": 0}
        return {
            "partition_index": 0,
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "leader_id": self._node_id,
            "leader_epoch": 1,
            "high_watermark": 0,
            "current_voters": [voter],
            "observers": (),
        }


class DescribeTopicPartitions:
    """All topics, or those asked for, by name; as many partitions as one answer takes, and where to go on."""

    def __init__(self, partitions: Partitions, metadata: Metadata) -> None:
        self._partitions = partitions
        self._metadata = metadata

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        asked = {row.name for row in request.topics}
        names = asked or {topic.name for topic in self._partitions.topics()}
        first = 0
        if request.cursor is not None:
            begin, first = request.cursor.topic_name, request.cursor.partition_index
            if first < 0 or (asked and begin not in asked):
                return {"topics": [_refused(name, ErrorCode.INVALID_REQUEST) for name in sorted(asked)]}
            names = {name for name in names if name >= begin}
            first = first if begin in names else 0
        limit = max(min(request.response_partition_limit, _MOST_PARTITIONS), 1)
        return self._page(sorted(names), first, limit)

    def _page(self, names: Collection[str], first: int, limit: int) -> Fields:
        rows: list[Fields] = []
        for name in names:
            if limit == 0:
                return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": 0}}
            topic = self._partitions.topic(name)
            if topic is None:
                unknown = problem(name) is None
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.INVALID_TOPIC_EXCEPTION
                rows.append(_refused(name, code))
                continue
            stop = min(first + limit, topic.row.partitions)
            shown = [{**self._metadata.partition(topic, number), **_NO_ELR} for number in range(first, stop)]
            rows.append(
                {
                    **self._metadata.head(topic),
                    "partitions": shown,
                    "topic_authorized_operations": TOPIC_OPERATIONS,
                }
            )
            if stop < topic.row.partitions:
                return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": stop}}
            limit -= len(shown)
            first = 0
        return {"topics": rows, "next_cursor": None}


def _no_quorum(partition: int) -> Fields:
    return {"partition_index": partition, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "leader_id": 0}


_NO_ELR: Final[Fields] = {"eligible_leader_replicas": (), "last_known_elr": ()}


def _refused(name: str, code: ErrorCode) -> Fields:
    return {"error_code": code, "name": name, "topic_id": None, "partitions": ()}
