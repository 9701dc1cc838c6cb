"""ListOffsets: the ends of the log, and offsets by time over both tiers (docs/kafka.md, "Reading")."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from tierd.base.errors import RemoteUnavailable, TierdError
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.storage.errors import Repairing
from tierd.storage.timelookup import Scan, Search
from tierd.storage.view import TimestampOffset
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, NEXT_UPLOAD = -1, -2, -3, -4, -5, -6
_FIRST_VERSION = {LATEST: 1, EARLIEST: 1, LARGEST_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, NEXT_UPLOAD: 11}
REMOTE_WAIT_S = 10.0
"""Longest wait for the bucket: a client gives the connection up after 30 s, and others wait behind this answer."""
ROWS_A_TURN = 16
"""Partitions of one request looked at, or asked of the bucket, at a time."""

_Result = TypeVar("_Result")
Row = dict[str, object]
Found = tuple[int, int, int | None]
"""Offset, timestamp, leader epoch."""


class ListOffsets:
    """The handler of the ListOffsets API."""

    def __init__(self, partitions: Partitions, tier: RemoteTier | None, threads: Executor) -> None:
        """*threads* read through segments, which may take long."""
        self._partitions = partitions
        self._tier = tier
        self._threads = threads

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        committed = getattr(request, "isolation_level", 0) == 1
        timeout = getattr(request, "timeout", None)
        asked_s = 0.0 if timeout is None else max(timeout.total_seconds(), 0.0)  # 0: it does not say (below version 10)
        shorter = 0.0 < asked_s < REMOTE_WAIT_S
        deadline = asyncio.get_running_loop().time() + (asked_s if shorter else REMOTE_WAIT_S)
        late = ErrorCode.REQUEST_TIMED_OUT if shorter else ErrorCode.KAFKA_STORAGE_ERROR
        topics = []
        for name, wanted in _once_each(request.topics).items():
            rows: list[Row] = []
            left = iter(wanted.items())
            while some := list(itertools.islice(left, ROWS_A_TURN)):
                found = [
                    self._row(header.version, name, index, asked, committed, deadline, late) for index, asked in some
                ]
                rows += await asyncio.gather(*found)
            topics.append({"name": name, "partitions": rows})
        return {"topics": topics}

    async def _row(
        self,
        version: int,
        topic: str,
        index: int,
        asked: Any | None,
        committed: bool,
        deadline: float,
        late: ErrorCode,
    ) -> Row:
        if asked is None:
            return _failed(index, ErrorCode.INVALID_REQUEST)
        partition = self._partitions.get(topic, index)
        if partition is None:
            return _failed(index, self._partitions.missing(topic, index))
        known = getattr(asked, "current_leader_epoch", -1)
        if known >= 0 and known != partition.log.leader_epoch:
            older = known < partition.log.leader_epoch
            return _failed(index, ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if asked.timestamp < 0 and version < _FIRST_VERSION.get(asked.timestamp, version + 1):
            return _failed(index, ErrorCode.UNSUPPORTED_VERSION)
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._find(partition, asked.timestamp, committed)
        except TimeoutError:
            return _failed(index, late)
        except RemoteUnavailable:
            return _failed(index, ErrorCode.KAFKA_STORAGE_ERROR)
        except (TierdError, OSError) as error:
            return _failed(index, self._partitions.met(partition, error, "offsets not found"))
        offset, timestamp, epoch = found
        return {
            "partition_index": index,
            "error_code": 0,
            "offset": offset,
            "timestamp": timestamp,
            "leader_epoch": -1 if epoch is None else epoch,
        }

    async def _find(self, partition: Partition, timestamp: int, committed: bool) -> Found:
        logged = partition.log
        match timestamp:
            case -1:
                return (logged.last_stable if committed else logged.high_watermark), -1, logged.leader_epoch
            case -2:
                return logged.log_start, -1, logged.epoch_at(logged.log_start)
            case -4:
                return logged.local_start, -1, logged.epoch_at(logged.local_start)
            case -5:
                last = None if partition.copied_to is None else partition.copied_to - 1
                return (-1, -1, None) if last is None else (last, -1, logged.epoch_at(last))
            case -6:
                first = self._next_upload(partition)
                return (-1, -1, None) if first is None else (first, -1, logged.epoch_at(first))
            case -3:
                record = await self._largest(partition)
            case _:
                record = await self._by_time(partition, timestamp, committed)
        if record is None or (committed and record.offset >= logged.last_stable):
            return -1, -1, None
        return record.offset, record.timestamp_ms, record.leader_epoch

    def _next_upload(self, partition: Partition) -> int | None:
        """The first offset that is not in the bucket (KIP-1023); None where none goes there or nobody knows how far."""
        logged = partition.log
        if partition.copied_to is not None:
            return max(partition.copied_to, logged.log_start)
        waits = self._tier is not None and partition.tiered and logged.local_start == logged.log_start
        return logged.log_start if waits else None

    async def _by_time(self, partition: Partition, timestamp: int, committed: bool) -> TimestampOffset | None:
        logged, looked = partition.log, partition.log.log_start
        while self._tier is not None and looked < (stop := logged.local_start):  # which moves while the bucket is asked
            found = await self._tier.by_time(partition.id, timestamp, start=looked, stop=stop)
            if found is not None:
                return found
            looked = stop
        return await self._searched(partition, lambda: logged.by_time(timestamp, committed=committed))

    async def _largest(self, partition: Partition) -> TimestampOffset | None:
        """The earliest record with the largest timestamp; at equal ones the remote record is the earlier."""
        logged = partition.log
        local = await self._searched(partition, logged.largest_timestamp)
        if self._tier is None or logged.log_start >= logged.local_start:
            return local
        remote = await self._tier.largest_timestamp(partition.id, start=logged.log_start, stop=logged.local_start)
        if remote is None or (local is not None and local.timestamp_ms > remote.timestamp_ms):
            return local
        return remote

    async def _searched(self, partition: Partition, search: Callable[[], Search[_Result]]) -> _Result:
        """What a search comes to, begun again whenever it has met damage and that is repaired. Raises as `_run`."""
        while True:
            try:
                return await self._run(search())
            except Repairing:
                await partition.changed()

    async def _run(self, search: Search[_Result]) -> _Result:
        """What a search in the local log comes to. Raises Repairing, CorruptFile, OSError."""
        try:
            scan = next(search)
            while True:
                scan = search.send(await asyncio.wrap_future(self._begin(scan)))
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _begin(self, scan: Scan) -> "Future[tuple[int, int] | None]":
        running = self._threads.submit(scan.run)
        running.add_done_callback(lambda _: scan.close())  # whether it has run or was given up
        return running


def _once_each(topics: Sequence[Any]) -> dict[str, dict[int, Any | None]]:
    """What is asked by topic and partition; None for a partition that is named again, which Kafka refuses."""
    named: dict[str, dict[int, Any | None]] = {}
    for topic in topics:
        rows = named.setdefault(topic.name, {})
        for asked in topic.partitions:
            rows[asked.partition_index] = None if asked.partition_index in rows else asked
    return named


def _failed(index: int, error: ErrorCode) -> Row:
    return {
        "partition_index": index,
        "error_code": error,
        "offset": -1,
        "timestamp": -1,
        "leader_epoch": -1,
    }
