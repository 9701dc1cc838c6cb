"""One Produce request at work: what holds for all of its batches, and what its answer still waits for."""

import asyncio
from collections.abc import Sequence

from tierd.base.errors import TierdError
from tierd.broker.connection import CloseQuietly
from tierd.broker.error_map import code_of
from tierd.storage.errors import StorageFailed
from tierd.wire.primitives import TopicKey
from tierd.wire.produce import PartitionProduced, encode_produce_response

Answers = Sequence[tuple[TopicKey, list[PartitionProduced]]]
Committed = asyncio.Future[None]
"""Done when the disk has what was appended."""
Late = tuple[PartitionProduced, list[Committed]]
"""What came of a batch that was not appended at once, and what its answer still waits for."""

_ALL = -1


class Work:
    """Made for each request, on the hot path."""

    __slots__ = ("acks", "late", "now_ms", "transactional_id", "version", "waits")

    def __init__(self, version: int, acks: int, transactional_id: str | None, now_ms: int) -> None:
        self.version = version
        self.acks = acks
        self.transactional_id = transactional_id
        self.now_ms = now_ms
        """Wall clock."""
        self.waits: Sequence[tuple[PartitionProduced, Committed]] = ()
        """Rows whose batches must be on the disk before the request is answered."""
        self.late: Sequence[tuple[PartitionProduced, asyncio.Future[Late]]] = ()
        """Rows that only hold the place of what is to come."""

    @property
    def apart(self) -> "Work":
        """The same for a batch that is appended later: what it waits for is not this one's."""
        return Work(self.version, self.acks, self.transactional_id, self.now_ms)

    def waits_for(self, row: PartitionProduced, committed: Committed, *, always: bool) -> None:
        """*always*: with acks=1, too."""
        if self.acks == _ALL or (self.acks and always):
            self.waits = [*self.waits, (row, committed)]

    def puts_off(self, row: PartitionProduced, late: asyncio.Future[Late]) -> None:
        self.late = [*self.late, (row, late)]

    async def answered(self, correlation_id: int, topics: Answers) -> bytes | None:
        """The answer once all of it is appended and the disk has it; what a failing disk has not is refused."""
        final: dict[int, PartitionProduced] = {}
        waits = [*self.waits]
        for row, coming in self.late:
            try:
                final[id(row)], committed_by = await coming
                waits += [(row, committed) for committed in committed_by]
            except (TierdError, OSError) as error:
                final[id(row)] = PartitionProduced(row.partition, code_of(error), message=str(error))
        for row, committed in waits:
            try:
                await committed
            except StorageFailed as error:
                final[id(row)] = PartitionProduced(row.partition, code_of(error), message=str(error))
        if final:
            topics = [(name, [final.get(id(row), row) for row in rows]) for name, rows in topics]
        return self.answer(correlation_id, topics)

    def answer(self, correlation_id: int, topics: Answers) -> bytes | None:
        """None for acks=0, where a failure closes the connection instead (CloseQuietly)."""
        if self.acks == 0:
            if any(row.error for _, rows in topics for row in rows):
                raise CloseQuietly
            return None
        return encode_produce_response(correlation_id, self.version, topics)
