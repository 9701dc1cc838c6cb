"""The object store as tierd needs it: one contract (`tests/contract/`), three backends (s3, file, memory).

Calls block and may come from any thread. Keys are whole keys, the prefix included (`keys.Keys` makes them).
Every call may raise RemoteUnavailable (or a subclass: Throttled, AccessRefused, BucketMissing, Damaged) after the
backend's own bounded retries; RequestRefused is final.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from typing_extensions import Buffer

T = TypeVar("T")

PART_BYTES = 16 * 1024 * 1024
"""Size of a multipart part unless told otherwise; every part but the last has it."""

PIECE_BYTES = 512 * 1024
"""Most that `pieces` gives at a time: it stays in a processor's cache, and its memory is used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What the bucket says of one object."""

    key: str
    size: int
    """Bytes."""
    etag: str
    """Opaque; changes whenever the content does. To be handed back as it is (`if_match`)."""
    modified_ms: int
    """When it was written, by the bucket's clock; whole seconds on S3."""
    crc32c: int | None = None
    """CRC-32C of the whole object; None when the bucket does not say (always None in listings)."""
    metadata: Mapping[str, str] | None = None
    """User metadata, keys in lower case; None when unknown (always in listings; lost by copy tools)."""


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """One key's answer. Gone, never there: `refused` is None."""

    key: str
    refused: str | None
    """Why it stays (code and message: denied, locked), or None."""
    until_ms: int | None = None
    """Until when it is locked, where the bucket says so."""


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """A multipart upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    started_ms: int


class Upload(Protocol):
    """One multipart upload. Nothing of it is visible under its key before `complete` returns."""

    def put_part(self, number: int, data: Buffer, *, crc32c: int) -> None:
        """Send part *number* (from 1). Any order, several threads at once; sending a number again replaces it.

        Every part but the last has the size that `begin_upload` was told. Raises Damaged when the CRC differs.
        """

    def complete(self) -> ObjectInfo:
        """Join parts 1..n without a gap. Repeating it after a lost answer is fine. CRC of the whole in the answer."""

    def abort(self) -> None:
        """Drop the parts; fine when it is gone already."""


class ObjectStore(Protocol):
    """A bucket. See the module's docstring for threads and errors."""

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
        """Store *data* whole; visible to every reader when it returns.

        *if_none_match*: only when the key is free. *if_match*: only when the object has this ETag (a missing one fails
        too). Raises PreconditionFailed. When a retry of ours meets our own bytes (the first answer was lost),
        that is success. Raises Damaged when the bytes do not have *crc32c*.
        """

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> Upload:
        """Begin a multipart upload of parts of *part_bytes* (>= 5 MiB on S3), the last one shorter or equal."""

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        """Bytes [start, stop) of the object, cut at its end; the whole object without both.

        Raises NotFound; PreconditionFailed when *if_match* is given and the object changed; RequestRefused when *start*
        is at or above the object's size. A body shorter than promised is never returned.
        """

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], T], *, if_match: str | None = None
    ) -> T:
        """What *use* makes of bytes [start, stop), given to it piece by piece as they come; as `get` otherwise.

        A try that fails in the middle raises inside *use*, which is then called again with all pieces from the first.
        """

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        """The whole (small) object and the ETag that belongs to exactly these bytes. Raises NotFound."""

    def head(self, key: str) -> ObjectInfo:
        """Raises NotFound."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose key begins with *prefix* (and is above *start_after*), in byte order within one folder.

        Across folders the order is the server's (SeaweedFS: folder by folder); *start_after* is for one folder.
        """

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Distinct `<prefix>...up to and with the next "/"` of the keys below *prefix*, each once.

        Some servers still list a folder whose last object was just deleted.
        """

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        """Delete each key; a missing one counts as deleted. One outcome per key, in order. Any number of keys."""

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]: ...

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Drop an upload found by `list_uploads`; fine when it is gone already."""

    def now_ms(self) -> int | None:
        """The bucket's clock now, from the `Date` of its last answer and the time since; None before any answer."""

    def close(self) -> None:
        """Let waits and retries end at once (they raise RemoteUnavailable); no call may follow."""
