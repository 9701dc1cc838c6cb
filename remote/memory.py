"""An object store in memory, for tests: the same contract, and a hook to count requests and to make them fail."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from typing_extensions import Buffer

from tierd.base.clock import Clock
from tierd.remote import crc
from tierd.remote.errors import Damaged, NotFound, PreconditionFailed, RequestRefused
from tierd.remote.store import PART_BYTES, PIECE_BYTES, DeleteOutcome, ObjectInfo, UploadInfo

T = TypeVar("T")

Hook = Callable[[str, str], None]
"""Called with (operation, key) and may raise. Operations are the method names, and put_part, complete."""


def _nothing(operation: str, key: str) -> None:
    """The hook that lets everything pass."""


@dataclass(slots=True)
class _Object:
    data: bytes
    info: ObjectInfo


@dataclass(slots=True)
class MemoryUpload:
    """Parts wait here until `complete`."""

    store: "MemoryStore"
    key: str
    upload_id: str
    metadata: Mapping[str, str] | None
    started_ms: int
    parts: dict[int, bytes] = field(default_factory=dict)
    done: ObjectInfo | None = None

    def put_part(self, number: int, data: Buffer, *, crc32c: int) -> None:
        self.store.before("put_part", self.key)
        self.parts[number] = _checked(self.key, data, crc32c)
        self.store.after("put_part", self.key)

    def complete(self) -> ObjectInfo:
        self.store.before("complete", self.key)
        if self.done is not None:
            return self.done
        if self.upload_id not in self.store.uploads:
            raise NotFound(f"{self.key} (upload {self.upload_id})")
        if not self.parts or sorted(self.parts) != list(range(1, len(self.parts) + 1)):
            raise RequestRefused(self.key, "InvalidPart", f"parts {sorted(self.parts)} are not 1..n")
        whole = b"".join(self.parts[n] for n in sorted(self.parts))
        self.done = info = self.store.keep(self.key, whole, self.metadata)
        self.store.uploads.pop(self.upload_id, None)
        self.store.after("complete", self.key)
        return info

    def abort(self) -> None:
        self.store.abort_upload(self.key, self.upload_id)


class MemoryStore:
    """Set `before` to count or fail requests, `after` to lose the answer of one that took effect."""

    def __init__(self, clock: Clock) -> None:
        self.before: Hook = _nothing
        self.after: Hook = _nothing
        self.uploads: dict[str, MemoryUpload] = {}
        self._clock = clock
        self._objects: dict[str, _Object] = {}
        self._lock = threading.Lock()
        self._ids = itertools.count(1)

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
        self.before("put", key)
        body = _checked(key, data, crc32c)
        with self._lock:
            old = self._objects.get(key)
            if if_none_match and old is not None:
                raise PreconditionFailed(key, "the object is there already")
            if if_match is not None and (old is None or old.info.etag != if_match):
                raise PreconditionFailed(key, f"the object does not have ETag {if_match}")
            info = self._keep(key, body, metadata)
        self.after("put", key)
        return info

    def keep(self, key: str, data: bytes, metadata: Mapping[str, str] | None) -> ObjectInfo:
        """Store without conditions or hooks (tests also damage objects with it)."""
        with self._lock:
            return self._keep(key, data, metadata)

    def _keep(self, key: str, data: bytes, metadata: Mapping[str, str] | None) -> ObjectInfo:
        checksum = crc.crc32c(data)
        info = ObjectInfo(
            key=key,
            size=len(data),
            etag=f'"{checksum:08x}-{len(data)}"',
            modified_ms=self._clock.now_ms(),
            crc32c=checksum,
            metadata={name.lower(): value for name, value in (metadata or {}).items()},
        )
        self._objects[key] = _Object(data, info)
        return info

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> MemoryUpload:
        self.before("begin_upload", key)
        upload = MemoryUpload(self, key, f"upload-{next(self._ids)}", metadata, self._clock.now_ms())
        self.uploads[upload.upload_id] = upload
        self.after("begin_upload", key)
        return upload

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        self.before("get", key)
        found = self._find(key)
        if if_match is not None and found.info.etag != if_match:
            raise PreconditionFailed(key, f"the object does not have ETag {if_match}")
        if start is not None and start >= found.info.size:
            raise RequestRefused(key, "InvalidRange", f"byte {start} of {found.info.size}")
        self.after("get", key)
        return found.data[start:stop]

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], T], *, if_match: str | None = None
    ) -> T:
        data = self.get(key, start, stop, if_match=if_match)
        return use(data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES))

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        self.before("get_with_info", key)
        found = self._find(key)
        self.after("get_with_info", key)
        return found.info, found.data

    def head(self, key: str) -> ObjectInfo:
        self.before("head", key)
        found = self._find(key)
        self.after("head", key)
        return found.info

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.before("list", prefix)
        with self._lock:
            keys = sorted(key for key in self._objects if key.startswith(prefix) and key > (start_after or ""))
            infos = [replace(self._objects[key].info, crc32c=None, metadata=None) for key in keys]
        yield from infos

    def list_folders(self, prefix: str) -> Iterator[str]:
        self.before("list_folders", prefix)
        with self._lock:
            tails = [key[len(prefix) :] for key in self._objects if key.startswith(prefix)]
        yield from sorted({prefix + tail[: tail.index("/") + 1] for tail in tails if "/" in tail})

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        for key in keys:
            self.before("delete", key)
            with self._lock:
                self._objects.pop(key, None)
            self.after("delete", key)
        return tuple(DeleteOutcome(key, None) for key in keys)

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        self.before("list_uploads", prefix)
        found = sorted((u.key, u.upload_id, u.started_ms) for u in self.uploads.values() if u.key.startswith(prefix))
        yield from (UploadInfo(*facts) for facts in found)

    def abort_upload(self, key: str, upload_id: str) -> None:
        self.before("abort_upload", key)
        self.uploads.pop(upload_id, None)
        self.after("abort_upload", key)

    def now_ms(self) -> int | None:
        return self._clock.now_ms()

    def close(self) -> None:
        """Nothing waits here."""

    def _find(self, key: str) -> _Object:
        with self._lock:
            found = self._objects.get(key)
        if found is None:
            raise NotFound(key)
        return found


def _checked(key: str, data: Buffer, expected: int) -> bytes:
    body = bytes(data)
    if crc.crc32c(body) != expected:
        raise Damaged(f"{key}: the bytes do not have the CRC-32C that was given with them")
    return body
