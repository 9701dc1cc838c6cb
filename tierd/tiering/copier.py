"""Copies one closed segment into the bucket (BUCKET.md, "Writing a segment"). Blocking; runs in a thread.

Order: catalog COPY_STARTED -> `.log` -> `.indexes` -> answers compared -> `.rsm-manifest` (the commit point) ->
catalog COPY_FINISHED. Each try has a new segment id. A batch that fails its check stops the copy before the commit.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, RemoteUnavailable, TierdError
from tierd.base.ids import Uuid
from tierd.remote.chunks import plain_chunks
from tierd.remote.crc import combine, crc32c
from tierd.remote.errors import Damaged, PreconditionFailed
from tierd.remote.extras import SegmentExtras, to_metadata
from tierd.remote.indexes import join_indexes
from tierd.remote.keys import Keys, SegmentName
from tierd.remote.manifest import Manifest, encode_manifest
from tierd.remote.store import ObjectInfo, ObjectStore
from tierd.storage import names
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.records import iter_records
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering import sidecars
from tierd.tiering.catalog import Catalog
from tierd.tiering.rows import NO_LAYOUT, CatalogSegment
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.states import CopyState
from tierd.tiering.walk import SegmentWalker

PARTS_AHEAD = 2
"""Parts of one segment in flight beside the one being read and checked."""


class Abandoned(TierdError):
    """The copy was given up on purpose: the tierer stops, or the claim is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Who copies: goes into the objects' user metadata as a hint."""

    epoch: int
    incarnation: Uuid | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopierParts:
    """What every copy needs; built once per process."""

    store: ObjectStore
    keys: Keys
    catalog: Catalog
    clock: Clock
    uploads: Executor
    """Sends parts; its threads bound the uploads of all copies together."""
    node_id: int
    part_bytes: int
    settle_ms: int
    """Longest time after which a request in flight can still take effect."""
    abandon_ms: int
    """A try that lasts longer is given up: below half of the age guard (BUCKET.md)."""


class Copier:
    """One try at one segment; call `run` once. *stopping* is asked between parts."""

    def __init__(
        self,
        parts: CopierParts,
        owner: Ownership,
        view: PartitionView,
        segment: SegmentView,
        *,
        stopping: Callable[[], bool] = lambda: False,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._parts = parts
        self._owner = owner
        self._view = view
        self._segment = segment
        self._stopping = stopping
        self._on_bytes = on_bytes
        self._begun_ms = parts.clock.monotonic_ms()
        self._path = view.directory / names.log_file(segment.base)
        self._name = SegmentName(
            view.name.topic, view.id.topic_id, view.id.partition, segment.base, Uuid(os.urandom(16))
        )
        self._stem = parts.keys.stem(self._name)

    def run(self) -> CatalogSegment:
        """Give the committed row.

        Raises CorruptFile (the local segment is rotten), RemoteUnavailable (try again later), Abandoned, OSError.
        Afterwards the catalog names whatever lies in the bucket: COPY_STARTED when the commit's outcome is unknown,
        DELETE_STARTED when nothing was committed.
        """
        row = self._first_row()
        if self._segment.size_bytes == 0:
            done = replace(row, state=CopyState.COPY_FINISHED)
            self._parts.catalog.finished(done)
            return done
        self._parts.catalog.started(row)
        try:
            ready, manifest = self._upload(row)
        except (TierdError, OSError):
            self._give_up(row)
            raise
        return self._commit(ready, manifest)

    def _first_row(self) -> CatalogSegment:
        segment = self._segment
        empty = segment.size_bytes == 0
        remote = RemoteSegment(
            part=self._view.id,
            topic=self._view.name.topic,
            base=segment.base,
            next_base=segment.next_base,
            segment_id=self._name.segment_id,
            stem=self._stem,
            size_bytes=segment.size_bytes,
            indexes_bytes=0,
            log_etag=None,
            indexes_etag=None,
            log_crc=0 if empty else None,
            indexes_crc=None,
            layout=NO_LAYOUT,
            largest_timestamp_ms=segment.largest_timestamp_ms,
            largest_timestamp_offset=None,
            append_ms=segment.append_ms,
            epochs=(),
        )
        return CatalogSegment(remote=remote, state=CopyState.COPY_STARTED, owner_epoch=self._owner.epoch)

    def _give_up(self, row: CatalogSegment) -> None:
        """No manifest was sent: the objects may go once no request for them can still land."""
        due_ms = self._now_ms() + self._parts.settle_ms
        self._parts.catalog.deleting(row, due_ms=due_ms)

    def _now_ms(self) -> int:
        server_ms = self._parts.store.now_ms()
        return self._parts.clock.now_ms() if server_ms is None else server_ms

    def _check_going(self) -> None:
        if self._stopping():
            raise Abandoned(f"copy of {self._path} given up")
        if self._parts.clock.monotonic_ms() - self._begun_ms > self._parts.abandon_ms:
            raise RemoteUnavailable(f"copy of {self._path} took more than {self._parts.abandon_ms} ms; begun anew")

    # --- the objects -------------------------------------------------------------------------------------------------
    def _upload(self, row: CatalogSegment) -> tuple[CatalogSegment, bytes]:
        """`.log` and `.indexes`, checked; the row with all facts and the manifest that would commit it."""
        walker = SegmentWalker(self._segment.base, self._segment.next_base, str(self._path))
        with _opened(self._path, self._segment.size_bytes) as fd:
            log = self._upload_log(fd, walker)
            largest_offset = _first_largest(walker, fd, str(self._path))
        beside = sidecars.load(self._view, self._segment, walker)
        body, layout = join_indexes(beside.files)
        indexes_crc = crc32c(body)
        remote = replace(
            row.remote,
            indexes_bytes=len(body),
            log_etag=log.etag,
            log_crc=log.crc32c,
            indexes_crc=indexes_crc,
            layout=layout,
            largest_timestamp_ms=_largest_ms(walker),
            largest_timestamp_offset=largest_offset,
            epochs=beside.epochs,
        )
        ready = replace(row, remote=remote, records=walker.records)
        self._check_going()
        indexes = self._parts.store.put(
            remote.indexes_key, body, crc32c=indexes_crc, metadata=to_metadata(self._extras(ready))
        )
        _compare(indexes, len(body), indexes_crc)
        ready = replace(ready, remote=replace(remote, indexes_etag=indexes.etag))
        self._check_going()
        manifest = encode_manifest(self._manifest(ready))
        return replace(ready, manifest_bytes=len(manifest)), manifest

    def _upload_log(self, fd: int, walker: SegmentWalker) -> ObjectInfo:
        size, part_bytes = self._segment.size_bytes, self._parts.part_bytes
        key, store = self._stem + ".log", self._parts.store
        if size <= part_bytes:
            data = _pread(fd, size, 0, self._path)
            walker.feed(memoryview(data))
            walker.finish()
            self._check_going()
            crc = crc32c(data)
            info = store.put(key, data, crc32c=crc, metadata=self._hints())
            self._on_bytes(size)
            _compare(info, size, crc)
            return replace(info, crc32c=crc)
        return self._upload_parts(key, fd, walker)

    def _upload_parts(self, key: str, fd: int, walker: SegmentWalker) -> ObjectInfo:
        """Multipart: one part is read and checked while others are on their way."""
        size, part_bytes = self._segment.size_bytes, self._parts.part_bytes
        upload = self._parts.store.begin_upload(key, self._hints(), part_bytes=part_bytes)
        flying: deque[Future[None]] = deque()
        crc = 0

        def send(number: int, data: bytes, part_crc: int) -> None:
            upload.put_part(number, data, crc32c=part_crc)
            self._on_bytes(len(data))

        try:
            for number, position in enumerate(range(0, size, part_bytes), 1):
                self._check_going()
                data = _pread(fd, min(part_bytes, size - position), position, self._path)
                walker.feed(memoryview(data))
                part_crc = crc32c(data)
                crc = combine(crc, part_crc, len(data))
                while len(flying) >= PARTS_AHEAD:
                    flying.popleft().result()
                flying.append(self._parts.uploads.submit(send, number, data, part_crc))
            walker.finish()
            while flying:
                flying.popleft().result()
            self._check_going()
            info = upload.complete()
        except (TierdError, OSError):
            _settle(flying)
            with suppress(TierdError):  # the row that `run` leaves names the parts; its delete aborts them
                upload.abort()
            raise
        _compare(info, size, crc)
        return replace(info, crc32c=crc)

    def _hints(self) -> dict[str, str]:
        return to_metadata(SegmentExtras(epoch=self._owner.epoch, incarnation=self._owner.incarnation))

    def _extras(self, row: CatalogSegment) -> SegmentExtras:
        return SegmentExtras(
            log_crc=row.remote.log_crc,
            indexes_crc=row.remote.indexes_crc,
            append_ms=row.remote.append_ms,
            largest_timestamp_offset=row.remote.largest_timestamp_offset,
            records=row.records,
            epoch=self._owner.epoch,
            incarnation=self._owner.incarnation,
        )

    def _manifest(self, row: CatalogSegment) -> Manifest:
        remote = row.remote
        return Manifest(
            topic=remote.topic,
            topic_id=remote.part.topic_id,
            partition=remote.part.partition,
            segment_id=remote.segment_id,
            base=remote.base,
            next_base=remote.next_base,
            largest_timestamp_ms=remote.largest_timestamp_ms,
            node_id=self._parts.node_id,
            written_ms=self._parts.clock.now_ms(),
            epochs=remote.epochs,
            chunks=plain_chunks(remote.size_bytes),
            layout=remote.layout,
            transactions_empty=remote.layout.transaction is None,
        )

    # --- the commit --------------------------------------------------------------------------------------------------
    def _commit(self, row: CatalogSegment, manifest: bytes) -> CatalogSegment:
        """Whether the manifest is there decides; when that stays unknown the row stays COPY_STARTED."""
        store, key = self._parts.store, row.remote.manifest_key
        crc = crc32c(manifest)
        try:
            store.put(key, manifest, crc32c=crc, metadata=to_metadata(self._extras(row)), if_none_match=True)
        except PreconditionFailed:
            if store.get(key) != manifest:  # the id is random: somebody else's object under it is no accident
                self._give_up(row)
                raise
        done = replace(row, state=CopyState.COPY_FINISHED)
        self._parts.catalog.finished(done)
        return done


@contextmanager
def _opened(path: Path, size_bytes: int) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        actual = os.fstat(fd).st_size
        if actual != size_bytes:
            raise CorruptFile(str(path), min(actual, size_bytes), f"{actual} bytes, the log says {size_bytes}")
        yield fd
    finally:
        os.close(fd)


def _pread(fd: int, length: int, position: int, path: Path) -> bytes:
    data = os.pread(fd, length, position)
    if len(data) != length:
        raise CorruptFile(str(path), position + len(data), "the file ends early")
    return data


def _settle(flying: deque[Future[None]]) -> None:
    """Wait for parts on their way, so that an abort leaves nothing behind; their errors do not matter any more."""
    for future in flying:
        future.cancel()
        if not future.cancelled():
            future.exception()


def _compare(info: ObjectInfo, size_bytes: int, crc: int) -> None:
    """Raise Damaged when the bucket's answer is not about the bytes that were sent."""
    if info.size != size_bytes or (info.crc32c is not None and info.crc32c != crc):
        raise Damaged(f"{info.key}: the bucket has {info.size} bytes (CRC {info.crc32c}), sent {size_bytes} ({crc})")


def _largest_ms(walker: SegmentWalker) -> int | None:
    return None if walker.largest_ms is None or walker.largest_ms < 0 else walker.largest_ms


def _first_largest(walker: SegmentWalker, fd: int, where: str) -> int | None:
    """Offset of the first record with the largest timestamp; None when its batch cannot be read record by record."""
    largest_ms = _largest_ms(walker)
    if largest_ms is None:
        return None
    header = parse_header(os.pread(fd, HEADER_BYTES, walker.largest_at), 0, where)
    raw = os.pread(fd, header.size_bytes, walker.largest_at)
    try:
        return next((one.offset for one in iter_records(raw, header, where) if one.timestamp_ms == largest_ms), None)
    except CorruptFile:
        return None
