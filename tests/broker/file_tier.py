"""A bucket made of one file, for brokers in the test's process."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId, Uuid
from tierd.ipc.calls import CallFailed
from tierd.remote.view import Claim, ClaimState, RemotePartition, RemoteStatus
from tierd.storage.header import parse_header
from tierd.storage.log import Log
from tierd.storage.records import Record, iter_records
from tierd.storage.view import EMPTY_SLICE, FileSpan, LogSlice, PartitionView, Seed, TimestampOffset


@dataclass
class FileTier:
    """A RemoteTier whose bucket is whatever `hold` was shown; reads can be delayed or refused."""

    path: Path
    claim: Claim = field(default_factory=lambda: Claim(state=ClaimState.HELD, epoch=1))
    partitions: dict[PartitionId, list[tuple[int, int, int, int, bytes]]] = field(default_factory=dict)
    views: list[PartitionView] = field(default_factory=list)
    topics: list[tuple[str, Uuid]] = field(default_factory=list)
    deleted: list[tuple[str, Uuid]] = field(default_factory=list)
    heads: list[PartitionId] = field(default_factory=list)
    gate: asyncio.Event | None = None
    fails: type[Exception] | None = None
    broken: PartitionId | None = None
    """Reads of it fail in a way that nobody knows."""
    reads: int = 0
    asked: int = 0
    """For times."""
    out: int = 0

    def hold(self, log: Log, stop: int) -> RemotePartition:
        """Copy every batch below *stop*."""
        part = PartitionId(log.topic_id, log.name.partition)
        rows = self.partitions.setdefault(part, [])
        have = rows[-1][1] if rows else log.local_start
        with self.path.open("ab") as file:
            for header, raw in log.batches(have, stop):
                rows.append((header.base_offset, header.next_offset, file.tell(), len(raw), raw))
                file.write(raw)
        return self.remote(part)

    def remote(self, part: PartitionId) -> RemotePartition:
        rows = self.partitions[part]
        return RemotePartition(
            id=part,
            start=rows[0][0],
            copied_to=rows[-1][1],
            log_start=None,
            size_bytes=sum(row[3] for row in rows),
            leader_epoch=1,
        )

    def remote_partition(self, part: PartitionId) -> RemotePartition | None:
        return self.remote(part) if part in self.partitions else None

    async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
        return True

    async def read(self, part: PartitionId, offset: int, *, max_bytes: int, stop: int, committed: bool) -> LogSlice:
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails("the bucket is away")
        if part == self.broken:
            raise CallFailed("PermissionError: the cache")
        spans: list[FileSpan] = []
        length, end = 0, offset
        fd = os.open(self.path, os.O_RDONLY)
        for base, next_base, position, size, _ in self.partitions.get(part, []):
            if next_base <= offset or base >= stop:
                continue
            if spans and length + size > max_bytes:
                break
            spans.append(FileSpan(fd, position, size))
            length, end = length + size, next_base
        if not spans:
            os.close(fd)
            return EMPTY_SLICE
        self.out += 1
        return LogSlice(tuple(spans), length, (), end, lambda: self._back(fd))

    def _back(self, fd: int) -> None:
        os.close(fd)
        self.out -= 1

    def _records(self, part: PartitionId, start: int, stop: int) -> Iterator[Record]:
        for base, _, _, _, raw in self.partitions.get(part, []):
            if base < stop:
                view = memoryview(raw)
                yield from (
                    record for record in iter_records(view, parse_header(view)) if start <= record.offset < stop
                )

    async def by_time(self, part: PartitionId, timestamp_ms: int, *, start: int, stop: int) -> TimestampOffset | None:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        for record in self._records(part, start, stop):
            if record.timestamp_ms >= timestamp_ms:
                return TimestampOffset(record.offset, record.timestamp_ms, 1)
        return None

    async def largest_timestamp(self, part: PartitionId, *, start: int, stop: int) -> TimestampOffset | None:
        if self.fails is not None:
            raise self.fails("the bucket is away")
        best = max(self._records(part, start, stop), key=lambda record: record.timestamp_ms, default=None)
        return None if best is None else TimestampOffset(best.offset, best.timestamp_ms, 1)

    async def seed(self, part: PartitionId) -> Seed:
        raise RemoteUnavailable("no seed here")

    async def publish_head(self, part: PartitionId) -> None:
        if self.fails is not None:
            raise self.fails("the bucket is away")
        self.heads.append(part)

    def partition_changed(self, view: PartitionView) -> None:
        self.views.append(view)

    def topic_changed(
        self, topic: str, topic_id: Uuid, partitions: int, config: dict[str, str], created_ms: int
    ) -> None:
        self.topics.append((topic, topic_id))

    def topic_deleted(self, topic: str, topic_id: Uuid, partitions: int, deleted_ms: int) -> None:
        self.deleted.append((topic, topic_id))

    async def status(self) -> dict[PartitionId, RemoteStatus]:
        if self.fails is not None:
            raise self.fails("the bucket is away")
        return {
            part: RemoteStatus(remote=self.remote(part), oldest_uncopied_ms=None, waiting=None)
            for part in self.partitions
        }
