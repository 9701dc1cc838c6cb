"""Sends a segment's `.log`: reads it part by part and checks every batch on the way. Blocking; see `copier`.

A part is read and checked while the two before it are on their way, in memory that is used again.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tierd.base.errors import CorruptFile, TierdError
from tierd.remote.crc import combine, crc32c
from tierd.remote.errors import AccessRefused, BucketMissing, Damaged
from tierd.remote.store import ObjectInfo, ObjectStore, Upload
from tierd.tiering.buffers import PartBuffers
from tierd.tiering.walk import SegmentWalker

PARTS_AHEAD = 2
"""Parts of one segment in flight beside the one being read and checked."""
STEP_BYTES = 1024 * 1024
"""Read and checked at a time: small enough to stay in the processor's cache for both sums."""


@dataclass(slots=True)
class LogUpload:
    """`send`, then `finish`; `abort` when either fails, or what is done between them. For one thread."""

    store: ObjectStore
    uploads: Executor
    """Its threads send; this one reads and checks."""
    buffers: PartBuffers
    key: str
    path: Path
    size_bytes: int
    walker: SegmentWalker
    hints: Mapping[str, str]
    check_going: Callable[[], None]
    """Asked between parts; raises when the copy is to be given up."""
    on_bytes: Callable[[int], None]
    _crc: int = 0
    _whole: Future[ObjectInfo] | None = None
    _parts: Upload | None = None
    _flying: deque[Future[None]] = field(default_factory=deque)

    def send(self, fd: int) -> int:
        """Read everything, send what fits; gives the CRC-32C of the file. Raises CorruptFile."""
        if self.size_bytes <= self.buffers.part_bytes:
            self._send_whole(fd)
        else:
            self._send_parts(fd)
        return self._crc

    def finish(self) -> ObjectInfo:
        """Wait until all of it is there. Raises Damaged when the bucket's answer is about other bytes."""
        if self._whole is not None:
            info = self._whole.result()
        else:
            assert self._parts is not None
            self._wait(0)
            self.check_going()
            info = self._parts.complete()
        compare(info, self.size_bytes, self._crc)
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

    # --- a small segment: one PUT ------------------------------------------------------------------------------------
    def _send_whole(self, fd: int) -> None:
        buffer = self.buffers.take()
        self._crc = self._read(fd, buffer[: self.size_bytes], 0)
        self.walker.finish()
        self.check_going()
        self._whole = self.uploads.submit(self._put, buffer)

    def _put(self, buffer: memoryview) -> ObjectInfo:
        info = self.store.put(self.key, buffer[: self.size_bytes], crc32c=self._crc, metadata=self.hints)
        self.buffers.give(buffer)
        self.on_bytes(self.size_bytes)
        return info

    # --- a larger one: multipart -------------------------------------------------------------------------------------
    def _send_parts(self, fd: int) -> None:
        part_bytes = self.buffers.part_bytes
        self._parts = self.store.begin_upload(self.key, self.hints, part_bytes=part_bytes)
        for number, position in enumerate(range(0, self.size_bytes, part_bytes), 1):
            self.check_going()
            buffer = self.buffers.take()
            length = min(part_bytes, self.size_bytes - position)
            crc = self._read(fd, buffer[:length], position)
            self._crc = combine(self._crc, crc, length)
            self._wait(PARTS_AHEAD - 1)
            self._flying.append(self.uploads.submit(self._put_part, self._parts, number, buffer, length, crc))
        self.walker.finish()

    def _put_part(self, parts: Upload, number: int, buffer: memoryview, length: int, crc: int) -> None:
        """In another thread. A buffer that a failed request held is not used again."""
        parts.put_part(number, buffer[:length], crc32c=crc)
        self.buffers.give(buffer)
        self.on_bytes(length)

    def _wait(self, left: int) -> None:
        """Until no more than *left* parts are in flight; raises what one of them raised."""
        while len(self._flying) > left:
            self._flying[0].result()
            self._flying.popleft()

    # --- reading -----------------------------------------------------------------------------------------------------
    def _read(self, fd: int, into: memoryview, position: int) -> int:
        """Fill *into* and check the batches; gives its CRC-32C."""
        crc = 0
        for at in range(0, len(into), STEP_BYTES):
            step = into[at : at + STEP_BYTES]
            got = os.preadv(fd, [step], position + at)
            if got != len(step):
                raise CorruptFile(str(self.path), position + at + got, "the file ends early")
            self.walker.feed(step)
            crc = crc32c(step, crc)
        return crc


def refused_at_once(error: BaseException | None) -> bool:
    """The bucket has said no, and no earlier try of the same request is in doubt: nothing was stored."""
    return isinstance(error, AccessRefused | BucketMissing) and error.at_once


def compare(info: ObjectInfo, size_bytes: int, crc: int) -> None:
    """Raise Damaged when the bucket's answer is not about the bytes that were sent."""
    if info.size != size_bytes or (info.crc32c is not None and info.crc32c != crc):
        raise Damaged(f"{info.key}: the bucket has {info.size} bytes (CRC {info.crc32c}), sent {size_bytes} ({crc})")
