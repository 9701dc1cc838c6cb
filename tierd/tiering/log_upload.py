"""Sends a segment's `.log`: reads it part by part and checks every batch on the way. Blocking; see `copier`.

A part is read and checked while the two before it are on their way, in memory that is used again.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from tierd.base.errors import CorruptFile
from tierd.remote.chunks import ChunkIndex, plain_chunks, sealed_chunks, variable_chunks
from tierd.remote.crc import crc32c
from tierd.remote.transform import SEAL_BYTES
from tierd.tiering.object_upload import ObjectUpload
from tierd.tiering.storing import Storing
from tierd.tiering.walk import SegmentWalker

STEP_BYTES = 1024 * 1024
"""Read and checked at a time: small enough to stay in the processor's cache for both sums."""


@dataclass(slots=True)
class LogReading:
    """A closed segment's file, read from its start to its end. For one thread."""

    path: Path
    size_bytes: int
    walker: SegmentWalker
    """Checks the batches as they pass by."""

    def read(self, fd: int, into: memoryview, position: int) -> int:
        """Fill *into* and check the batches; gives its CRC-32C. Raises CorruptFile."""
        crc = 0
        for at in range(0, len(into), STEP_BYTES):
            step = into[at : at + STEP_BYTES]
            got = os.preadv(fd, [step], position + at)
            if got != len(step):
                raise CorruptFile(str(self.path), position + at + got, "the file ends early")
            self.walker.feed(step)
            crc = crc32c(step, crc)
        return crc


def send_log(fd: int, reading: LogReading, upload: ObjectUpload, storing: Storing) -> ChunkIndex:
    """Read everything, send what fits; the rest is on its way when *upload* is finished. Raises CorruptFile."""
    if storing.transform.nothing:
        return _send_plain(fd, reading, upload)
    return _send_chunks(fd, reading, upload, storing)


def _send_plain(fd: int, reading: LogReading, upload: ObjectUpload) -> ChunkIndex:
    part_bytes = upload.buffers.part_bytes
    if reading.size_bytes > part_bytes:
        upload.begin()
    for position in range(0, reading.size_bytes, part_bytes):
        upload.check_going()
        buffer = upload.buffers.take()
        length = min(part_bytes, reading.size_bytes - position)
        upload.part(buffer, length, reading.read(fd, buffer[:length], position))
    reading.walker.finish()
    upload.close()
    return plain_chunks(reading.size_bytes)


def _send_chunks(fd: int, reading: LogReading, upload: ObjectUpload, storing: Storing) -> ChunkIndex:
    """The parts of the object are filled with one transformed chunk after another, whatever their ends."""
    size_bytes, chunk_bytes = reading.size_bytes, storing.chunk_bytes
    chunk = memoryview(bytearray(min(chunk_bytes, size_bytes)))
    filling = _Filling(upload)
    sizes = []
    for position in range(0, size_bytes, chunk_bytes):
        upload.check_going()
        piece = chunk[: size_bytes - position]
        reading.read(fd, piece, position)
        stored = storing.transform.store(piece)
        sizes.append(len(stored))
        filling.add(memoryview(stored))
    reading.walker.finish()
    filling.end()
    upload.close()
    if storing.transform.compressed:
        return variable_chunks(size_bytes, chunk_bytes, tuple(sizes))
    return sealed_chunks(size_bytes, chunk_bytes, SEAL_BYTES)


class _Filling:
    """Cuts what comes into the parts of an object."""

    def __init__(self, upload: ObjectUpload) -> None:
        self._upload = upload
        self._part_bytes = upload.buffers.part_bytes
        self._buffer: memoryview | None = None
        self._filled = 0

    def add(self, data: memoryview) -> None:
        while data:
            if self._buffer is None:
                self._buffer = self._upload.buffers.take()
            fits = data[: self._part_bytes - self._filled]
            self._buffer[self._filled : self._filled + len(fits)] = fits
            self._filled += len(fits)
            data = data[len(fits) :]
            if self._filled == self._part_bytes:
                self.end()

    def end(self) -> None:
        """What is left is the last part."""
        if self._buffer is not None:
            buffer, length = self._buffer, self._filled
            self._buffer, self._filled = None, 0
            self._upload.part(buffer, length, crc32c(buffer[:length]))
