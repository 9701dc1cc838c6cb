"""A topic that only the broker writes to, as a log of small batches: what groups and transactions are kept in."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Executor

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, TierdError
from tierd.broker.commits import Commits
from tierd.broker.damage import DamagedRecords
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.topics import Topics
from tierd.config.topic import TopicSettings
from tierd.storage.errors import Repairing
from tierd.storage.header import parse_header
from tierd.storage.view import LogSlice

_PIECE_BYTES = 1024 * 1024


class NotHere(TierdError):
    """Another node, or nobody, has that partition."""


class InternalTopic:
    """One of the broker's own topics (`__consumer_offsets`, `__transaction_state`); made on first use, never tiered."""

    def __init__(
        self,
        name: str,
        topics: Topics,
        partitions: Partitions,
        clock: Clock,
        readers: Executor,
        *,
        appended: Callable[[Partition], None],
        commits: Commits,
        default_partitions: int,
    ) -> None:
        self.name = name
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
        topic = self._partitions.topic(self.name)
        return (TopicSettings() if topic is None else topic.settings).max_message_bytes

    def count(self) -> int | None:
        topic = self._partitions.topic(self.name)
        return None if topic is None else topic.row.partitions

    async def ensure(self) -> int:
        return (await self._topics.ensure(self.name, self._default_partitions)).row.partitions

    def append(self, partition: int, batch: bytes, *, durable: bool = False) -> "asyncio.Future[None] | None":
        """Append one batch; what to await until it is as durable as the settings ask for. Raises TierdError.

        *durable*: until it is on the disk, whatever the settings ask for.
        """
        target = self._get(partition)
        target.log.append(memoryview(bytearray(batch)), now_ms=self._clock.now_ms(), internal=True)
        self._appended(target)
        if not durable and not (target.log.commits and target.log.commit_due):
            return None
        committed = self._commits.wait(target)
        self._unsettled.add(committed)
        committed.add_done_callback(self._unsettled.discard)
        return committed

    def end(self, partition: int) -> int:
        """The offset after its last record. Raises NotHere."""
        return self._get(partition).log.log_end

    async def settled(self) -> None:
        """Return when all that was appended is as durable as the topic's settings ask for. Raises StorageFailed."""
        if self._unsettled:
            # Others wait for the same: `gather` would cancel it for all of them when one client leaves.
            done, _ = await asyncio.wait(self._unsettled)
            for committed in done:
                committed.result()

    async def replay(self, partition: int) -> AsyncIterator[bytes]:
        """Whole batches from log start to log end, in pieces of about a MiB.

        Raises NotHere, DamagedRecords, StorageFailed, OSError.
        """
        target = self._get(partition)
        offset = target.log.log_start
        while offset < target.log.log_end:
            seen = target.log.high_watermark
            piece = await self._piece(target, offset)
            if piece:
                yield piece
                offset = _next_offset(piece, str(target))
            elif seen < target.log.log_end:  # Nobody sees more before it is on the disk.
                if target.log.high_watermark == seen:
                    await self._commits.wait(target)
            else:
                return

    async def _piece(self, target: Partition, offset: int) -> bytes:
        try:
            found = await _read(target, offset)
            try:
                return await asyncio.get_running_loop().run_in_executor(self._readers, _bytes_of, found)
            finally:
                found.release()
        except CorruptFile as error:
            raise DamagedRecords(str(target), offset, str(error)) from error
        except OSError as error:
            self._partitions.note(target, error)
            raise

    def told(self, partition: int, wrong: Iterable[str]) -> None:
        """What of that partition could not be read, for the list of what is wrong; nothing: all of it has been."""
        target = self._partitions.get(self.name, partition)
        if target is not None:
            target.unread = tuple(wrong)

    def _get(self, partition: int) -> Partition:
        target = self._partitions.get(self.name, partition)
        if target is None:
            raise NotHere(f"{self.name}-{partition} is not on this node")
        return target


async def _read(target: Partition, offset: int) -> LogSlice:
    while True:
        try:
            return target.log.read(offset, _PIECE_BYTES, committed=False)
        except Repairing:
            await target.changed()


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
