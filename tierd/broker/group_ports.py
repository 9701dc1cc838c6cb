"""What groups need of the broker (`groups.ports`): `__consumer_offsets` as a log, topic ids, who coordinates."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, TierdError
from tierd.base.ids import Uuid
from tierd.broker.commits import Commits
from tierd.broker.connection import CloseQuietly
from tierd.broker.groups.handlers import Handler
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.topics import Topics
from tierd.config.topic import TopicSettings
from tierd.storage.errors import StorageFailed
from tierd.storage.header import parse_header
from tierd.storage.view import LogSlice
from tierd.wire.api import ApiKey
from tierd.wire.header import RequestHeader

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
        commits: Commits,
        default_partitions: int,
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._readers = readers
        self._appended = appended
        self._commits = commits
        self._unsettled: set[asyncio.Future[None]] = set()
        self._default_partitions = default_partitions

    @property
    def max_batch_bytes(self) -> int:
        topic = self._partitions.topic(OFFSETS_TOPIC)
        return (TopicSettings() if topic is None else topic.settings).max_message_bytes

    def count(self) -> int | None:
        topic = self._partitions.topic(OFFSETS_TOPIC)
        return None if topic is None else topic.row.partitions

    async def ensure(self) -> int:
        return (await self._topics.ensure(OFFSETS_TOPIC, self._default_partitions)).row.partitions

    def append(self, partition: int, batch: bytes) -> None:
        target = self._get(partition)
        target.log.append(memoryview(bytearray(batch)), now_ms=self._clock.now_ms(), internal=True)
        self._appended(target)
        if target.log.commits and target.log.commit_due:
            committed = self._commits.wait(target)
            self._unsettled.add(committed)
            committed.add_done_callback(self._unsettled.discard)

    async def settled(self) -> None:
        """Return when all that was appended is as durable as the topic's settings ask for. Raises StorageFailed."""
        if self._unsettled:
            await asyncio.gather(*self._unsettled)

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


def once_settled(table: Mapping[ApiKey, Handler], topic: OffsetsTopic) -> dict[ApiKey, Handler]:
    """The same handlers; what they answer waits for what they have appended. A failing disk closes the connection."""

    def settling(handler: Handler) -> Handler:
        async def answer(header: RequestHeader, request: Any) -> Mapping[str, object]:
            fields = await handler(header, request)
            try:
                await topic.settled()
            except StorageFailed as error:
                raise CloseQuietly from error
            return fields

        return answer

    return {key: settling(handler) for key, handler in table.items()}


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
