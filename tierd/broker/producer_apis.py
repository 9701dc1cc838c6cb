"""WriteTxnMarkers and DescribeProducers: how a tool looks at producers and ends a transaction that hangs."""

from collections.abc import Iterable
from typing import Any

from tierd.base.ids import TopicPartition
from tierd.broker.markers import Markers
from tierd.broker.partitions import Partitions
from tierd.broker.transactions.ports import Marker
from tierd.broker.turns import in_turns
from tierd.config.topic_names import problem
from tierd.storage.snapshot import ProducerEntry
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Fields = dict[str, object]

_A_TURN = 10
"""Partitions looked at before others are served: each may have very many producers, and is shown once."""
_RAISES_EPOCHS = 2
"""From this transaction version on the end of each transaction raises the producer's epoch."""


class WriteTxnMarkers:
    """The handler of the WriteTxnMarkers API."""

    def __init__(self, markers: Markers) -> None:
        self._markers = markers

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        return {"markers": [await self._write(marker) for marker in request.markers]}

    async def _write(self, marker: Any) -> Fields:
        places = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        end = Marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            raised=getattr(marker, "transaction_version", 0) >= _RAISES_EPOCHS,
        )
        done = await self._markers.write(end, places)
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": done[TopicPartition(topic.name, index)]}
                    for index in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ]
        return {"producer_id": marker.producer_id, "topics": topics}


class DescribeProducers:
    """The handler of the DescribeProducers API."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        topics = []
        for topic in request.topics:
            each = in_turns(dict.fromkeys(topic.partition_indexes), _A_TURN)
            topics.append({"name": topic.name, "partitions": [self._describe(topic.name, n) async for n in each]})
        return {"topics": topics}

    def _describe(self, topic: str, index: int) -> Fields:
        if (why := problem(topic)) is not None:
            return _row(index, ErrorCode.INVALID_TOPIC_EXCEPTION, why)
        partition = self._partitions.get(topic, index)
        if partition is None:
            return _row(index, self._partitions.missing(topic, index))
        return _row(index, ErrorCode.NONE, None, map(_shown, partition.log.producers))


def _row(index: int, error: ErrorCode, message: str | None = None, producers: Iterable[Fields] = ()) -> Fields:
    return {
        "partition_index": index,
        "error_code": error,
        "error_message": message,
        "active_producers": list(producers),
    }


def _shown(producer: ProducerEntry) -> Fields:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "last_sequence": _or_none(producer.last_sequence),
        "last_timestamp": producer.timestamp_ms,
        "coordinator_epoch": _or_none(producer.coordinator_epoch),
        "current_txn_start_offset": _or_none(producer.txn_first_offset),
    }


def _or_none(value: int | None) -> int:
    return -1 if value is None else value
