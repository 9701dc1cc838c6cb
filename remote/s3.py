"""S3 as the bucket, by boto3. Retries, checksums and error classes are tierd's own: botocore's take twice the CPU.

What a server lacks (`S3Features`, found by `probe`) is left out of requests; the defaults are those of AWS.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError
from typing_extensions import Buffer

from tierd.base.clock import Clock
from tierd.remote import crc, s3_delete, s3_facts, s3_frozen, s3_versions
from tierd.remote.errors import AccessRefused, Damaged, NotFound, PreconditionFailed, RequestRefused
from tierd.remote.facts import BucketFacts
from tierd.remote.frozen import Cold, Thawing
from tierd.remote.limits import Limits
from tierd.remote.meter import Meter
from tierd.remote.ranges import http_range
from tierd.remote.renewal import Renewal, files_of
from tierd.remote.retry import Retrier, RetryPolicy
from tierd.remote.s3_body import S3Body, body_of, size_of
from tierd.remote.s3_client import S3Options, http_headers, make_client
from tierd.remote.s3_errors import MAPPED, mapped
from tierd.remote.s3_upload import S3Upload
from tierd.remote.server_clock import ServerClock
from tierd.remote.store import PART_BYTES, PIECE_BYTES, DeleteOutcome, ObjectInfo, UploadInfo
from tierd.remote.versions import Version
from tierd.remote.watchdog import AGAIN_WITHIN, Watchdog, waited

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Features", "S3Options", "S3Store"]

T = TypeVar("T")
_PARTIAL = 206
_QUIET = "complete_multipart_upload"
"""Takes minutes, and sends blanks meanwhile."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Features:
    """What the server can do beyond the common ground."""

    part_checksums: bool = True
    """CRC-32C of multipart uploads: of each part, and of the whole object (FULL_OBJECT)."""


class S3Store:
    """See the module's docstring."""

    def __init__(
        self,
        bucket: str,
        options: S3Options,
        *,
        clock: Clock,
        features: S3Features | None = None,
        policy: RetryPolicy | None = None,
        meter: Meter | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._meter = meter or Meter()
        self.limits = limits or Limits(clock)
        self.limits.told.append(waited)
        self.features = features or S3Features()
        self.requests: Counter[str] = Counter()
        """Requests sent, retries included, by S3's name of the operation."""
        self._options = options
        self.client: S3Client = make_client(options)
        self.bucket = bucket
        self._clock = ServerClock(clock)
        self._retrier = Retrier(policy or RetryPolicy(limit_ms=AGAIN_WITHIN * options.timeout_ms), clock)
        self._watchdog = Watchdog(clock, options.timeout_ms)
        self._counting = threading.Lock()
        self._renewal = Renewal(files_of(options, os.environ), self.renew, clock=clock)
        self._renewal.start()

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
        view = memoryview(data)
        conditions: dict[str, Any] = {"IfNoneMatch": "*"} if if_none_match else {}
        if if_match is not None:
            conditions["IfMatch"] = if_match

        def send(failures: int) -> ObjectInfo:
            try:
                answer = self.call(
                    key,
                    self.client.put_object,
                    Key=key,
                    Body=body_of(view, self.limits),
                    ChecksumCRC32C=crc.to_header(crc32c),
                    Metadata=dict(metadata or {}),
                    **conditions,
                )
            except (PreconditionFailed, NotFound) as refused:
                return self._ours(key, view, refused, failures)
            return self.stored(key, answer, view.nbytes, crc32c, metadata)

        return self._retrier.run(send)

    def _ours(self, key: str, body: memoryview, refused: PreconditionFailed | NotFound, failures: int) -> ObjectInfo:
        """A condition failed: after a failed try the object in the way may be ours, its answer lost."""
        if failures:
            try:
                info, there = self.get_with_info(key)
            except NotFound:
                raise refused from None
            if there == body:
                return info
        if isinstance(refused, NotFound):  # how AWS answers If-Match on a missing key
            raise PreconditionFailed(key, "the object is not there") from refused
        raise refused

    def stored(
        self, key: str, answer: Mapping[str, Any], size: int, crc32c: int, metadata: Mapping[str, str] | None
    ) -> ObjectInfo:
        """What a successful PUT or completed upload says. Raises Damaged when the server summed up other bytes."""
        said = crc.from_header(answer.get("ChecksumCRC32C"))
        if said is not None and said != crc32c:
            raise Damaged(f"{key}: the server stored bytes of another CRC-32C")
        return ObjectInfo(
            key=key,
            size=size,
            etag=answer["ETag"],
            modified_ms=self._clock.now_ms() or 0,
            crc32c=said,
            metadata={name.lower(): value for name, value in (metadata or {}).items()},
        )

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> S3Upload:
        checksums: dict[str, Any] = {}
        if self.features.part_checksums:
            checksums = {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"}

        def send(failures: int) -> S3Upload:
            answer = self.call(
                key, self.client.create_multipart_upload, Key=key, Metadata=dict(metadata or {}), **checksums
            )
            return S3Upload(self, self._retrier, key, answer["UploadId"], metadata)

        return self._retrier.run(send)

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        wanted = _wanted(start, stop, if_match)

        def send(failures: int) -> bytes:
            answer, body = self._get(key, wanted)
            _held_to_range(key, wanted, answer)
            return body

        return self._retrier.run(send)

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], T], *, if_match: str | None = None
    ) -> T:
        wanted = _wanted(start, stop, if_match)

        def send(failures: int) -> T:
            answer = self.call(key, self.client.get_object, Key=key, **wanted)
            with answer["Body"] as stream:
                _held_to_range(key, wanted, answer)
                self._meter.received("get_object", key, answer["ContentLength"])
                return use(_pieces(key, stream, answer["ContentLength"], self._watchdog, self.limits))

        return self._retrier.run(send)

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        def send(failures: int) -> tuple[ObjectInfo, bytes]:
            answer, body = self._get(key, {})
            return _info(key, answer), body

        return self._retrier.run(send)

    def _get(self, key: str, wanted: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
        """One try: the answer and its whole body, held against length and (of a whole object) checksum."""
        answer = self.call(key, self.client.get_object, Key=key, **wanted)
        try:
            with answer["Body"] as stream:
                body = self._body(key, stream, answer["ContentLength"])
        except MAPPED as error:
            raise mapped(key, error) from error
        if len(body) != answer["ContentLength"]:
            raise Damaged(f"{key}: {len(body)} of {answer['ContentLength']} bytes came")
        self._meter.received("get_object", key, len(body))
        said = crc.from_header(http_headers(answer).get("x-amz-checksum-crc32c"))
        if "Range" not in wanted and said is not None and said != crc.crc32c(body):
            raise Damaged(f"{key}: the bytes that came do not have the stored CRC-32C")
        return answer, body

    def _body(self, key: str, stream: Any, length: int) -> bytes:
        if self.limits.downloads_limited:
            return b"".join(_pieces(key, stream, length, self._watchdog, self.limits))
        with self._watchdog.reading(length):
            body: bytes = stream.read()
        return body

    def head(self, key: str) -> ObjectInfo:
        def send(failures: int) -> ObjectInfo:
            return _info(key, self.call(key, self.client.head_object, Key=key, ChecksumMode="ENABLED"))

        return self._retrier.run(send)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        after: dict[str, Any] = {} if start_after is None else {"StartAfter": start_after}
        for page in self.pages(prefix, after):
            for found in page.get("Contents", ()):
                yield ObjectInfo(
                    key=found["Key"],
                    size=found["Size"],
                    etag=found["ETag"],
                    modified_ms=_ms(found["LastModified"]),
                )

    def list_folders(self, prefix: str) -> Iterator[str]:
        for page in self.pages(prefix, {"Delimiter": "/"}):
            yield from (found["Prefix"] for found in page.get("CommonPrefixes", ()))

    def pages(self, prefix: str, wanted: Mapping[str, Any] = NOTHING) -> Iterator[Mapping[str, Any]]:
        """Answers of LIST, one after the other."""
        more: dict[str, Any] = dict(wanted)
        while True:
            page = self.retried(prefix, self.client.list_objects_v2, Prefix=prefix, **more)
            yield page
            if not page.get("IsTruncated"):
                return
            more = {**wanted, "ContinuationToken": page["NextContinuationToken"]}

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        return s3_delete.delete(self, self._retrier, keys)

    def facts(self) -> BucketFacts:
        """See `facts.FactStore`."""
        return s3_facts.facts(self)

    def keeps_versions(self) -> bool:
        """See `versions.VersionedStore`, as of the next two."""
        return bool(self.retried("", self.client.get_bucket_versioning).get("Status"))

    def list_versions(self, prefix: str) -> Iterator[tuple[Version, ...]]:
        return s3_versions.list_versions(self, prefix)

    def delete_versions(self, targets: Sequence[tuple[str, str]]) -> tuple[DeleteOutcome, ...]:
        return s3_delete.delete_versions(self, self._retrier, targets)

    def list_cold(self, prefix: str) -> Iterator[Cold]:
        """See `frozen.FreezingStore`, as of the next two."""
        return s3_frozen.list_cold(self, prefix)

    def thawing(self, key: str) -> Thawing:
        return s3_frozen.thawing(self, key)

    def thaw(self, key: str, storage_class: str, days: int, tier: str) -> None:
        s3_frozen.thaw(self, key, storage_class, days, tier)

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        more: dict[str, Any] = {}
        while True:
            page = self.retried(prefix, self.client.list_multipart_uploads, Prefix=prefix, **more)
            for found in page.get("Uploads", ()):
                yield UploadInfo(found["Key"], found["UploadId"], _ms(found["Initiated"]))
            if not page.get("IsTruncated"):
                return
            more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def abort_upload(self, key: str, upload_id: str) -> None:
        try:
            self.retried(key, self.client.abort_multipart_upload, Key=key, UploadId=upload_id)
        except NotFound:
            return  # gone already

    def now_ms(self) -> int | None:
        return self._clock.now_ms()

    def renew(self) -> None:
        """Credentials and certificates anew, for the requests to come; those under way end with the old ones.

        Raises Usage, and all stays as it is.
        """
        self.client = make_client(self._options)

    def close(self) -> None:
        self._renewal.close()
        self.limits.close()
        self._retrier.close()
        self._watchdog.close()
        self.client.close()

    def retried(self, key: str, method: Callable[..., Any], **params: Any) -> Any:
        """`call` with retries, for requests that may simply be sent again."""
        return self._retrier.run(lambda failures: self.call(key, method, **params))

    def call(self, key: str, method: Callable[..., Any], **params: Any) -> Any:
        """One request, one try: counted, its `Date` noted, its errors mapped.

        A refusal is answered by a look whether there are newer credentials; then it has another try, with these.
        """
        while True:
            used = self.client
            try:
                return self._once(key, used, method.__name__, params)
            except AccessRefused as error:
                look = self._renewal.look if error.denied else self._renewal.refused
                if not look() and self.client is used:
                    raise
            if isinstance(body := params.get("Body"), S3Body):
                body.seek(0)

    def _once(self, key: str, client: "S3Client", operation: str, params: Mapping[str, Any]) -> Any:
        self.limits.request()
        if isinstance(small := params.get("Body"), bytearray):
            self.limits.upload(len(small))
        with self._counting:
            self.requests[operation] += 1
        sent_bytes = size_of(params.get("Body"))
        self._meter.sent(operation, key, sent_bytes)
        try:
            with self._watchdog.request(sent_bytes, may_be_quiet=operation == _QUIET):
                answer = getattr(client, operation)(Bucket=self.bucket, **params)
        except ClientError as error:
            self._clock.saw(http_headers(error.response).get("date"))
            raise mapped(key, error) from error
        except MAPPED as error:
            raise mapped(key, error) from error
        self._clock.saw(http_headers(answer).get("date"))
        return answer


def _info(key: str, answer: Mapping[str, Any]) -> ObjectInfo:
    checksum = answer.get("ChecksumCRC32C") or http_headers(answer).get("x-amz-checksum-crc32c")
    return ObjectInfo(
        key=key,
        size=answer["ContentLength"],
        etag=answer["ETag"],
        modified_ms=_ms(answer["LastModified"]),
        crc32c=crc.from_header(checksum),
        metadata={name.lower(): value for name, value in answer.get("Metadata", {}).items()},
    )


def _wanted(start: int | None, stop: int | None, if_match: str | None) -> dict[str, Any]:
    wanted: dict[str, Any] = {} if if_match is None else {"IfMatch": if_match}
    span = http_range(start, stop)
    if span is not None:
        wanted["Range"] = span
    return wanted


def _held_to_range(key: str, wanted: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    if "Range" in wanted and answer["ResponseMetadata"]["HTTPStatusCode"] != _PARTIAL:
        raise RequestRefused(key, "NoRange", "the server ignores Range: tierd cannot use it")


def _pieces(key: str, stream: Any, length: int, watchdog: Watchdog, limits: Limits) -> Iterator[bytes]:
    """A body of *length* bytes as it comes."""
    left, most = length, limits.download_piece(PIECE_BYTES)
    while left:
        limits.download(min(most, left))
        try:
            with watchdog.reading(min(most, left)):
                piece: bytes = stream.read(min(most, left))
        except MAPPED as error:
            raise mapped(key, error) from error
        if not piece:
            raise Damaged(f"{key}: {length - left} of {length} bytes came")
        left -= len(piece)
        yield piece


def _ms(when: datetime) -> int:
    return int(when.timestamp() * 1000)
