"""A store that has no requests, a directory, metered and limited as if it were S3: each call counts as the request it
would be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from typing_extensions import Buffer

from tierd.base.clock import SystemClock
from tierd.remote.limits import Limits
from tierd.remote.meter import Meter
from tierd.remote.store import PART_BYTES, DeleteOutcome, ObjectInfo, ObjectStore, Upload, UploadInfo

Item = TypeVar("Item")
Result = TypeVar("Result")
_PAGE = 1000
"""Keys that one request lists or deletes."""


class MeteredUpload:
    """An Upload whose parts are metered."""

    def __init__(self, upload: Upload, key: str, asks: Callable[[str, str, int], None]) -> None:
        self._upload = upload
        self._key = key
        self._asks = asks

    def put_part(self, number: int, data: Buffer, *, crc32c: int) -> None:
        self._asks("UploadPart", self._key, memoryview(data).nbytes)
        self._upload.put_part(number, data, crc32c=crc32c)

    def complete(self) -> ObjectInfo:
        self._asks("CompleteMultipartUpload", self._key, 0)
        return self._upload.complete()

    def abort(self) -> None:
        self._asks("AbortMultipartUpload", self._key, 0)
        self._upload.abort()


class MeteredStore:
    """The ObjectStore *plain*, its calls metered."""

    def __init__(self, plain: ObjectStore, meter: Meter, limits: Limits | None = None) -> None:
        self.plain = plain
        self._meter = meter
        self._limits = limits or Limits(SystemClock())

    def _asks(self, operation: str, key: str, size_bytes: int = 0) -> None:
        """A request is about to be sent, *size_bytes* with it."""
        self._limits.request()
        self._limits.upload(size_bytes)
        self._meter.sent(operation, key, size_bytes)

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
        self._asks("PutObject", key, memoryview(data).nbytes)
        return self.plain.put(
            key, data, crc32c=crc32c, metadata=metadata, if_none_match=if_none_match, if_match=if_match
        )

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> MeteredUpload:
        self._asks("CreateMultipartUpload", key)
        return MeteredUpload(self.plain.begin_upload(key, metadata, part_bytes=part_bytes), key, self._asks)

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        self._asks("GetObject", key)
        body = self.plain.get(key, start, stop, if_match=if_match)
        self._limits.download(len(body))
        self._meter.received("GetObject", key, len(body))
        return body

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], Result], *, if_match: str | None = None
    ) -> Result:
        def metered(pieces: Iterator[bytes]) -> Result:
            self._asks("GetObject", key)
            return use(self._received(key, pieces))

        return self.plain.pieces(key, start, stop, metered, if_match=if_match)

    def _received(self, key: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._limits.download(len(piece))
            self._meter.received("GetObject", key, len(piece))
            yield piece

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        self._asks("GetObject", key)
        info, body = self.plain.get_with_info(key)
        self._limits.download(len(body))
        self._meter.received("GetObject", key, len(body))
        return info, body

    def head(self, key: str) -> ObjectInfo:
        self._asks("HeadObject", key)
        return self.plain.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._pages("ListObjectsV2", prefix, self.plain.list(prefix, start_after))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self._pages("ListObjectsV2", prefix, self.plain.list_folders(prefix))

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        for at in range(0, len(keys), _PAGE):
            self._asks("DeleteObjects", keys[at])
        return self.plain.delete(keys)

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        return self._pages("ListMultipartUploads", prefix, self.plain.list_uploads(prefix))

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._asks("AbortMultipartUpload", key)
        self.plain.abort_upload(key, upload_id)

    def now_ms(self) -> int | None:
        return self.plain.now_ms()

    def close(self) -> None:
        self._limits.close()
        self.plain.close()

    def _pages(self, operation: str, prefix: str, items: Iterator[Item]) -> Iterator[Item]:
        self._asks(operation, prefix)
        for number, item in enumerate(items):
            if number and number % _PAGE == 0:
                self._asks(operation, prefix)
            yield item
