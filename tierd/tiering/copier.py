"""Copies one closed segment into the bucket (remote/LAYOUT.md, "Writing a segment"). Blocking; runs in a thread.

Order: catalog COPY_STARTED -> `.log` and `.indexes` -> answers compared -> no later claim -> `.rsm-manifest` (the
commit point) -> catalog COPY_FINISHED. Each try has a new segment id. A batch that fails its check stops the copy
before the commit.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, RemoteUnavailable, TierdError
from tierd.base.ids import Uuid
from tierd.config.topic import MIB
from tierd.remote.chunks import ChunkIndex
from tierd.remote.crc import crc32c
from tierd.remote.errors import PreconditionFailed
from tierd.remote.extras import SegmentExtras, to_metadata
from tierd.remote.indexes import join_indexes
from tierd.remote.keyring import NO_KEYS, KeyRing
from tierd.remote.keys import Keys, SegmentName
from tierd.remote.manifest import Encryption, Manifest, encode_manifest
from tierd.remote.store import ObjectStore
from tierd.remote.transform import Transform
from tierd.storage import names
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.records import iter_records
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering import sidecars
from tierd.tiering.buffers import PartBuffers
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.log_upload import LogReading, send_log
from tierd.tiering.object_upload import ObjectUpload, compare, refused_at_once
from tierd.tiering.rows import NO_LAYOUT, CatalogSegment
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.storing import Storing, is_worth_compressing
from tierd.tiering.walk import SegmentWalker


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
    buffers: PartBuffers
    node_id: int
    settle_ms: int
    """Longest time after which a request in flight can still take effect."""
    abandon_ms: int
    """A try that lasts longer is given up: half of the age guard (remote/LAYOUT.md, "Writing a segment")."""
    compress: bool = False
    """Compress segments that are worth it."""
    chunk_bytes: int = MIB
    """Of what is compressed or encrypted."""
    ring: KeyRing = NO_KEYS
    """With an active key every segment is encrypted."""


class Copier:
    """One try at one segment; call `run` once.

    *stopping* is asked between parts; *require_owned* right before the commit, and raises when it must not be.
    """

    def __init__(
        self,
        parts: CopierParts,
        owner: Ownership,
        view: PartitionView,
        segment: SegmentView,
        *,
        stopping: Callable[[], bool] = lambda: False,
        require_owned: Callable[[], None] = lambda: None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._parts = parts
        self._owner = owner
        self._view = view
        self._segment = segment
        self._stopping = stopping
        self._require_owned = require_owned
        self._on_bytes = on_bytes
        self._begun_ms = parts.clock.monotonic_ms()
        self._indexes_sent = False
        self._nothing_there = False
        self._path = view.directory / names.log_file(segment.base)
        self._name = SegmentName(
            view.name.topic, view.id.topic_id, view.id.partition, segment.base, Uuid(os.urandom(16))
        )
        self._stem = parts.keys.stem(self._name)

    def run(self) -> CatalogSegment:
        """Give the committed row.

        Raises CorruptFile (the local segment is rotten), RemoteUnavailable (try again later), Abandoned, OSError, and
        what *require_owned* raises.
        Afterwards the catalog names whatever lies in the bucket: COPY_STARTED when the commit's outcome is unknown,
        DELETE_STARTED when nothing was committed, no row when the bucket refused all of it.
        """
        row = self._first_row()
        if self._segment.size_bytes == 0:
            done = replace(row, state=CopyState.COPY_FINISHED)
            self._parts.catalog.finished(done)
            return done
        self._parts.catalog.started(row)
        try:
            ready, manifest = self._upload(row)
            self._require_owned()
        except (TierdError, OSError):
            if self._nothing_there:
                self._parts.catalog.never_sent(row)
            else:
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
        """`.log` and `.indexes`, checked; the row with all facts and the manifest that would commit it.

        `.indexes` is made and sent while the last parts of `.log` are on their way.
        """
        walker = SegmentWalker(self._segment.base, self._segment.next_base, str(self._path))
        sending = self._log_upload()
        try:
            storing = self._storing()
            with _opened(self._path, self._segment.size_bytes) as fd:
                chunks = send_log(fd, LogReading(self._path, row.remote.size_bytes, walker), sending, storing)
                largest_offset = _first_largest(walker, fd, str(self._path))
            row = _as_stored(row, sending, storing)
            ready = self._send_indexes(row, walker, storing, largest_offset)
            log = sending.finish()
        except (TierdError, OSError) as error:
            sending.abort()
            self._nothing_there = refused_at_once(error) and not self._indexes_sent and sending.nothing_there
            raise
        ready = replace(ready, remote=replace(ready.remote, log_etag=log.etag))
        self._check_going()
        manifest = encode_manifest(
            manifest_of(
                ready.remote,
                chunks,
                node_id=self._parts.node_id,
                written_ms=self._parts.clock.now_ms(),
                compressed=storing.transform.compressed,
                encryption=storing.encryption,
            )
        )
        return replace(ready, manifest_bytes=len(manifest)), manifest

    def _storing(self) -> Storing:
        compress = self._parts.compress and is_worth_compressing(self._view.directory, self._segment)
        secret, encryption = self._parts.ring.new_secret() or (None, None)
        return Storing(Transform(compress, secret), encryption, self._parts.chunk_bytes)

    def _log_upload(self) -> ObjectUpload:
        parts = self._parts
        return ObjectUpload(
            store=parts.store,
            uploads=parts.uploads,
            buffers=parts.buffers,
            key=self._stem + ".log",
            hints=to_metadata(SegmentExtras(epoch=self._owner.epoch, incarnation=self._owner.incarnation)),
            check_going=self._check_going,
            on_bytes=self._on_bytes,
        )

    def _send_indexes(
        self, row: CatalogSegment, walker: SegmentWalker, storing: Storing, largest_offset: int | None
    ) -> CatalogSegment:
        beside = sidecars.load(self._view, self._segment, walker)
        body, layout = join_indexes(beside.files, storing.transform.store_index)
        crc = crc32c(body)
        remote = replace(
            row.remote,
            indexes_bytes=len(body),
            indexes_crc=crc,
            layout=layout,
            largest_timestamp_ms=_largest_ms(walker),
            largest_timestamp_offset=largest_offset,
            epochs=beside.epochs,
        )
        ready = replace(row, remote=remote, records=walker.records)
        self._check_going()
        stored = self._parts.store.put(remote.indexes_key, body, crc32c=crc, metadata=metadata_of(ready, self._owner))
        self._indexes_sent = True
        compare(stored, len(body), crc)
        return replace(ready, remote=replace(remote, indexes_etag=stored.etag))

    # --- the commit --------------------------------------------------------------------------------------------------
    def _commit(self, row: CatalogSegment, manifest: bytes) -> CatalogSegment:
        """Whether the manifest is there decides; when that stays unknown the row stays COPY_STARTED."""
        store, key = self._parts.store, row.remote.manifest_key
        crc = crc32c(manifest)
        try:
            store.put(key, manifest, crc32c=crc, metadata=metadata_of(row, self._owner), if_none_match=True)
        except PreconditionFailed:
            if store.get(key) != manifest:  # the id is random: somebody else's object under it is no accident
                self._give_up(row)
                raise
        done = replace(row, state=CopyState.COPY_FINISHED)
        self._parts.catalog.finished(done)
        return done


def _as_stored(row: CatalogSegment, log: ObjectUpload, storing: Storing) -> CatalogSegment:
    """With what is known of the `.log` object once all of it was handed over."""
    stored_bytes = None if storing.transform.nothing else log.size_bytes
    key_id = None if storing.encryption is None else storing.encryption.key_id
    return replace(row, remote=replace(row.remote, log_crc=log.crc, stored_bytes=stored_bytes, key_id=key_id))


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


def metadata_of(row: CatalogSegment, owner: Ownership) -> Mapping[str, str]:
    """The user metadata of its `.indexes` and its manifest."""
    extras = SegmentExtras(
        log_crc=row.remote.log_crc,
        indexes_crc=row.remote.indexes_crc,
        append_ms=row.remote.append_ms,
        largest_timestamp_offset=row.remote.largest_timestamp_offset,
        records=row.records,
        epoch=owner.epoch,
        incarnation=owner.incarnation,
    )
    return to_metadata(extras)


def manifest_of(
    remote: RemoteSegment,
    chunks: ChunkIndex,
    *,
    node_id: int,
    written_ms: int,
    compressed: bool = False,
    encryption: Encryption | None = None,
) -> Manifest:
    return Manifest(
        topic=remote.topic,
        topic_id=remote.part.topic_id,
        partition=remote.part.partition,
        segment_id=remote.segment_id,
        base=remote.base,
        next_base=remote.next_base,
        largest_timestamp_ms=remote.largest_timestamp_ms,
        node_id=node_id,
        written_ms=written_ms,
        epochs=remote.epochs,
        chunks=chunks,
        layout=remote.layout,
        compressed=compressed,
        encryption=encryption,
        transactions_empty=remote.layout.transaction is None,
    )
