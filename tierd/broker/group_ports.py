"""What groups need of the broker (`groups.ports`): `__consumer_offsets` as a log, topic ids, who coordinates."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, TierdError
from tierd.base.ids import Uuid
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.topics import Topics
from tierd.storage.header import parse_header
from tierd.storage.view import LogSlice

_PIECE_BYTES = 1024 * 1024


class OffsetsTopic:
    """`__consumer_offsets`; made on first use, never tiered."""

    def __init__(
        self,
        topics: Topics,
        partitions: Partitions,
        clock: Clock,
        readers: Executor,
        *,
        appended: Callable[[Partition], None],
        default_partitions: int,
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._readers = readers
        self._appended = appended
        self._default_partitions = default_partitions

    def count(self) -> int | None:
        topic = self._partitions.topic(OFFSETS_TOPIC)
        return None if topic is None else topic.row.partitions

    async def ensure(self) -> int:
        return (await self._topics.ensure(OFFSETS_TOPIC, self._default_partitions)).row.partitions

    def append(self, partition: int, batch: bytes) -> None:
        target = self._get(partition)
        target.log.append(memoryview(bytearray(batch)), now_ms=self._clock.now_ms(), internal=True)
        self._appended(target)

    async def replay(self, partition: int) -> AsyncIterator[bytes]:
        target = self._get(partition)
        offset = target.log.log_start
        while offset < target.log.log_end:
            found = target.log.read(offset, _PIECE_BYTES, committed=False)
            try:
                piece = await asyncio.get_running_loop().run_in_executor(self._readers, _bytes_of, found)
            finally:
                found.release()
            if not piece:
                return
            yield piece
            offset = _next_offset(piece, str(target))

    def _get(self, partition: int) -> Partition:
        target = self._partitions.get(OFFSETS_TOPIC, partition)
        if target is None:
            raise NotHere(f"{OFFSETS_TOPIC}-{partition} is not on this node")
        return target


class NotHere(TierdError):
    """Another node, or nobody, has that partition."""


class TopicIds:
    """Looks up what offsets are committed for."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def topic_id(self, topic: str, partition: int) -> Uuid | None:
        found = self._partitions.get(topic, partition)
        return None if found is None else found.id.topic_id


class OneNode:
    """Coordinator of every group and transactional id (which InitProducerId then refuses at once)."""

    def __init__(self, node_id: int, advertised: Callable[[], tuple[str, int]]) -> None:
        self._node_id = node_id
        self._advertised = advertised

    def coordinator(self, key_type: int, key: str) -> tuple[int, str, int] | None:
        return (self._node_id, *self._advertised())


def _bytes_of(found: LogSlice) -> bytes:
    return b"".join(os.pread(span.fd, span.length, span.position) for span in found.spans)


def _next_offset(piece: bytes, where: str) -> int:
    """The offset after the last batch of *piece*."""
    position = offset = 0
    view = memoryview(piece)
    while position < len(piece):
        header = parse_header(view, position, where)
        offset = header.next_offset
        position += header.size_bytes
    if position != len(piece):
        raise CorruptFile(where, position, "the last batch is cut")
    return offset
