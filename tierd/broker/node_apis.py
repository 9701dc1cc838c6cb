"""ElectLeaders, ListConfigResources, OffsetForLeaderEpoch: short answers of a node that leads everything itself."""

from collections.abc import Iterable
from typing import Any, Final

from tierd.broker.config_apis import BROKER, TOPIC
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.turns import in_turns
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Fields = dict[str, object]

_PREFERRED, _UNCLEAN = 0, 1
_CLIENT_METRICS: Final = 16
_WITH_RESOURCES: Final = frozenset({TOPIC, BROKER, 8, _CLIENT_METRICS, 32})
"""Types that Kafka lists; of loggers (8), client metrics and groups (32) there are none here."""
_NOWHERE: Final = -1
_A_TURN: Final = 200
"""Partitions of one request looked at before others are served."""


class ElectLeaders:
    """There is nothing to elect: the node leads every partition that it has."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        kind = getattr(request, "election_type", _PREFERRED)
        if kind not in (_PREFERRED, _UNCLEAN):
            return {"error_code": ErrorCode.INVALID_REQUEST, "replica_election_results": ()}
        if request.topic_partitions is None:  # all that need it
            return {"error_code": ErrorCode.NONE, "replica_election_results": ()}
        rows = [
            {"topic": asked.topic, "partition_result": self._rows(asked.topic, asked.partitions, kind)}
            for asked in request.topic_partitions
        ]
        return {"error_code": ErrorCode.NONE, "replica_election_results": rows}

    def _rows(self, topic: str, numbers: Iterable[int], kind: int) -> list[Fields]:
        codes = ((number, self._code(topic, number, kind)) for number in numbers)
        return [{"partition_id": number, "error_code": code, "error_message": _WHY[code]} for number, code in codes]

    def _code(self, topic: str, number: int, kind: int) -> ErrorCode:
        if self._partitions.get(topic, number) is not None:
            return ErrorCode.ELECTION_NOT_NEEDED
        if self._partitions.missing(topic, number) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        preferred = kind == _PREFERRED
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


_OFFLINE: Final = "The only copy of the partition is in a data directory that is offline."
_WHY: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "No such topic or partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: _OFFLINE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: _OFFLINE,
}


class ListConfigResources:
    """What DescribeConfigs can be asked about."""

    def __init__(self, partitions: Partitions, node_id: int) -> None:
        self._partitions = partitions
        self._node_id = node_id

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        asked = getattr(request, "resource_types", (_CLIENT_METRICS,))
        wanted = frozenset(asked) or _WITH_RESOURCES
        if not wanted <= _WITH_RESOURCES:
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": ()}
        names = [(topic.name, TOPIC) for topic in self._partitions.topics()] if TOPIC in wanted else []
        if BROKER in wanted:
            names.append((str(self._node_id), BROKER))
        rows = [{"resource_name": name, "resource_type": kind} for name, kind in names]
        return {"error_code": ErrorCode.NONE, "config_resources": rows}


class OffsetForLeaderEpoch:
    """Where leader epochs end: with it a client finds out whether the log was cut since it read."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        rows = [
            {
                "topic": asked.topic,
                "partitions": [self._row(asked.topic, part) async for part in in_turns(asked.partitions, _A_TURN)],
            }
            for asked in request.topics
        ]
        return {"topics": rows}

    def _row(self, topic: str, asked: Any) -> Fields:
        partition = self._partitions.get(topic, asked.partition)
        if partition is None:
            return _epoch_row(asked.partition, self._partitions.missing(topic, asked.partition))
        known, latest = asked.current_leader_epoch, partition.log.leader_epoch
        if known >= 0 and known != latest:
            code = ErrorCode.FENCED_LEADER_EPOCH if known < latest else ErrorCode.UNKNOWN_LEADER_EPOCH
            return _epoch_row(asked.partition, code)
        return _epoch_row(asked.partition, ErrorCode.NONE, *_end(partition, asked.leader_epoch))


def _end(partition: Partition, epoch: int) -> tuple[int, int]:
    """The largest epoch up to *epoch* and where it ends; of one before the first that is known, where that begins."""
    log = partition.log
    if not 0 <= epoch <= log.leader_epoch:
        return _NOWHERE, _NOWHERE
    found = log.epoch_end(epoch)
    return found or (epoch, log.epochs[0].start_offset if log.epochs else log.log_end)


def _epoch_row(number: int, code: ErrorCode, epoch: int = _NOWHERE, end: int = _NOWHERE) -> Fields:
    return {"partition": number, "error_code": code, "leader_epoch": epoch, "end_offset": end}
