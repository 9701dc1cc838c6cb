"""A store that has no requests, a directory, metered as if it were S3: each call counts as the request it would be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from typing_extensions import Buffer

from tierd.remote.meter import Meter
from tierd.remote.store import PART_BYTES, DeleteOutcome, ObjectInfo, ObjectStore, Upload, UploadInfo

Item = TypeVar("Item")
Result = TypeVar("Result")
_PAGE = 1000
"""Keys that one request lists or deletes."""


class MeteredUpload:
    """An Upload whose parts are metered."""

    def __init__(self, upload: Upload, key: str, meter: Meter) -> None:
        self._upload = upload
        self._key = key
        self._meter = meter

    def put_part(self, number: int, data: Buffer, *, crc32c: int) -> None:
        self._meter.sent("UploadPart", self._key, memoryview(data).nbytes)
        self._upload.put_part(number, data, crc32c=crc32c)

    def complete(self) -> ObjectInfo:
        self._meter.sent("CompleteMultipartUpload", self._key)
        return self._upload.complete()

    def abort(self) -> None:
        self._meter.sent("AbortMultipartUpload", self._key)
        self._upload.abort()


class MeteredStore:
    """The ObjectStore *plain*, its calls metered."""

    def __init__(self, plain: ObjectStore, meter: Meter) -> None:
        self.plain = plain
        self._meter = meter

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
        self._meter.sent("PutObject", key, memoryview(data).nbytes)
        return self.plain.put(
            key, data, crc32c=crc32c, metadata=metadata, if_none_match=if_none_match, if_match=if_match
        )

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> MeteredUpload:
        self._meter.sent("CreateMultipartUpload", key)
        return MeteredUpload(self.plain.begin_upload(key, metadata, part_bytes=part_bytes), key, self._meter)

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        self._meter.sent("GetObject", key)
        body = self.plain.get(key, start, stop, if_match=if_match)
        self._meter.received("GetObject", key, len(body))
        return body

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], Result], *, if_match: str | None = None
    ) -> Result:
        def metered(pieces: Iterator[bytes]) -> Result:
            self._meter.sent("GetObject", key)
            return use(self._received(key, pieces))

        return self.plain.pieces(key, start, stop, metered, if_match=if_match)

    def _received(self, key: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._meter.received("GetObject", key, len(piece))
            yield piece

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        self._meter.sent("GetObject", key)
        info, body = self.plain.get_with_info(key)
        self._meter.received("GetObject", key, len(body))
        return info, body

    def head(self, key: str) -> ObjectInfo:
        self._meter.sent("HeadObject", key)
        return self.plain.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._pages("ListObjectsV2", prefix, self.plain.list(prefix, start_after))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self._pages("ListObjectsV2", prefix, self.plain.list_folders(prefix))

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        for at in range(0, len(keys), _PAGE):
            self._meter.sent("DeleteObjects", keys[at])
        return self.plain.delete(keys)

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        return self._pages("ListMultipartUploads", prefix, self.plain.list_uploads(prefix))

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._meter.sent("AbortMultipartUpload", key)
        self.plain.abort_upload(key, upload_id)

    def now_ms(self) -> int | None:
        return self.plain.now_ms()

    def close(self) -> None:
        self.plain.close()

    def _pages(self, operation: str, prefix: str, items: Iterator[Item]) -> Iterator[Item]:
        self._meter.sent(operation, prefix)
        for number, item in enumerate(items):
            if number and number % _PAGE == 0:
                self._meter.sent(operation, prefix)
            yield item
