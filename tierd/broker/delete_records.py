"""DeleteRecords: log start moves, durable here at once, and answered when the bucket's head has it, too.

The head is the only place in the bucket that knows of it: without it a rebuilt host would show the records again.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from tierd.base.errors import TierdError
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
        rows: list[tuple[str, int, Partition | ErrorCode]] = []
        targets: dict[Partition, int] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                index = asked.partition_index
                partition, target = self._look(topic.name, index, asked.offset)
                rows.append((topic.name, index, partition))
                if isinstance(partition, Partition):
                    targets[partition] = max(target, targets.get(partition, 0))
        failed = await self._move(targets)
        moved = [partition for partition in targets if partition not in failed]
        await self._publish(moved, request.timeout.total_seconds())
        answer: dict[str, list[dict[str, object]]] = {topic.name: [] for topic in request.topics}
        for name, index, partition in rows:
            code = partition if isinstance(partition, ErrorCode) else failed.get(partition, ErrorCode.NONE)
            low = partition.log.log_start if isinstance(partition, Partition) and code is ErrorCode.NONE else -1
            answer[name].append({"partition_index": index, "low_watermark": low, "error_code": code})
        return {"topics": [{"name": name, "partitions": found} for name, found in answer.items()]}

    async def close(self) -> None:
        for task in self._publishing.values():
            task.cancel()
        await asyncio.gather(*self._publishing.values(), return_exceptions=True)

    def _look(self, topic: str, index: int, offset: int) -> tuple[Partition | ErrorCode, int]:
        """The partition and where its log is to start, or what speaks against it."""
        partition = self._partitions.get(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
        if partition.log.read_only is not None or not partition.log.settings.deletes:
            return ErrorCode.POLICY_VIOLATION, 0
        end = partition.log.high_watermark
        target = end if offset == _TO_THE_END else offset
        if not 0 <= target <= end:
            return ErrorCode.OFFSET_OUT_OF_RANGE, 0
        return partition, target

    async def _move(self, targets: Mapping[Partition, int]) -> dict[Partition, ErrorCode]:
        """Move log starts, durable when this returns; what has failed."""
        found = {}
        moving = {partition: target for partition, target in targets.items() if target > partition.log.log_start}
        failed = await self._partitions.starts.move(moving) if moving else {}
        for partition in targets:
            if partition.deleted:
                found[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.offline or partition in failed:
                why = str(failed.get(partition, "its data directory is offline"))
                log.error("log start not moved", extra={"partition": str(partition), "why": why})
                found[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                partition.tell(self._tier)
        return found

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
                except TierdError as error:
                    log.info("log start not in the bucket yet", extra={"partition": str(partition), "why": str(error)})
                    await asyncio.sleep(_AGAIN_S)
                    continue
                if partition.unpublished_start == start:
                    partition.unpublished_start = None
        finally:
            self._publishing.pop(partition, None)
