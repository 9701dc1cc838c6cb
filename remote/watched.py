"""A store that knows since when the bucket has not answered: what a health check asks. Any thread."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from typing_extensions import Buffer

from tierd.base.clock import Clock
from tierd.base.errors import RemoteUnavailable
from tierd.remote.store import PART_BYTES, DeleteOutcome, ObjectInfo, ObjectStore, Upload, UploadInfo

Item = TypeVar("Item")


class Calls:
    """Calls of the bucket that are under way, and how long it has said nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = count()
        self._under_way: dict[int, int] = {}
        self._since_ms: int | None = None
        self._own = threading.local()

    def went_on(self, _: int) -> None:
        """The call of this thread waits for a limit of ours, not for the bucket: its bytes move."""
        number, now_ms = getattr(self._own, "number", None), self._clock.monotonic_ms()
        with self._lock:
            if number in self._under_way:
                self._under_way[number] = now_ms
            if self._since_ms is not None:
                self._since_ms = now_ms

    @contextmanager
    def one(self) -> Iterator[None]:
        """A refusal is an answer, too; only a bucket that is away, or still thinking, is silent."""
        number, begun_ms = next(self._numbers), self._clock.monotonic_ms()
        self._own.number = number
        with self._lock:
            self._under_way[number] = begun_ms
            if self._since_ms is None:
                self._since_ms = begun_ms
        answered = True
        try:
            yield
        except RemoteUnavailable:
            answered = False
            raise
        finally:
            with self._lock:
                del self._under_way[number]
                if answered:
                    self._since_ms = self._clock.monotonic_ms() if self._under_way else None

    @property
    def silent_ms(self) -> int:
        """Since the first call that got no answer, when none got one since; 0 when all is well."""
        since_ms = self._since_ms
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    @property
    def oldest_ms(self) -> int:
        """Age of the oldest call under way; 0 without any."""
        with self._lock:
            begun_ms = min(self._under_way.values(), default=None)
        return 0 if begun_ms is None else self._clock.monotonic_ms() - begun_ms


class WatchedUpload:
    """An Upload whose calls are watched."""

    def __init__(self, upload: Upload, calls: Calls) -> None:
        self._upload = upload
        self._calls = calls

    def put_part(self, number: int, data: Buffer, *, crc32c: int) -> None:
        with self._calls.one():
            self._upload.put_part(number, data, crc32c=crc32c)

    def complete(self) -> ObjectInfo:
        with self._calls.one():
            return self._upload.complete()

    def abort(self) -> None:
        with self._calls.one():
            self._upload.abort()


class WatchedStore:
    """The ObjectStore *plain*, its calls watched."""

    def __init__(self, plain: ObjectStore, clock: Clock) -> None:
        self.plain = plain
        self.calls = Calls(clock)

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
        with self.calls.one():
            return self.plain.put(
                key, data, crc32c=crc32c, metadata=metadata, if_none_match=if_none_match, if_match=if_match
            )

    def begin_upload(
        self, key: str, metadata: Mapping[str, str] | None = None, *, part_bytes: int = PART_BYTES
    ) -> WatchedUpload:
        with self.calls.one():
            return WatchedUpload(self.plain.begin_upload(key, metadata, part_bytes=part_bytes), self.calls)

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        with self.calls.one():
            return self.plain.get(key, start, stop, if_match=if_match)

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], Item], *, if_match: str | None = None
    ) -> Item:
        with self.calls.one():
            return self.plain.pieces(key, start, stop, use, if_match=if_match)

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        with self.calls.one():
            return self.plain.get_with_info(key)

    def head(self, key: str) -> ObjectInfo:
        with self.calls.one():
            return self.plain.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._each(lambda: self.plain.list(prefix, start_after))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self._each(lambda: self.plain.list_folders(prefix))

    def _each(self, begin: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        with self.calls.one():
            items = begin()
            found = next(items, None)
        while found is not None:
            yield found
            with self.calls.one():
                found = next(items, None)

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        with self.calls.one():
            return self.plain.delete(keys)

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        return self._each(lambda: self.plain.list_uploads(prefix))

    def abort_upload(self, key: str, upload_id: str) -> None:
        with self.calls.one():
            self.plain.abort_upload(key, upload_id)

    def now_ms(self) -> int | None:
        return self.plain.now_ms()

    def close(self) -> None:
        self.plain.close()
