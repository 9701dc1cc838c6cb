"""What a batch must be before it enters the log (ENGINE.md, "Append").

Everything is checked in place, in the buffer that the batch came in. Pure: no file, no clock.
"""

import struct

from crc32c import crc32c

from tierd.config.topic import TopicSettings
from tierd.storage.batch import HEADER_BYTES, BatchHeader, check_crc, parse_header
from tierd.storage.compression import Codec
from tierd.storage.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    UnsupportedCodec,
)
from tierd.storage.header import ATTRIBUTES_AT, CONTROL, CRC_AT, CRC_START, LENGTH_END, MAGIC, MAX_TIMESTAMP_AT
from tierd.storage.look import Look, Looking, look_at

_LENGTH = struct.Struct(">8xi4xb")  # length, magic
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_MAX_CODEC = max(Codec)
_MOST_I64 = 2**63 - 1
_LEAST_RECORD_BYTES = 7
"""Length, attributes, time and offset deltas, no key, no value, no headers: a byte each."""


def check_batch(
    records: memoryview,
    settings: TopicSettings,
    now_ms: int,
    *,
    internal: bool,
    where: str,
    looking: Looking = look_at,
) -> BatchHeader:
    """The header of the one batch in *records*, which may be followed by less than a batch.

    *internal* batches come from tierd itself: control batches, transactions and any size are fine. Under
    `tierd.validate.records=full` and in compacted topics every record is decoded, and a wrong largest timestamp is put
    right in place. Raises the errors of tierd.storage.errors, and what *looking* at the records raises.
    """
    header = _framed(records)
    if not internal:
        _check_client_batch(records, header, settings)
    elif not check_crc(records, 0, header.size_bytes):
        raise CorruptBatch(f"{where}: the CRC of the batch does not match")
    look = _look_for(header, settings, now_ms, internal=internal, where=where)
    if look is not None:
        verdict = looking(records, header, look)
        verdict.check()
        largest_ms = verdict.largest_ms
        create_time = settings.message_timestamp_type == "CreateTime"
        if create_time and largest_ms is not None and largest_ms != header.max_timestamp_ms:
            _put_largest_timestamp(records, header, largest_ms)
    return header


def _look_for(header: BatchHeader, settings: TopicSettings, now_ms: int, *, internal: bool, where: str) -> Look | None:
    """What the records must be looked at for. The header's own times decide whether theirs are in question."""
    between: tuple[int, ...] = ()
    if settings.message_timestamp_type == "CreateTime":
        most = now_ms + settings.message_timestamp_after_max_ms
        before_ms = settings.message_timestamp_before_max_ms
        least = now_ms - (_MOST_I64 if before_ms is None else before_ms)
        if header.max_timestamp_ms > most or (header.base_timestamp_ms < least and header.max_timestamp_ms >= 0):
            between = (least, most)
    compacted = settings.compacted and not internal
    decode = compacted or (not internal and settings.tierd_validate_records == "full")
    return Look(where, between, decode, compacted) if between or decode else None


def _framed(records: memoryview) -> BatchHeader:
    """The header of the first batch, once it is clear that there is one and no second."""
    size = records.nbytes
    if size < HEADER_BYTES:
        raise InvalidRecord(f"a record batch has at least {HEADER_BYTES} bytes, got {size}")
    length, magic = _LENGTH.unpack_from(records)
    if magic != MAGIC:
        if 0 <= magic < MAGIC:
            raise InvalidRecord(f"record format magic {magic} is no longer written, only {MAGIC}")
        raise CorruptBatch(f"Invalid magic found in record: {magic}")
    batch_bytes = length + LENGTH_END
    if batch_bytes > size:
        raise InvalidRecord(f"the batch is cut short: it says {batch_bytes} bytes, {size} are there")
    if batch_bytes < HEADER_BYTES:
        raise CorruptBatch(f"the batch says {batch_bytes} bytes, its header alone has {HEADER_BYTES}")
    if size - batch_bytes >= HEADER_BYTES:
        second, _ = _LENGTH.unpack_from(records, batch_bytes)
        if 0 < second + LENGTH_END <= size - batch_bytes:
            raise InvalidRecord("more than one batch for one partition in one request")
    return parse_header(records)


def _check_client_batch(records: memoryview, header: BatchHeader, settings: TopicSettings) -> None:
    if header.size_bytes > settings.max_message_bytes:
        raise BatchTooLarge(f"a batch of {header.size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}")
    if not check_crc(records, 0, header.size_bytes):
        raise CorruptBatch("the CRC of the batch does not match")
    if header.attributes & CONTROL:
        raise InvalidRecord("a client may not write control batches")
    if header.base_offset:
        raise InvalidRecord(f"base offset {header.base_offset}, a client must send 0")
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise InvalidRecord(f"{header.count} records with a last offset delta of {header.last_offset_delta}")
    if not header.codec and header.count * _LEAST_RECORD_BYTES > header.size_bytes - HEADER_BYTES:
        raise InvalidRecord(f"{header.count} records do not fit into {header.size_bytes - HEADER_BYTES} bytes")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sends sequence {header.base_sequence}")
    if header.codec > _MAX_CODEC:
        raise UnsupportedCodec(f"compression codec {header.codec}, known are 0 to {int(_MAX_CODEC)}")


def _put_largest_timestamp(records: memoryview, header: BatchHeader, timestamp_ms: int) -> None:
    """The producer's maximum is wrong or missing: store the right one, with a new CRC."""
    _I64.pack_into(records, MAX_TIMESTAMP_AT, timestamp_ms)
    _U32.pack_into(records, CRC_AT, crc32c(records[CRC_START : header.size_bytes]))
    header.max_timestamp_ms = timestamp_ms
    assert ATTRIBUTES_AT == CRC_START
