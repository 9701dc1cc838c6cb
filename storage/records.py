"""The records inside a batch, one by one (storage/FORMAT.md, "Record").

Nothing is decoded before it is asked for: a compressed batch is unpacked in bounded pieces while the caller
iterates, so a batch of any size costs little more memory than its largest record.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from typing_extensions import Buffer

from tierd.base.errors import CorruptFile
from tierd.storage import varint
from tierd.storage.compression import LIMIT_BYTES, Codec, pieces
from tierd.storage.header import HEADER_BYTES, BatchHeader


@dataclass(slots=True)
class Record:
    """One record; read-only by convention (like BatchHeader, made by the million)."""

    offset: int
    timestamp_ms: int
    """As stored; -1 is a record without a time."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Names that are not UTF-8 come with surrogate escapes, so that encoding gives them back."""


def iter_records(
    batch: Buffer, header: BatchHeader, where: str = "", *, limit_bytes: int = LIMIT_BYTES
) -> Iterator[Record]:
    """The records of the whole *batch* (header included), in order.

    Raises CorruptFile, possibly after good records, when they do not decode, are not `header.count`, or one is
    larger than *limit_bytes*; the position in it is that of the batch (0) or, in a plain batch, of the record.
    """
    payload = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.codec == Codec.NONE:
        yield from _walk(payload, header, where)
    else:
        yield from _unpack(payload, header, where, limit_bytes)


def _walk(payload: memoryview, header: BatchHeader, where: str) -> Iterator[Record]:
    at = 0
    for _ in range(header.count):
        try:
            length, start = varint.decode(payload, at, varint.INT_BYTES)
            stop = start + length
            if length < 0 or stop > payload.nbytes:
                raise CorruptFile(where, HEADER_BYTES + at, f"a record of {length} bytes does not fit its batch")
            record = _parse(payload, start, stop, header)
        except (IndexError, ValueError) as error:
            raise CorruptFile(where, HEADER_BYTES + at, f"broken record: {error}") from error
        yield record
        at = stop
    if at != payload.nbytes:
        raise CorruptFile(where, HEADER_BYTES + at, f"{payload.nbytes - at} bytes after the last of {header.count}")


def _unpack(payload: memoryview, header: BatchHeader, where: str, limit_bytes: int) -> Iterator[Record]:
    buffer = bytearray()
    at, left = 0, header.count
    need = 1
    for piece in pieces(header.codec, payload, where):
        buffer += piece
        while left and len(buffer) - at >= need:
            try:
                length, start = varint.decode(buffer, at, varint.INT_BYTES)
            except IndexError:
                need = len(buffer) - at + 1
                break
            except ValueError as error:
                raise CorruptFile(where, 0, f"broken record: {error}") from error
            if not 0 <= length <= limit_bytes:
                raise CorruptFile(where, 0, f"a record of {length} bytes, the limit is {limit_bytes}")
            need = start - at + length
            if len(buffer) - at < need:
                break
            try:
                record = _parse(buffer, start, start + length, header)
            except (IndexError, ValueError) as error:
                raise CorruptFile(where, 0, f"broken record: {error}") from error
            yield record
            left -= 1
            at += need
            need = 1
        if not left and at < len(buffer):
            raise CorruptFile(where, 0, f"more bytes than the {header.count} records have")
        del buffer[:at]
        at = 0
    if left:
        raise CorruptFile(where, 0, f"{header.count - left} records, the header says {header.count}")


def _parse(buf: memoryview | bytearray, position: int, stop: int, header: BatchHeader) -> Record:
    """The record whose body is [position, stop). Raises IndexError or ValueError when it does not parse."""
    time_delta, at = varint.decode(buf, position + 1)  # its attributes, one byte, are unused
    offset_delta, at = varint.decode(buf, at, varint.INT_BYTES)
    key, at = _take(buf, at, stop)
    value, at = _take(buf, at, stop)
    count, at = varint.decode(buf, at, varint.INT_BYTES)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if count:
        headers, at = _headers(buf, at, stop, count)
    if at != stop:
        raise ValueError(f"its fields end {stop - at} bytes before it does")
    timestamp_ms = header.max_timestamp_ms if header.log_append_time else header.base_timestamp_ms + time_delta
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers)


def _headers(
    buf: memoryview | bytearray, position: int, stop: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if not 0 <= count <= stop - position:
        raise ValueError(f"{count} headers")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _take(buf, position, stop)
        if name is None:
            raise ValueError("a header without a name")
        value, position = _take(buf, position, stop)
        found.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(found), position


def _take(buf: memoryview | bytearray, position: int, stop: int) -> tuple[bytes | None, int]:
    length, position = varint.decode(buf, position, varint.INT_BYTES)
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > stop:
        raise ValueError(f"a field of {length} bytes")
    return bytes(buf[position:end]), end


def encode_records(records: Iterable[Record], base_offset: int, base_timestamp_ms: int) -> bytes:
    """The records as they follow a batch header, uncompressed."""
    out = bytearray()
    for record in records:
        body = bytearray(1)
        varint.encode(record.timestamp_ms - base_timestamp_ms, body)
        varint.encode(record.offset - base_offset, body)
        _put(record.key, body)
        _put(record.value, body)
        varint.encode(len(record.headers), body)
        for name, value in record.headers:
            _put(name.encode("utf-8", "surrogateescape"), body)
            _put(value, body)
        varint.encode(len(body), out)
        out += body
    return bytes(out)


def _put(field: bytes | None, out: bytearray) -> None:
    if field is None:
        varint.encode(-1, out)
    else:
        varint.encode(len(field), out)
        out += field
