"""Records as bytes: just enough of each is parsed to decide about it and to copy it (storage/FORMAT.md, "Record").

The cleaner sees every record twice, so this makes tuples and no objects, and a kept record is copied, not encoded.
"""

from collections.abc import Iterable

from tierd.base.errors import CorruptFile
from tierd.storage import varint
from tierd.storage.compression import decompress
from tierd.storage.header import HEADER_BYTES, BatchHeader
from tierd.storage.varint import decode

RawRecord = tuple[int, int, bytes | None, bool, int, int, int]
"""Offset delta, timestamp delta, key, whether it has a value; in the payload: where the record starts, where its
offset delta starts, and its end."""


def plain_payload(batch: memoryview, header: BatchHeader, where: str) -> bytes:
    """The records of a batch, decompressed. Raises CorruptFile."""
    return decompress(header.codec, batch[HEADER_BYTES : header.size_bytes], where=where)


def raw_records(payload: bytes, count: int, where: str) -> list[RawRecord]:
    """The *count* records of *payload*, which must be all of it. Raises CorruptFile."""
    found: list[RawRecord] = []
    at = 0
    try:
        for _ in range(count):
            record = _record(payload, at)
            found.append(record)
            at = record[6]
    except (IndexError, ValueError) as error:
        raise CorruptFile(where, 0, f"broken record after {len(found)} good ones: {error}") from error
    if at != len(payload):
        raise CorruptFile(where, 0, f"{len(payload) - at} bytes after the last of {count} records")
    return found


def _record(payload: bytes, begin: int) -> RawRecord:
    length, start = decode(payload, begin, varint.INT_BYTES)
    stop = start + length
    if length < 0 or stop > len(payload):
        raise ValueError(f"a record of {length} bytes")
    time_delta, deltas_at = decode(payload, start + 1)
    offset_delta, at = decode(payload, deltas_at, varint.INT_BYTES)
    key_bytes, at = decode(payload, at, varint.INT_BYTES)
    key = None
    if key_bytes >= 0:
        key = payload[at : at + key_bytes]
        at += key_bytes
    value_bytes, at = decode(payload, at, varint.INT_BYTES)
    if at + max(value_bytes, 0) >= stop:  # its count of headers still follows
        raise ValueError(f"a value of {value_bytes} bytes")
    return offset_delta, time_delta, key, value_bytes >= 0, begin, deltas_at, stop


def copy_records(payload: bytes, kept: Iterable[RawRecord], *, shift_ms: int = 0, delta_ms: int | None = None) -> bytes:
    """The kept records with *shift_ms* added to their timestamp deltas, or with *delta_ms* for all of them.

    Offset deltas stay: a batch keeps its base offset.
    """
    if shift_ms == 0 and delta_ms is None:
        return b"".join([payload[record[4] : record[6]] for record in kept])
    out = bytearray()
    for _, time_delta, _, _, _, deltas_at, stop in kept:
        body = bytearray(1)  # attributes, unused
        varint.encode(time_delta + shift_ms if delta_ms is None else delta_ms, body)
        varint.encode(len(body) + stop - deltas_at, out)
        out += body
        out += payload[deltas_at:stop]
    return bytes(out)
