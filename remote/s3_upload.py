"""A multipart upload on S3: parts with their CRC-32C, and the CRC of the whole at the end where the server knows it."""

import base64
import hashlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import Buffer

from tierd.remote import crc
from tierd.remote.errors import NotFound, RequestRefused
from tierd.remote.retry import Retrier
from tierd.remote.s3_body import body_of
from tierd.remote.store import ObjectInfo

if TYPE_CHECKING:
    from tierd.remote.s3 import S3Store


class S3Upload:
    """See `store.Upload`."""

    def __init__(
        self, store: "S3Store", retrier: Retrier, key: str, upload_id: str, metadata: Mapping[str, str] | None
    ) -> None:
        self.key = key
        self.upload_id = upload_id
        self._store = store
        self._retrier = retrier
        self._metadata = metadata
        self._parts: dict[int, tuple[dict[str, Any], int, int]] = {}
        """Number -> (as the completion names it, CRC, size)."""
        self._lock = threading.Lock()

    def put_part(self, number: int, data: Buffer, *, crc32c: int) -> None:
        view = memoryview(data)
        guard = self._guard(view, crc32c)

        def send(failures: int) -> Any:
            return self._store.call(
                self.key,
                self._store.client.upload_part,
                Key=self.key,
                UploadId=self.upload_id,
                PartNumber=number,
                Body=body_of(view, self._store.limits),
                **guard,
            )

        answer = self._retrier.run(send)
        named = {"PartNumber": number, "ETag": answer["ETag"]}
        if "ChecksumCRC32C" in guard:
            named["ChecksumCRC32C"] = guard["ChecksumCRC32C"]
        with self._lock:
            self._parts[number] = (named, crc32c, view.nbytes)

    def _guard(self, body: memoryview, crc32c: int) -> dict[str, str]:
        """What lets the server see damage on the way. MD5 costs thirty times as much: only without CRC-32C."""
        if self._store.features.part_checksums:
            return {"ChecksumCRC32C": crc.to_header(crc32c)}
        digest = hashlib.md5(body, usedforsecurity=False).digest()
        return {"ContentMD5": base64.b64encode(digest).decode("ascii")}

    def complete(self) -> ObjectInfo:
        with self._lock:
            parts = [self._parts[number] for number in sorted(self._parts)]
        if not parts or [named["PartNumber"] for named, _, _ in parts] != list(range(1, len(parts) + 1)):
            raise RequestRefused(self.key, "InvalidPart", "parts are missing")
        checksum = crc.combine_all((part_crc, size) for _, part_crc, size in parts)
        size = sum(part_size for _, _, part_size in parts)
        whole: dict[str, Any] = {}
        if self._store.features.part_checksums:
            whole = {"ChecksumCRC32C": crc.to_header(checksum), "ChecksumType": "FULL_OBJECT"}
        try:
            answer = self._store.retried(
                self.key,
                self._store.client.complete_multipart_upload,
                Key=self.key,
                UploadId=self.upload_id,
                MultipartUpload={"Parts": [named for named, _, _ in parts]},
                **whole,
            )
        except NotFound:
            return self._completed_before(checksum, size)
        return self._store.stored(self.key, answer, size, checksum, self._metadata)

    def _completed_before(self, checksum: int, size: int) -> ObjectInfo:
        """The upload is gone: completed by a try whose answer was lost, or aborted."""
        info = self._store.head(self.key)
        if info.size != size or info.crc32c not in (None, checksum):
            raise NotFound(f"{self.key} (upload {self.upload_id})")
        return info

    def abort(self) -> None:
        self._store.abort_upload(self.key, self.upload_id)
