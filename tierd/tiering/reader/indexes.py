"""The index files of remote segments: parts of `.indexes` in memory, behind them on disk, behind those in the bucket.

A small `.indexes` comes whole with one GET; of a large one only the part that is needed. The cache file of a part is
its CRC-32C (4 bytes, big-endian) and its bytes.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from crc32c import crc32c

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.ranges import ByteRange
from tierd.storage.sparse import OffsetEntries, TimeEntries
from tierd.storage.txnindex import AbortedEntry, parse_txn_index
from tierd.tiering.reader.cache import CacheFile, DiskCache
from tierd.tiering.reader.extents import Boundaries
from tierd.tiering.reader.fetch import Fetcher, SegmentGone
from tierd.tiering.segments import RemoteSegment

log = logging.getLogger(__name__)

_CRC_BYTES = 4
_OBJECT_OVERHEAD_BYTES = 400


class Part(StrEnum):
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True)
class _Loaded:
    value: Any
    """Boundaries, TimeEntries or a list of AbortedEntry, as the part demands."""
    memory_bytes: int


class RemoteIndexes:
    """Event loop only."""

    def __init__(
        self,
        fetcher: Fetcher,
        cache: DiskCache,
        threads: Executor,
        *,
        memory_bytes: int,
        whole_bytes: int,
        needless_bytes: int,
    ) -> None:
        """A `.indexes` of up to *whole_bytes* is fetched whole; a `.log` of up to *needless_bytes* needs no offsets."""
        self._fetcher = fetcher
        self._cache = cache
        self._threads = threads
        self._memory_bytes = memory_bytes
        self._whole_bytes = whole_bytes
        self._needless_bytes = needless_bytes
        self._loaded: OrderedDict[tuple[Uuid, Part], _Loaded] = OrderedDict()
        self._loaded_bytes = 0
        self._loading: dict[tuple[Uuid, Part], asyncio.Task[_Loaded]] = {}

    def boundaries_now(self, segment: RemoteSegment) -> Boundaries | None:
        """What is in memory already."""
        if segment.size_bytes <= self._needless_bytes or not segment.layout.offset.length:
            return Boundaries(segment.base, (), (), segment.size_bytes)
        loaded = self._loaded.get((segment.segment_id, Part.OFFSET))
        return None if loaded is None else loaded.value

    def begin(self, segment: RemoteSegment) -> None:
        """Bring the offset index; nobody waits for it yet."""
        key = (segment.segment_id, Part.OFFSET)
        if key not in self._loading and self.boundaries_now(segment) is None:
            self._bringing(segment, Part.OFFSET, segment.layout.offset)

    async def boundaries(self, segment: RemoteSegment) -> Boundaries:
        """Where batches begin. An offset index that is no good names no place, which is slower and still right."""
        return self.boundaries_now(segment) or await self._load(segment, Part.OFFSET, segment.layout.offset)

    async def times(self, segment: RemoteSegment) -> TimeEntries:
        """Empty when there is none or it is no good: then a search begins at the segment's start."""
        if not segment.layout.timestamp.length:
            return TimeEntries(segment.base)
        times: TimeEntries = await self._load(segment, Part.TIMESTAMP, segment.layout.timestamp)
        return times

    async def aborted(self, segment: RemoteSegment) -> list[AbortedEntry]:
        """Raises CorruptFile when it is no good: what it should say cannot be guessed."""
        part = segment.layout.transaction
        if part is None or not part.length:
            return []
        entries: list[AbortedEntry] = await self._load(segment, Part.TRANSACTION, part)
        return entries

    def forget(self, segment_id: Uuid) -> None:
        for part in Part:
            loaded = self._loaded.pop((segment_id, part), None)
            if loaded is not None:
                self._loaded_bytes -= loaded.memory_bytes
            file = self._cache.get(_name(segment_id, part))
            if file is not None:
                self._cache.drop(file)

    async def close(self) -> None:
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    async def _load(self, segment: RemoteSegment, part: Part, where: ByteRange) -> Any:
        key = (segment.segment_id, part)
        loaded = self._loaded.get(key)
        if loaded is not None:
            self._loaded.move_to_end(key)
            return loaded.value
        task = self._loading.get(key) or self._bringing(segment, part, where)
        return (await asyncio.shield(task)).value

    def _bringing(self, segment: RemoteSegment, part: Part, where: ByteRange) -> "asyncio.Task[_Loaded]":
        key = (segment.segment_id, part)
        task = self._loading[key] = asyncio.create_task(self._bring(segment, part, where))
        task.add_done_callback(lambda done: self._brought(key, done))
        return task

    def _brought(self, key: tuple[Uuid, Part], done: asyncio.Task[_Loaded]) -> None:
        del self._loading[key]
        if done.cancelled() or done.exception() is not None:
            return  # whoever waits is told; a load ahead is tried again when it is needed
        loaded = done.result()
        self._loaded[key] = loaded
        self._loaded_bytes += loaded.memory_bytes
        while self._loaded_bytes > self._memory_bytes and len(self._loaded) > 1:
            self._loaded_bytes -= self._loaded.popitem(last=False)[1].memory_bytes

    async def _bring(self, segment: RemoteSegment, part: Part, where: ByteRange) -> _Loaded:
        loop = asyncio.get_running_loop()
        parse = _parser(segment, part)
        file = self._cache.get(_name(segment.segment_id, part))
        if file is not None:
            found = await self._from_file(file, parse)
            if found is not None:
                return found
        try:
            if segment.indexes_bytes <= self._whole_bytes:
                files, loaded = await loop.run_in_executor(self._threads, self._fetch_whole, segment, where, parse)
            else:
                files, loaded = await loop.run_in_executor(self._threads, self._fetch_part, segment, part, where, parse)
        except SegmentGone:
            raise
        except CorruptFile as error:
            if segment.key_id is None or part is Part.TRANSACTION:
                raise
            log.warning("remote index does not decrypt, done without", extra={"object": error.where})
            return parse(b"")
        for name, size_bytes in files:
            if self._cache.get(name) is None:
                self._cache.add(name, size_bytes, _nothing)
        return loaded

    async def _from_file(self, file: CacheFile, parse: Callable[[bytes], _Loaded]) -> _Loaded | None:
        if (fd := self._cache.pin_if_there(file)) is None:
            return None
        try:
            job = asyncio.get_running_loop().run_in_executor(self._threads, _read, fd, file.size_bytes, parse)
            found = await job
        finally:
            self._cache.unpin(file)
        if found is None:
            self._cache.drop(file)
        return found

    def _fetch_part(
        self, segment: RemoteSegment, part: Part, where: ByteRange, parse: Callable[[bytes], _Loaded]
    ) -> tuple[list[tuple[str, int]], _Loaded]:
        (raw,), loaded = self._fetcher.indexes(segment, [where], lambda raws: parse(raws[0]))
        return [self._write(segment, part, raw)], loaded

    def _fetch_whole(
        self, segment: RemoteSegment, where: ByteRange, parse: Callable[[bytes], _Loaded]
    ) -> tuple[list[tuple[str, int]], _Loaded]:
        parts = [(part, at) for part, at in _parts(segment) if at is not None and at.length]
        number = [at for _, at in parts].index(where)
        raws, loaded = self._fetcher.indexes(segment, [at for _, at in parts], lambda raws: parse(raws[number]))
        return [self._write(segment, part, raw) for (part, _), raw in zip(parts, raws, strict=True)], loaded

    def _write(self, segment: RemoteSegment, part: Part, raw: bytes) -> tuple[str, int]:
        name = _name(segment.segment_id, part)
        self._cache.write(name, iter([crc32c(raw).to_bytes(_CRC_BYTES, "big"), raw]))
        return name, _CRC_BYTES + len(raw)


def _parts(segment: RemoteSegment) -> list[tuple[Part, ByteRange | None]]:
    layout = segment.layout
    return [
        (Part.OFFSET, layout.offset),
        (Part.TIMESTAMP, layout.timestamp),
        (Part.TRANSACTION, layout.transaction),
    ]


def is_index_name(name: str) -> bool:
    """Whether a cache file of this name holds an index."""
    return name[name.rfind(".") + 1 :] in set(Part)


def _name(segment_id: Uuid, part: Part) -> str:
    return f"{segment_id}.{part}"


def _nothing() -> None:
    """An index file that leaves the cache has no other bookkeeping."""


def _read(fd: int, size_bytes: int, parse: Callable[[bytes], _Loaded]) -> _Loaded | None:
    """None when a crash left something else in the file."""
    raw = os.pread(fd, size_bytes, 0)
    if len(raw) != size_bytes or crc32c(raw[_CRC_BYTES:]) != int.from_bytes(raw[:_CRC_BYTES], "big"):
        return None
    return parse(raw[_CRC_BYTES:])


def _parser(segment: RemoteSegment, part: Part) -> Callable[[bytes], _Loaded]:
    where = segment.indexes_key

    def parse(raw: bytes) -> _Loaded:
        if part is Part.TRANSACTION:
            aborted: list[AbortedEntry] = parse_txn_index(raw, where)
            return _Loaded(aborted, _OBJECT_OVERHEAD_BYTES + 150 * len(aborted))
        try:
            return _sparse(raw)
        except CorruptFile as error:
            log.warning("remote index is no good, done without", extra={"object": where, "reason": error.reason})
            return _sparse(b"")

    def _sparse(raw: bytes) -> _Loaded:
        if part is Part.TIMESTAMP:
            times = TimeEntries.from_bytes(raw, segment.base, where, segment.next_base)
            return _Loaded(times, _OBJECT_OVERHEAD_BYTES + 16 * len(times))
        offsets = OffsetEntries.from_bytes(raw, segment.base, where, segment.size_bytes)
        known = Boundaries(segment.base, offsets.relatives, offsets.positions, segment.size_bytes)
        return _Loaded(known, _OBJECT_OVERHEAD_BYTES + 8 * len(offsets))

    return parse
