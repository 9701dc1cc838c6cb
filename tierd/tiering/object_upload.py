"""Sends one object in parts of equal size, or whole when it is not larger than one. Blocking; see `log_upload`.

How large it will be need not be known: the first part waits for a second one before a multipart upload is begun.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tierd.base.errors import TierdError
from tierd.remote.crc import combine
from tierd.remote.errors import AccessRefused, BucketMissing, Damaged
from tierd.remote.store import ObjectInfo, ObjectStore, Upload
from tierd.tiering.buffers import PartBuffers

PARTS_AHEAD = 2
"""Parts in flight beside the one that is being filled."""


@dataclass(frozen=True, slots=True)
class _Part:
    buffer: memoryview
    length: int
    crc: int


@dataclass(slots=True)
class ObjectUpload:
    """`part` for each, `close`, then `finish`; `abort` when any fails, or what is done between them. For one thread."""

    store: ObjectStore
    uploads: Executor
    """Its threads send."""
    buffers: PartBuffers
    key: str
    hints: Mapping[str, str]
    check_going: Callable[[], None]
    """Asked between parts; raises when the upload is to be given up."""
    on_bytes: Callable[[int], None]
    size_bytes: int = 0
    """Of the parts so far, as is the CRC-32C."""
    crc: int = 0
    _first: _Part | None = None
    _whole: Future[ObjectInfo] | None = None
    _parts: Upload | None = None
    _flying: deque[Future[None]] = field(default_factory=deque)
    _number: int = 0

    def begin(self) -> None:
        """It will be more than one part; without this the second one shows that."""
        self._parts = self.store.begin_upload(self.key, self.hints, part_bytes=self.buffers.part_bytes)

    def part(self, buffer: memoryview, length: int, crc: int) -> None:
        """The next *length* bytes, in a buffer of the pool, which goes back there. All but the last part fill it."""
        self.crc = combine(self.crc, crc, length)
        self.size_bytes += length
        part = _Part(buffer, length, crc)
        if self._parts is None and self._first is None:
            self._first = part
            return
        if self._parts is None:
            self.begin()
        first, self._first = self._first, None
        for one in (first, part):
            if one is not None:
                self._send(one)

    def close(self) -> None:
        """There are no more parts: an only one is sent whole."""
        if self._first is not None:
            self.check_going()
            self._whole = self.uploads.submit(self._put, self._first)

    def finish(self) -> ObjectInfo:
        """Wait until all of it is there. Raises Damaged when the bucket's answer is about other bytes."""
        if self._whole is not None:
            info = self._whole.result()
        else:
            assert self._parts is not None
            self._wait(0)
            self.check_going()
            info = self._parts.complete()
        compare(info, self.size_bytes, self.crc)
        return info

    def abort(self) -> None:
        """Wait for what is on its way, so that an abort leaves nothing behind; errors do not matter any more."""
        flying: list[Future[Any]] = [*self._flying, *([self._whole] if self._whole else [])]
        for future in flying:
            if not future.cancel():
                future.exception()
        if self._parts is not None:
            with suppress(TierdError):  # the catalog's row names the parts; its delete aborts them
                self._parts.abort()

    @property
    def nothing_there(self) -> bool:
        """After `abort`: no request of it can have left anything in the bucket."""
        if self._parts is not None:
            return False
        return self._whole is None or self._whole.cancelled() or refused_at_once(self._whole.exception())

    def _put(self, part: _Part) -> ObjectInfo:
        info = self.store.put(self.key, part.buffer[: part.length], crc32c=part.crc, metadata=self.hints)
        self._sent(part)
        return info

    def _send(self, part: _Part) -> None:
        assert self._parts is not None
        self._wait(PARTS_AHEAD - 1)
        self._number += 1
        self._flying.append(self.uploads.submit(self._put_part, self._parts, self._number, part))

    def _put_part(self, parts: Upload, number: int, part: _Part) -> None:
        """In another thread."""
        parts.put_part(number, part.buffer[: part.length], crc32c=part.crc)
        self._sent(part)

    def _sent(self, part: _Part) -> None:
        """A buffer that a failed request held is not used again."""
        self.buffers.give(part.buffer)
        self.on_bytes(part.length)

    def _wait(self, left: int) -> None:
        """Until no more than *left* parts are in flight; raises what one of them raised."""
        while len(self._flying) > left:
            self._flying[0].result()
            self._flying.popleft()


def refused_at_once(error: BaseException | None) -> bool:
    """The bucket has said no, and no earlier try of the same request is in doubt: nothing was stored."""
    return isinstance(error, AccessRefused | BucketMissing) and error.at_once


def compare(info: ObjectInfo, size_bytes: int, crc: int) -> None:
    """Raise Damaged when the bucket's answer is not about the bytes that were sent."""
    if info.size != size_bytes or (info.crc32c is not None and info.crc32c != crc):
        raise Damaged(f"{info.key}: the bucket has {info.size} bytes (CRC {info.crc32c}), sent {size_bytes} ({crc})")
