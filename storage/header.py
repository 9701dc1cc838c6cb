"""The 61-byte header of a record batch, format v2 (storage/FORMAT.md, "Record batch").

Base offset and leader epoch lie outside the CRC, so the broker assigns both without a new CRC.
"""

import struct
from dataclasses import dataclass

from crc32c import crc32c
from typing_extensions import Buffer

from tierd.base.errors import CorruptFile

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
assert _HEADER.size == HEADER_BYTES
_CRC = struct.Struct(">I")

LENGTH_END = 12
"""The length field counts the bytes after byte 12."""
MAGIC = 2
CRC_AT = 17
CRC_START = 21
"""The CRC-32C covers the batch from here (the attributes) to its end."""
ATTRIBUTES_AT = 21
LEADER_EPOCH_AT = 12
MAX_TIMESTAMP_AT = 35

# The bits of `attributes` are persisted: do not change.
CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


@dataclass(slots=True)
class BatchHeader:
    """One batch header as stored; -1 stands for "none" here, as on the wire. Read-only by convention: a frozen
    dataclass costs three times as much to build, and one is built for every batch that comes in."""

    base_offset: int
    size_bytes: int
    """The whole batch, its base offset and length fields included."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    """Time of the first record, or the delete horizon when `delete_horizon`."""
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5-7 mean nothing yet."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Every record has the time `max_timestamp_ms`, given by the broker."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon(self) -> bool:
        """The base timestamp says when tombstones and markers of this batch may go (written by compaction)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0


def parse_header(buf: Buffer, position: int = 0, where: str = "") -> BatchHeader:
    """The header at *position*; the batch itself need not lie in *buf* whole.

    Raises CorruptFile when 61 bytes are not there, the magic is not 2, or the size is too small for a batch.
    """
    try:
        base, length, epoch, magic, crc, attributes, delta, first_ms, max_ms, pid, pepoch, sequence, count = (
            _HEADER.unpack_from(buf, position)
        )
    except struct.error as error:
        raise CorruptFile(where, position, f"no room for a batch header of {HEADER_BYTES} bytes") from error
    if magic != MAGIC:
        raise CorruptFile(where, position, f"batch magic {magic}, only {MAGIC} is known")
    size_bytes = length + LENGTH_END
    if size_bytes < HEADER_BYTES:
        raise CorruptFile(where, position, f"batch of {size_bytes} bytes, its header alone has {HEADER_BYTES}")
    return BatchHeader(
        base, size_bytes, epoch, magic, crc, attributes, delta, first_ms, max_ms, pid, pepoch, sequence, count
    )  # fmt: skip


def encode_header(header: BatchHeader) -> bytes:
    """The 61 bytes of *header*, its CRC as it stands there."""
    return _HEADER.pack(
        header.base_offset,
        header.size_bytes - LENGTH_END,
        header.leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )


def actual_crc(buf: Buffer, position: int, size_bytes: int) -> int:
    """The CRC-32C of what the CRC of the batch [position, position + size_bytes) covers; nothing is copied."""
    return crc32c(memoryview(buf)[position + CRC_START : position + size_bytes])


def check_crc(buf: Buffer, position: int, size_bytes: int) -> bool:
    """Whether the batch [position, position + size_bytes) lies in *buf* whole and unharmed."""
    view = memoryview(buf)
    stop = position + size_bytes
    if size_bytes < HEADER_BYTES or stop > view.nbytes:
        return False
    stored: int = _CRC.unpack_from(view, position + CRC_AT)[0]
    return crc32c(view[position + CRC_START : stop]) == stored
