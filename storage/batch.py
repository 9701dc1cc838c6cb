"""Record batches, format v2: patching, walking and building whole ones (storage/FORMAT.md, "Record batch").

The header itself is in `header.py`; its names are handed on here, so that callers need one import.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum

from typing_extensions import Buffer

from tierd.base.errors import CorruptFile
from tierd.storage.compression import Codec, compress
from tierd.storage.header import (
    ATTRIBUTES_AT,
    CONTROL,
    CRC_AT,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    BatchHeader,
    actual_crc,
    check_crc,
    encode_header,
    parse_header,
)
from tierd.storage.records import Record, encode_records

__all__ = [
    "HEADER_BYTES",
    "BatchHeader",
    "ControlType",
    "check_crc",
    "clear_log_append_bit",
    "encode_batch",
    "encode_control_batch",
    "encode_header",
    "parse_control",
    "parse_header",
    "patch",
    "set_log_append_time",
    "size_at",
    "walk",
]

_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_CONTROL_KEY = struct.Struct(">hh")  # version 0, type
_CONTROL_VALUE = struct.Struct(">hi")  # version 0, coordinator epoch


class ControlType(IntEnum):
    """What a control record says; persisted, do not change."""

    ABORT = 0
    COMMIT = 1


def size_at(buf: Buffer, position: int = 0) -> int:
    """The whole size that the batch at *position* claims (only its first 12 bytes are looked at)."""
    length: int = _I32.unpack_from(buf, position + 8)[0]
    return length + LENGTH_END


def patch(buf: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at *position* its place in the log; the CRC stays right."""
    _I64.pack_into(buf, position, base_offset)
    _I32.pack_into(buf, position + LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Make *timestamp_ms* the time of every record of the batch and renew its CRC.

    Base timestamp and record deltas stay as the producer sent them (FORMAT.md, "Log-append time").
    """
    buf[position + ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME
    _I64.pack_into(buf, position + MAX_TIMESTAMP_AT, timestamp_ms)
    _renew_crc(buf, position)


def clear_log_append_bit(buf: bytearray | memoryview, position: int) -> None:
    """Take back a log-append bit that a producer had no business to set; renews the CRC when it was set."""
    if buf[position + ATTRIBUTES_AT + 1] & LOG_APPEND_TIME:
        buf[position + ATTRIBUTES_AT + 1] &= ~LOG_APPEND_TIME & 0xFF
        _renew_crc(buf, position)


def _renew_crc(buf: bytearray | memoryview, position: int) -> None:
    _U32.pack_into(buf, position + CRC_AT, actual_crc(buf, position, size_at(buf, position)))


def walk(buf: Buffer, where: str = "") -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch; they must fill *buf* exactly. CRCs are not looked at.

    Raises CorruptFile at the first batch that does not parse or does not fit, after the good ones.
    """
    view = memoryview(buf)
    position = 0
    while position < view.nbytes:
        header = parse_header(view, position, where)
        if position + header.size_bytes > view.nbytes:
            left = view.nbytes - position
            raise CorruptFile(where, position, f"batch of {header.size_bytes} bytes, only {left} are there")
        yield position, header
        position += header.size_bytes


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    codec: int = Codec.NONE,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    log_append_time_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """A whole batch of *records* (not empty; their offsets are ascending).

    *base_offset* is the first record's and *last_offset_delta* the last one's unless compaction has left holes
    at an end. *attributes* are bits beside the codec; *log_append_time_ms* sets its bit and the maximum.
    """
    first, last = records[0], records[-1]
    base = first.offset if base_offset is None else base_offset
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
    payload = compress(codec, encode_records(records, base, first.timestamp_ms), level=level)
    header = BatchHeader(
        base_offset=base,
        size_bytes=HEADER_BYTES + len(payload),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | codec,
        last_offset_delta=last.offset - base if last_offset_delta is None else last_offset_delta,
        base_timestamp_ms=first.timestamp_ms,
        max_timestamp_ms=max(r.timestamp_ms for r in records) if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    whole = bytearray(encode_header(header) + payload)
    _renew_crc(whole, 0)
    return bytes(whole)


def encode_control_batch(
    offset: int,
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    leader_epoch: int = 0,
) -> bytes:
    """A transaction marker: one batch of one record, 78 bytes."""
    key = _CONTROL_KEY.pack(0, kind)
    value = _CONTROL_VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        [Record(offset, timestamp_ms, key, value)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def parse_control(record: Record) -> tuple[int, int]:
    """(type, coordinator epoch) of a control record. Raises CorruptFile; types above 1 come as they are."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptFile("control record", record.offset, "its key is too short for a type")
    kind: int = _CONTROL_KEY.unpack_from(record.key)[1]
    if record.value is None or len(record.value) < _CONTROL_VALUE.size:
        return kind, -1
    return kind, _CONTROL_VALUE.unpack_from(record.value)[1]
