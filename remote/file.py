"""A directory as the bucket: the same contract as S3, on one or several processes of this machine (LAYOUT.md).

Conditional writes are atomic under an `flock` per key; content is durable before it has a name; readers need no lock.
A directory that is a plain copy of an S3 bucket opens as it is: its ETags are then modification time and size.
"""

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from typing_extensions import Buffer

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.remote import crc, file_upload
from tierd.remote.errors import AccessRefused, Damaged, NotFound, PreconditionFailed, RequestRefused
from tierd.remote.file_disk import Folders, mapped
from tierd.remote.file_meta import (
    Meta,
    belongs,
    content_etag,
    file_crc,
    load_meta,
    parse_content_etag,
    stat_etag,
)
from tierd.remote.file_names import children
from tierd.remote.file_upload import FileUpload
from tierd.remote.store import PART_BYTES, PIECE_BYTES, DeleteOutcome, ObjectInfo, UploadInfo

T = TypeVar("T")
_READ_TRIES = 5


class FileStore:
    """See the module's docstring. *root* is made at the first write."""

    def __init__(self, root: Path, *, disk: Disk, clock: Clock) -> None:
        self._folders = Folders(root, disk, clock)
        self._clock = clock
        self._crc_of = functools.lru_cache(maxsize=4096)(_crc_as_of)

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        crc32c: int,
        metadata: Mapping[str, str] | None = None,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        if crc.crc32c(data) != crc32c:
            raise Damaged(f"{key}: the bytes do not have the CRC-32C that was given with them")
        path = self._folders.data(key)
        self._folders.check_there()
        with mapped(key), self._folders.locked(key):
            self._check(key, path, if_none_match=if_none_match, if_match=if_match)
            tmp = self._folders.new_tmp()
            try:
                self._folders.write_tmp(tmp, data)
                return self.name(key, tmp, crc32c, metadata)
            finally:
                self._folders.remove(tmp)  # what a failure left; nothing otherwise

    def name(self, key: str, tmp: Path, crc32c: int, metadata: Mapping[str, str] | None) -> ObjectInfo:
        """Under the key's lock: turn durable *tmp* into the object. The meta file goes first (see `file_meta`)."""
        facts = tmp.stat()
        meta = Meta(
            crc32c=crc32c,
            size=facts.st_size,
            mtime_ns=facts.st_mtime_ns,
            metadata={name.lower(): value for name, value in (metadata or {}).items()},
        )
        self._folders.write_meta(key, meta)
        self._folders.name(tmp, self._folders.data(key))
        return _info(key, facts, meta)

    def _check(self, key: str, path: Path, *, if_none_match: bool, if_match: str | None) -> None:
        if if_none_match and path.exists():
            raise PreconditionFailed(key, "the object is there already")
        if if_match is not None and not (path.is_file() and self._has_etag(key, path, if_match)):
            raise PreconditionFailed(key, f"the object does not have ETag {if_match}")

    def _has_etag(self, key: str, path: Path, etag: str) -> bool:
        """Also true for an ETag of old, when the meta file is lost but the content still has that CRC."""
        facts = path.stat()
        meta = self._meta(key, path, facts)
        if meta is not None or etag == stat_etag(facts):
            return etag == (meta.etag if meta else stat_etag(facts))
        known = parse_content_etag(etag)
        return known is not None and known == (self._crc_of(path, facts.st_mtime_ns, facts.st_size), facts.st_size)

    def _meta(self, key: str, path: Path, facts: os.stat_result) -> Meta | None:
        meta = load_meta(self._folders.meta(key))
        return meta if meta is not None and belongs(meta, facts, path) else None

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> FileUpload:
        self._folders.data(key)
        self._folders.check_there()
        with mapped(key):
            return file_upload.begin(
                self._folders, self.name, key, metadata or {}, part_bytes, started_ms=self._clock.now_ms()
            )

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        path = self._readable(key)
        with mapped(key), path.open("rb", buffering=0) as file:
            first, wanted = self._span(key, path, file.fileno(), start, stop, if_match)
            body = _pread_all(file.fileno(), wanted, first)
        if len(body) != wanted:
            raise Damaged(f"{key}: {len(body)} bytes at {first} where {wanted} should be")
        return body

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], T], *, if_match: str | None = None
    ) -> T:
        path = self._readable(key)
        with mapped(key):
            file = path.open("rb", buffering=0)
        with file:
            with mapped(key):
                first, wanted = self._span(key, path, file.fileno(), start, stop, if_match)
            return use(_pieces(key, file.fileno(), first, wanted))

    def _span(
        self, key: str, path: Path, fd: int, start: int | None, stop: int | None, if_match: str | None
    ) -> tuple[int, int]:
        """The first byte of what is asked for, and how many there are."""
        size = os.fstat(fd).st_size
        if if_match is not None and not self._has_etag(key, path, if_match):
            raise PreconditionFailed(key, f"the object does not have ETag {if_match}")
        first = start or 0
        if start is not None and first >= size:
            raise RequestRefused(key, "InvalidRange", f"byte {first} of {size}")
        return first, min(size if stop is None else stop, size) - first

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        path = self._readable(key)
        with mapped(key):
            for _ in range(_READ_TRIES):
                with path.open("rb", buffering=0) as file:
                    facts = os.fstat(file.fileno())
                    body = _pread_all(file.fileno(), facts.st_size, 0)
                meta = load_meta(self._folders.meta(key))
                if meta is None:
                    break
                if meta.etag == content_etag(crc.crc32c(body), len(body)):
                    return _info(key, facts, meta), body
                # Somebody is just writing it (the meta file goes first), or died doing so: look again, then believe.
        return _info(key, facts, None), body

    def head(self, key: str) -> ObjectInfo:
        path = self._readable(key)
        with mapped(key):
            return self._describe(key, path)

    def _describe(self, key: str, path: Path) -> ObjectInfo:
        facts = path.stat()
        return _info(key, facts, self._meta(key, path, facts))

    def _readable(self, key: str) -> Path:
        self._folders.check_there()
        try:
            path = self._folders.data(key)
            there = path.is_file()
        except (RequestRefused, OSError) as error:
            raise NotFound(key) from error
        if not there:
            raise NotFound(key)
        return path

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for key, path in self._walk(prefix, start_after or ""):
            try:
                with mapped(key):
                    info = self._describe(key, path)
            except NotFound:
                continue  # deleted since
            yield ObjectInfo(key=key, size=info.size, etag=info.etag, modified_ms=info.modified_ms)

    def _walk(self, prefix: str, after: str) -> Iterator[tuple[str, Path]]:
        self._folders.check_there()
        folder = prefix[: prefix.rfind("/") + 1]
        try:
            start = self._folders.data(folder[:-1]) if folder else self._folders.root
        except RequestRefused:
            return
        with mapped(prefix):
            yield from _files(start, folder, prefix, after)
        self._folders.check_there()  # a file system that went away meanwhile has shown less than there is

    def list_folders(self, prefix: str) -> Iterator[str]:
        last = None
        for key, _ in self._walk(prefix, ""):
            cut = key.find("/", len(prefix)) + 1
            if cut and key[:cut] != last:
                last = key[:cut]
                yield last

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        self._folders.check_there()
        touched: set[Path] = set()
        outcomes = tuple(self._delete_one(key, touched) for key in keys)
        with mapped("delete"):
            self._folders.settle(touched)
        return outcomes

    def _delete_one(self, key: str, touched: set[Path]) -> DeleteOutcome:
        try:
            data, meta = self._folders.data(key), self._folders.meta(key)
        except RequestRefused:
            return DeleteOutcome(key, None)  # such a key was never stored
        try:
            with mapped(key), self._folders.locked(key):
                if not data.is_dir():
                    self._folders.remove(data)
                    self._folders.remove(meta)
        except AccessRefused as error:
            return DeleteOutcome(key, str(error))
        touched.update((data.parent, meta.parent))
        return DeleteOutcome(key, None)

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        with mapped(prefix):
            yield from file_upload.begun(self._folders, prefix)

    def abort_upload(self, key: str, upload_id: str) -> None:
        with mapped(key):
            file_upload.drop(self._folders, upload_id)

    def now_ms(self) -> int | None:
        return self._clock.now_ms()

    def close(self) -> None:
        """Nothing waits here."""


def _info(key: str, facts: os.stat_result, meta: Meta | None) -> ObjectInfo:
    return ObjectInfo(
        key=key,
        size=facts.st_size,
        etag=stat_etag(facts) if meta is None else meta.etag,
        modified_ms=facts.st_mtime_ns // 1_000_000,
        crc32c=None if meta is None else meta.crc32c,
        metadata=None if meta is None else meta.metadata,
    )


def _crc_as_of(path: Path, mtime_ns: int, size: int) -> int:
    """The arguments behind *path* are the cache's key: other content has others."""
    return file_crc(path)


def _pread_all(fd: int, length: int, position: int) -> bytes:
    """As many of *length* bytes at *position* as there are; one system call may give less."""
    pieces = []
    while length > 0 and (piece := os.pread(fd, length, position)):
        pieces.append(piece)
        position += len(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _pieces(key: str, fd: int, first: int, wanted: int) -> Iterator[bytes]:
    stop = first + wanted
    for at in range(first, stop, PIECE_BYTES):
        length = min(PIECE_BYTES, stop - at)
        with mapped(key):
            piece = _pread_all(fd, length, at)
        if len(piece) != length:
            raise Damaged(f"{key}: {len(piece)} bytes at {at} where {length} should be")
        yield piece


def _files(folder: Path, key: str, prefix: str, after: str) -> Iterator[tuple[str, Path]]:
    """Keys below *folder* (whose own key is *key*) that begin with *prefix* and lie above *after*, in order."""
    for name, path in children(folder, top=not key):
        full = key + name
        if not name.endswith("/"):
            if full.startswith(prefix) and full > after:
                yield full, path
        elif (full.startswith(prefix) or prefix.startswith(full)) and (after < full or after.startswith(full)):
            yield from _files(path, full, prefix, after)
