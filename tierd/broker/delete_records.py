"""DeleteRecords: log start moves, durable here at once, and answered when the bucket's head has it, too.

The head is the only place in the bucket that knows of it: without it a rebuilt host would show the records again.
"""

import asyncio
import logging
from typing import Any

from tierd.base.errors import DiskFull, RemoteUnavailable
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

_TO_THE_END = -1
_AGAIN_S = 5.0


class DeleteRecords:
    """The handler of the DeleteRecords API. `close` ends what still waits for the bucket."""

    def __init__(self, partitions: Partitions, tier: RemoteTier | None) -> None:
        self._partitions = partitions
        self._tier = tier
        self._publishing: dict[Partition, asyncio.Task[None]] = {}

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        rows: list[tuple[str, int, Partition | None, ErrorCode]] = []
        for topic in request.topics:
            for asked in topic.partitions:
                partition = self._partitions.get(topic.name, asked.partition_index)
                rows.append((topic.name, asked.partition_index, partition, self._move(partition, asked.offset)))
                await asyncio.sleep(0)  # others' turn: each waits for the disk
        moved = [partition for *_, partition, code in rows if partition is not None and code is ErrorCode.NONE]
        await self._publish(moved, request.timeout.total_seconds())
        answer: dict[str, list[dict[str, object]]] = {topic.name: [] for topic in request.topics}
        for name, index, partition, code in rows:
            low = partition.log.log_start if partition is not None and code is ErrorCode.NONE else -1
            answer[name].append({"partition_index": index, "low_watermark": low, "error_code": code})
        return {"topics": [{"name": name, "partitions": found} for name, found in answer.items()]}

    async def close(self) -> None:
        for task in self._publishing.values():
            task.cancel()
        await asyncio.gather(*self._publishing.values(), return_exceptions=True)

    def _move(self, partition: Partition | None, offset: int) -> ErrorCode:
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not partition.log.settings.deletes:
            return ErrorCode.POLICY_VIOLATION
        end = partition.log.high_watermark
        target = end if offset == _TO_THE_END else offset
        if not 0 <= target <= end:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        try:
            partition.log.move_log_start(target)
        except (DiskFull, OSError) as error:
            log.error("log start not moved", extra={"partition": str(partition), "why": str(error)})
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition.wake()
        partition.tell(self._tier)
        return ErrorCode.NONE

    async def _publish(self, moved: list[Partition], timeout_s: float) -> None:
        """Wait for the bucket's heads, not longer than the client does; what is late goes on and shows in status."""
        if self._tier is None:
            return
        waiting = [self._task(partition, self._tier) for partition in moved if partition.tiered]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)

    def _task(self, partition: Partition, tier: RemoteTier) -> "asyncio.Task[None]":
        partition.unpublished_start = partition.log.log_start
        task = self._publishing.get(partition)
        if task is None:
            task = self._publishing[partition] = asyncio.ensure_future(self._until_published(partition, tier))
        return task

    async def _until_published(self, partition: Partition, tier: RemoteTier) -> None:
        try:
            while partition.unpublished_start is not None and not partition.deleted:
                start = partition.unpublished_start
                try:
                    await tier.publish_head(partition.id)
                except RemoteUnavailable as error:
                    log.info("log start not in the bucket yet", extra={"partition": str(partition), "why": str(error)})
                    await asyncio.sleep(_AGAIN_S)
                    continue
                if partition.unpublished_start == start:
                    partition.unpublished_start = None
        finally:
            self._publishing.pop(partition, None)
