"""A store that refuses to write, whatever asks for it: archive, restore and verify only read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from typing_extensions import Buffer

from tierd.base.errors import TierdError
from tierd.remote.store import PART_BYTES, DeleteOutcome, ObjectInfo, ObjectStore, Upload, UploadInfo

T = TypeVar("T")


class WriteRefused(TierdError):
    """Something wanted to change a bucket that is only read; a bug of ours."""


class ReadOnlyStore:
    """The ObjectStore *plain*; nothing that changes it gets through."""

    def __init__(self, plain: ObjectStore) -> None:
        self.plain = plain

    def refused(self, what: str) -> TierdError:
        """The error of a write."""
        return WriteRefused(f"{what}: this bucket is only read")

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
        raise self.refused(key)

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> Upload:
        raise self.refused(key)

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        raise self.refused(", ".join(keys))

    def abort_upload(self, key: str, upload_id: str) -> None:
        raise self.refused(key)

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        return self.plain.get(key, start, stop, if_match=if_match)

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], T], *, if_match: str | None = None
    ) -> T:
        return self.plain.pieces(key, start, stop, use, if_match=if_match)

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        return self.plain.get_with_info(key)

    def head(self, key: str) -> ObjectInfo:
        return self.plain.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.plain.list(prefix, start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self.plain.list_folders(prefix)

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        return self.plain.list_uploads(prefix)

    def now_ms(self) -> int | None:
        return self.plain.now_ms()

    def close(self) -> None:
        self.plain.close()
