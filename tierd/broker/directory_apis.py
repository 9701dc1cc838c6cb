"""DescribeLogDirs and AlterReplicaLogDirs, and what kafka-reassign-partitions asks beside them of a single node."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tierd.base.errors import DiskFull
from tierd.broker.homes import Home
from tierd.broker.moves import Moves
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.turns import in_turns
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Row = dict[str, object]
_A_TURN = 16
"""Moves begun before the loop serves others again."""


class DescribeLogDirs:
    """Which directory has what. Sizes are of the local disk, or *with_remote* of both tiers added up."""

    def __init__(self, partitions: Partitions, moves: Moves, *, with_remote: bool) -> None:
        self._partitions = partitions
        self._moves = moves
        self._with_remote = with_remote

    async def __call__(self, header: RequestHeader, request: Any) -> Row:
        wanted = None if request.topics is None else {row.topic: set(row.partitions) for row in request.topics}
        rows: dict[Home, dict[str, list[Row]]] = {home: {} for home in self._partitions.homes}
        for partition in (*self._partitions, *self._partitions.read_only):
            topic, number = partition.name.topic, partition.name.partition
            if wanted is None or number in wanted.get(topic, ()):
                home = self._partitions.homes.of(partition.log)
                rows[home].setdefault(topic, []).append(_row(partition, self._size_bytes(partition), 0, future=False))
                self._add_future(rows, partition)
        return {"error_code": 0, "results": [_directory(home, topics) for home, topics in rows.items()]}

    def _size_bytes(self, partition: Partition) -> int:
        remote = partition.remote if self._with_remote else None
        return partition.log.size_bytes + (0 if remote is None else remote.size_bytes)

    def _add_future(self, rows: dict[Home, dict[str, list[Row]]], partition: Partition) -> None:
        move = self._moves.of(partition.id)
        if move is not None:
            logged = partition.log
            left = 1 - move.copied_bytes / logged.size_bytes if logged.size_bytes else 0.0
            lag = round(left * (logged.log_end - logged.local_start))
            row = _row(partition, move.copied_bytes, max(lag, 0), future=True)
            rows[move.target].setdefault(partition.name.topic, []).append(row)


def _row(partition: Partition, size_bytes: int, lag: int, *, future: bool) -> Row:
    return {
        "partition_index": partition.name.partition,
        "partition_size": size_bytes,
        "offset_lag": lag,
        "is_future_key": future,
    }


def _directory(home: Home, topics: Mapping[str, list[Row]]) -> Row:
    space = home.space()
    if space is None:
        return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": str(home.path), "topics": (), **_space(-1, -1)}
    shown = [{"name": topic, "partitions": partitions} for topic, partitions in sorted(topics.items())]
    return {"error_code": 0, "log_dir": str(home.path), "topics": shown, **_space(*space)}


def _space(total_bytes: int, usable_bytes: int) -> Row:
    return {"total_bytes": total_bytes, "usable_bytes": usable_bytes, "is_cordoned": False}


class AlterReplicaLogDirs:
    """Begins moves; answered before they are done."""

    def __init__(self, partitions: Partitions, moves: Moves) -> None:
        self._partitions = partitions
        self._moves = moves

    async def __call__(self, header: RequestHeader, request: Any) -> Row:
        results: dict[str, list[Row]] = {}
        asked = [(wish.path, topic.name, n) for wish in request.dirs for topic in wish.topics for n in topic.partitions]
        async for path, topic, number in in_turns(asked, _A_TURN):
            row = {"partition_index": number, "error_code": await self._begin(path, topic, number)}
            results.setdefault(topic, []).append(row)
        return {"results": [{"topic_name": topic, "partitions": rows} for topic, rows in results.items()]}

    async def _begin(self, path: str, topic: str, number: int) -> ErrorCode:
        target = self._partitions.homes.at(Path(path))
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        partition = self._partitions.get(topic, number)
        if partition is None:
            return self._partitions.missing(topic, number)
        if partition.log.read_only is not None:
            return ErrorCode.POLICY_VIOLATION
        if not target.online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            await self._moves.begin(partition, target)
        except DiskFull:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE


class AlterPartitionReassignments:
    """There is one node: a partition that is to be there stays, everything else is refused."""

    def __init__(self, partitions: Partitions, node_id: int) -> None:
        self._partitions = partitions
        self._node_id = node_id

    async def __call__(self, header: RequestHeader, request: Any) -> Row:
        topics = [{"name": topic.name, "partitions": list(self._rows(topic))} for topic in request.topics]
        return {
            "error_code": 0,
            "error_message": None,
            "allow_replication_factor_change": getattr(request, "allow_replication_factor_change", True),
            "responses": topics,
        }

    def _rows(self, asked: Any) -> Iterator[Row]:
        topic = self._partitions.topic(asked.name)
        for row in asked.partitions:
            code, why = ErrorCode.NONE, None
            if topic is None or not 0 <= row.partition_index < topic.row.partitions:
                code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic or partition does not exist."
            elif row.replicas is None:
                code, why = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
            elif list(row.replicas) != [self._node_id]:
                code, why = ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Replicas can only be on node {self._node_id}."
            yield {"partition_index": row.partition_index, "error_code": code, "error_message": why}


class ListPartitionReassignments:
    """Partitions never go to another node."""

    async def __call__(self, header: RequestHeader, request: Any) -> Row:
        return {"error_code": 0, "error_message": None, "topics": ()}
