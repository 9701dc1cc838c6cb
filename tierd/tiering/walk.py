"""Checks every batch of a segment while its bytes pass by in parts of any size, holding no more than a header.

Checked: the header, CRC-32C, offsets that rise and stay inside [base, next_base). What fails is never committed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from tierd.base.errors import CorruptFile
from tierd.remote.manifest import EpochStart
from tierd.storage.header import CRC_START, HEADER_BYTES, BatchHeader, parse_header


@dataclass(frozen=True, slots=True)
class BatchAt:
    """A batch and where it begins in the segment."""

    position: int
    header: BatchHeader


class SegmentWalker:
    """Feed it the segment's bytes in order, then `finish`. CorruptFile names file, byte and reason."""

    def __init__(
        self, base: int, next_base: int, where: str, on_batch: Callable[[BatchAt], None] | None = None
    ) -> None:
        self._on_batch = on_batch
        self._next = base
        self._end = next_base
        self._where = where
        self._position = 0
        self._head = bytearray()
        self._header: BatchHeader | None = None
        self._left = 0
        self._crc = 0
        self.records = 0
        self.batches = 0
        self.largest: BatchAt | None = None
        """First batch with the largest timestamp."""
        self.epochs: list[EpochStart] = []
        """Leader epochs as the batches carry them."""

    def feed(self, part: memoryview) -> None:
        at = 0
        while at < len(part):
            if self._header is not None:
                at += self._body(part[at : at + self._left])
            elif not self._head and len(part) - at >= HEADER_BYTES:
                self._begin(parse_header(part, at, self._where), part[at + CRC_START : at + HEADER_BYTES])
                at += HEADER_BYTES
            else:
                at += self._collect(part[at:])

    def finish(self) -> None:
        """Raise CorruptFile when the last batch is not whole."""
        if self._header is not None or self._head:
            raise CorruptFile(self._where, self._position, "the last batch is cut off")

    def _collect(self, part: memoryview) -> int:
        """A header that lies across two parts."""
        taken = part[: HEADER_BYTES - len(self._head)]
        self._head += taken
        if len(self._head) == HEADER_BYTES:
            head = bytes(self._head)
            self._head.clear()
            self._begin(parse_header(head, 0, self._where), memoryview(head)[CRC_START:])
        return len(taken)

    def _begin(self, header: BatchHeader, covered: memoryview) -> None:
        if header.base_offset < self._next or header.next_offset > self._end or header.last_offset_delta < 0:
            raise CorruptFile(
                self._where,
                self._position,
                f"batch over offsets [{header.base_offset}, {header.next_offset}),"
                f" expected inside [{self._next}, {self._end})",
            )
        self._header = header
        self._left = header.size_bytes - HEADER_BYTES
        self._crc = crc32c(covered)
        if self._left == 0:
            self._end_batch(header)

    def _body(self, part: memoryview) -> int:
        self._crc = crc32c(part, self._crc)
        self._left -= len(part)
        if self._left == 0 and self._header is not None:
            self._end_batch(self._header)
        return len(part)

    def _end_batch(self, header: BatchHeader) -> None:
        if self._crc != header.crc:
            raise CorruptFile(self._where, self._position, f"CRC of the batch at offset {header.base_offset} is wrong")
        if not self.epochs or header.leader_epoch > self.epochs[-1].epoch:
            self.epochs.append(EpochStart(header.leader_epoch, header.base_offset))
        if self.largest is None or header.max_timestamp_ms > self.largest.header.max_timestamp_ms:
            self.largest = BatchAt(self._position, header)
        self.records += header.count
        self.batches += 1
        if self._on_batch is not None:
            self._on_batch(BatchAt(self._position, header))
        self._next = header.next_offset
        self._position += header.size_bytes
        self._header = None


STEP_BYTES = 4 * 1024 * 1024


def walk_file(fd: int, size_bytes: int, walker: SegmentWalker) -> None:
    """Feed a whole segment file. Raises CorruptFile; one that shrinks meanwhile counts as cut off."""
    for position in range(0, size_bytes, STEP_BYTES):
        walker.feed(memoryview(os.pread(fd, min(STEP_BYTES, size_bytes - position), position)))
    walker.finish()
