"""Checks every batch of a segment while its bytes pass by in parts of any size, holding no more than a header.

Checked: the header, CRC-32C, offsets that rise and stay inside [base, next_base). What fails is never committed.
A batch inside one part costs about 2 us; building no object for it is what makes that so.
"""

import os
import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from tierd.base.errors import CorruptFile
from tierd.remote.manifest import EpochStart
from tierd.storage.header import CONTROL, CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader, parse_header

_FIELDS = struct.Struct(">qiibIhi8xq14xi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, largest timestamp, count."""
assert _FIELDS.size == HEADER_BYTES


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
        """Where in the segment the next batch begins."""
        self._head = bytearray()
        self._split: BatchHeader | None = None
        """The batch that lies across two parts; its body is still coming."""
        self._left = 0
        self._crc = 0
        self.records = 0
        self.batches = 0
        self.largest_ms: int | None = None
        """Largest timestamp of a batch header; -1 when no batch has one."""
        self.largest_at = 0
        """Where the first batch with it begins."""
        self.epochs: list[EpochStart] = []
        """Leader epochs as the batches carry them."""
        self.controls = array("q")
        """Offset and position of each control batch, one after the other."""

    def feed(self, part: memoryview) -> None:
        at = 0
        while at < len(part):
            if self._split is not None:
                at += self._body(self._split, part[at : at + self._left])
            elif self._head or len(part) - at < HEADER_BYTES:
                at += self._collect(part[at:])
            else:
                at = self._whole_batches(part, at)

    def finish(self) -> None:
        """Raise CorruptFile when the last batch is not whole."""
        if self._split is not None or self._head:
            raise CorruptFile(self._where, self._position, "the last batch is cut off")

    def _whole_batches(self, part: memoryview, at: int) -> int:
        """Batches that lie whole in *part* from *at* on; gives where it stopped, behind the header of a split one."""
        unpack, end = _FIELDS.unpack_from, len(part)
        while end - at >= HEADER_BYTES:
            base, length, epoch, magic, crc, attributes, delta, largest_ms, count = unpack(part, at)
            stop = at + length + LENGTH_END
            if stop > end or magic != MAGIC or length + LENGTH_END < HEADER_BYTES:
                self._begin(parse_header(part, at, self._where), part[at + CRC_START : at + HEADER_BYTES])
                return at + HEADER_BYTES
            if crc32c(part[at + CRC_START : stop]) != crc:
                self._bad_crc(base)
            self._count(base, delta, epoch, largest_ms, count)
            if attributes & CONTROL:
                self.controls.extend((base, self._position))
            if self._on_batch is not None:
                self._on_batch(BatchAt(self._position, parse_header(part, at, self._where)))
            self._position += stop - at
            at = stop
        return at

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
        self._split = header
        self._left = header.size_bytes - HEADER_BYTES
        self._crc = crc32c(covered)
        if self._left == 0:
            self._end_split(header)

    def _body(self, header: BatchHeader, part: memoryview) -> int:
        self._crc = crc32c(part, self._crc)
        self._left -= len(part)
        if self._left == 0:
            self._end_split(header)
        return len(part)

    def _end_split(self, header: BatchHeader) -> None:
        if self._crc != header.crc:
            self._bad_crc(header.base_offset)
        self._count(
            header.base_offset, header.last_offset_delta, header.leader_epoch, header.max_timestamp_ms, header.count
        )
        if header.control:
            self.controls.extend((header.base_offset, self._position))
        if self._on_batch is not None:
            self._on_batch(BatchAt(self._position, header))
        self._position += header.size_bytes
        self._split = None

    def _count(self, base: int, delta: int, epoch: int, largest_ms: int, count: int) -> None:
        after = base + delta + 1
        if base < self._next or after > self._end or delta < 0:
            raise CorruptFile(
                self._where,
                self._position,
                f"batch over offsets [{base}, {after}), expected inside [{self._next}, {self._end})",
            )
        if not self.epochs or epoch > self.epochs[-1].epoch:
            self.epochs.append(EpochStart(epoch, base))
        if self.largest_ms is None or largest_ms > self.largest_ms:
            self.largest_ms, self.largest_at = largest_ms, self._position
        self.records += count
        self.batches += 1
        self._next = after

    def _bad_crc(self, base: int) -> None:
        raise CorruptFile(self._where, self._position, f"CRC of the batch at offset {base} is wrong")


STEP_BYTES = 4 * 1024 * 1024


def walk_file(fd: int, size_bytes: int, walker: SegmentWalker) -> None:
    """Feed a whole segment file. Raises CorruptFile; one that shrinks meanwhile counts as cut off."""
    for position in range(0, size_bytes, STEP_BYTES):
        walker.feed(memoryview(os.pread(fd, min(STEP_BYTES, size_bytes - position), position)))
    walker.finish()
