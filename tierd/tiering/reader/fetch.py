"""Bring bytes of the bucket into cache files, checked. Runs in threads; knows no loop and no bookkeeping."""

import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from crc32c import crc32c

from tierd.base.errors import CorruptFile
from tierd.base.logs import Doubling
from tierd.remote.chunks import DEFAULT_CHUNK_BYTES
from tierd.remote.errors import KeyMissing, NotFound, PreconditionFailed
from tierd.remote.keyring import KeyRing
from tierd.remote.ranges import ByteRange
from tierd.remote.store import PIECE_BYTES, ObjectStore
from tierd.storage.header import CRC_START, HEADER_BYTES, BatchHeader, parse_header
from tierd.tiering.reader.bodies import Bodies
from tierd.tiering.reader.cache import DiskCache
from tierd.tiering.reader.extents import Extent
from tierd.tiering.reader.slots import ExtentName
from tierd.tiering.reader.table import BatchTable, Walker, walk
from tierd.tiering.segments import RemoteSegment

log = logging.getLogger(__name__)

T = TypeVar("T")

_PIECES_BYTES = 2 * PIECE_BYTES
"""The piece in hand, and the next one as it comes."""
_BAD_OBJECTS = 1000
"""So many are counted, then all begin anew."""


class SegmentGone(CorruptFile):
    """The object is not there any more, or another is in its place: deleted meanwhile, or lost."""


def memory_bytes(segment: RemoteSegment, extent: Extent) -> int:
    """What fetching *extent* takes: of a transformed segment also the chunks that hold it, and one that is restored.

    A plain one whose end is known goes to the disk piece by piece.
    """
    length = extent.range.length
    if segment.stored_bytes is not None:
        return 2 * (length + DEFAULT_CHUNK_BYTES)
    return length if extent.open_end else min(length, _PIECES_BYTES)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file in the cache's directory."""

    name: ExtentName
    table: BatchTable


class Fetcher:
    """GETs of ranges; a bad one is fetched once more, since it may have been damaged on the way."""

    def __init__(self, store: ObjectStore, cache: DiskCache, piece_bytes: int, ring: KeyRing) -> None:
        """*piece_bytes* is the most that one GET asks for, except to reach the end of an extent."""
        self._store = store
        self._cache = cache
        self._piece_bytes = piece_bytes
        self._bodies = Bodies(self._manifest, ring)
        self._bad = Doubling(_BAD_OBJECTS)

    def extent(self, segment: RemoteSegment, extent: Extent) -> Fetched:
        """Fetch *extent*, check it, write it. Raises CorruptFile, SegmentGone, RemoteUnavailable, DiskFull."""
        return self._twice(lambda: self._extent(segment, extent))

    def indexes(
        self, segment: RemoteSegment, parts: Sequence[ByteRange], parse: Callable[[list[bytes]], T]
    ) -> tuple[list[bytes], T]:
        """*parts* (ascending) of the segment's `.indexes`, with one GET, and what *parse* makes of them."""
        span = ByteRange(parts[0].start, parts[-1].stop)

        def once() -> tuple[list[bytes], T]:
            raw = self._get(segment.indexes_key, segment.indexes_etag, span)
            stored = [(raw[part.start - span.start : part.stop - span.start], part.start) for part in parts]
            if segment.key_id is not None:
                transform = self._bodies.of(segment).transform
                stored = [(transform.restore_index(one, segment.indexes_key, at), at) for one, at in stored]
            found = [one for one, _ in stored]
            return found, parse(found)

        return self._twice(once)

    def _twice(self, once: Callable[[], T]) -> T:
        try:
            return once()
        except SegmentGone:
            raise
        except KeyMissing as error:
            if self._bad.failed(str(error)) is not None:  # who reads is told that the bucket is away, no more
                log.error("cannot be read: %s", error)
            raise
        except CorruptFile as error:
            self._say(error)
        return once()

    def _say(self, error: CorruptFile) -> None:
        """Readers come again and again: of each object the 1st, 2nd, 4th, 8th, ... bad range."""
        times = self._bad.failed(error.where)
        if times is not None:
            facts = {"object": error.where, "byte": error.position, "times": times}
            log.warning("bad range, fetched once more", extra=facts)

    def _extent(self, segment: RemoteSegment, extent: Extent) -> Fetched:
        if segment.stored_bytes is None and not extent.open_end:
            return self._as_it_comes(segment, extent.range)
        start, stop = extent.range.start, extent.range.stop
        data = memoryview(self._log(segment, extent.range))
        table = walk(data, segment.log_key, start, floor=segment.base, ceiling=segment.next_base)
        if table is None and extent.open_end and len(data) >= HEADER_BYTES:
            return self._large_batch(segment, start, data)
        if table is None or not (extent.open_end or table.length == len(data)):
            raise _no_end(segment, start, stop, table)
        name = _name(segment, start, table)
        self._cache.write(str(name), iter([data[: table.length]]))
        return Fetched(name, table)

    def _as_it_comes(self, segment: RemoteSegment, part: ByteRange) -> Fetched:
        """Pieces are checked and written while they are in the processor's cache; none is kept."""

        def use(pieces: Iterator[bytes]) -> Fetched:
            walker = Walker(segment.log_key, part.start, floor=segment.base, ceiling=segment.next_base)

            def fetched() -> Fetched:
                table = walker.table()
                if table is None or table.length != part.length:
                    raise _no_end(segment, part.start, part.stop, table)
                return Fetched(_name(segment, part.start, table), table)

            self._cache.write(lambda: str(fetched().name), map(walker.passed, pieces))
            return fetched()

        with _there(segment.log_key, part.start):
            return self._store.pieces(segment.log_key, part.start, part.stop, use, if_match=segment.log_etag)

    def _large_batch(self, segment: RemoteSegment, start: int, head: memoryview) -> Fetched:
        """A batch that is larger than what was asked for, of which *head* came: the rest in pieces."""
        header = parse_header(head, 0, segment.log_key)
        if start + header.size_bytes > segment.size_bytes or header.last_offset_delta < 0:
            raise CorruptFile(segment.log_key, start, f"a batch of {header.size_bytes} bytes goes beyond the segment")
        table = BatchTable(
            array("q", [header.base_offset]), array("q", [header.next_offset]), array("q", [header.size_bytes])
        )
        name = _name(segment, start, table)
        self._cache.write(str(name), self._checked_pieces(segment, start, head, header))
        return Fetched(name, table)

    def _checked_pieces(
        self, segment: RemoteSegment, start: int, head: memoryview, header: BatchHeader
    ) -> Iterator[memoryview]:
        checksum = crc32c(head[CRC_START:])
        yield head
        at, stop = start + len(head), start + header.size_bytes
        while at < stop:
            piece = ByteRange(at, min(at + self._piece_bytes, stop))
            data = self._log(segment, piece)
            checksum = crc32c(data, checksum)
            yield memoryview(data)
            at = piece.stop
        if checksum != header.crc:
            raise CorruptFile(segment.log_key, start, "the CRC-32C of the batch does not match")

    def _log(self, segment: RemoteSegment, part: ByteRange) -> bytes | bytearray:
        """Bytes *part* of the segment; of a transformed one only the chunks that hold them are fetched."""
        if segment.stored_bytes is None:
            return self._get(segment.log_key, segment.log_etag, part)
        body = self._bodies.of(segment)
        raw = self._get(segment.log_key, segment.log_etag, body.stored_range(part))
        return body.restore(raw, part, segment.log_key)

    def _manifest(self, segment: RemoteSegment) -> bytes:
        try:
            return self._store.get(segment.manifest_key)
        except NotFound as error:
            raise SegmentGone(segment.manifest_key, 0, "the object is not in the bucket any more") from error

    def _get(self, key: str, etag: str | None, part: ByteRange) -> bytes:
        with _there(key, part.start):
            data = self._store.get(key, part.start, part.stop, if_match=etag)
        if len(data) != part.length:
            raise CorruptFile(key, part.start + len(data), f"the object ends here, expected {part.stop} bytes or more")
        return data


@contextmanager
def _there(key: str, position: int) -> Iterator[None]:
    """Around a GET of a committed segment's object."""
    try:
        yield
    except NotFound as error:
        raise SegmentGone(key, position, "the object is not in the bucket any more") from error
    except PreconditionFailed as error:
        raise SegmentGone(key, position, "another object is in its place") from error


def _no_end(segment: RemoteSegment, start: int, stop: int, table: BatchTable | None) -> CorruptFile:
    at = start + (table.length if table is not None else 0)
    return CorruptFile(segment.log_key, at, f"the batch here does not end by byte {stop}, where one begins")


def _name(segment: RemoteSegment, start: int, table: BatchTable) -> ExtentName:
    return ExtentName(segment.segment_id, start, start + table.length, table.first_offset, table.next_offset)
