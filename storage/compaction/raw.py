"""Records as bytes: just enough of each is parsed to decide about it and to copy it (storage/FORMAT.md, "Record").

A cleaning sees millions of them, so this makes tuples and no objects.
"""

from collections.abc import Iterable

from tierd.base.errors import CorruptFile
from tierd.storage.compression import decompress
from tierd.storage.header import HEADER_BYTES, BatchHeader

RawRecord = tuple[int, int, bytes | None, bool, int, int, int]
"""Offset delta, timestamp delta, key, whether it has a value; in the payload: where the record starts, where its
offset delta starts, and its end."""

_NONE = 1
"""The length -1, zigzag."""
_MOST_SHIFT = 63


def plain_payload(batch: memoryview, header: BatchHeader, where: str) -> bytes:
    """The records of a batch, decompressed. Raises CorruptFile."""
    return decompress(header.codec, batch[HEADER_BYTES : header.size_bytes], where=where)


def raw_records(payload: bytes, count: int, where: str) -> list[RawRecord]:
    """The *count* records of *payload*, which must be all of it. Raises CorruptFile."""
    found: list[RawRecord] = []
    end = _walk(payload, range(count), found, where)
    if end != len(payload):
        raise CorruptFile(where, 0, f"{len(payload) - end} bytes after the last of {count} records")
    return found


def records_at(payload: bytes, numbers: Iterable[int], where: str) -> list[RawRecord]:
    """The records with these *numbers*, ascending; of others only the length is read. Raises CorruptFile."""
    found: list[RawRecord] = []
    _walk(payload, numbers, found, where)
    return found


def _walk(payload: bytes, numbers: Iterable[int], found: list[RawRecord], where: str) -> int:
    """Fill *found*; where the last record ends."""
    try:
        return _walk_on(payload, numbers, found)
    except (IndexError, ValueError) as error:
        raise CorruptFile(where, 0, f"broken record after {len(found)} good ones: {error}") from error


def skip(payload: bytes, begin: int, count: int) -> int:
    """Where the record *count* records after the one at *begin* is. Raises IndexError, ValueError."""
    for _ in range(count):
        length = payload[begin]
        if length < 0x80:
            begin += 1 + (length >> 1)
        elif (more := payload[begin + 1]) < 0x80:
            begin += 2 + ((length & 0x7F | more << 7) >> 1)
        else:
            length, at = longer(payload, begin + 1, length)
            begin = at + (length >> 1)
    return begin


def _walk_on(payload: bytes, numbers: Iterable[int], found: list[RawRecord]) -> int:
    """The work of `_walk`. Raises IndexError, ValueError.

    Written out for speed: lengths and deltas of one and two bytes, nearly all, cost no call.
    """
    begin, size, add, ahead = 0, len(payload), found.append, 0
    for number in numbers:
        begin = begin if number == ahead else skip(payload, begin, number - ahead)
        ahead = number + 1
        length, at = payload[begin], begin + 1
        if length >= 0x80:
            if (more := payload[at]) < 0x80:
                length, at = length & 0x7F | more << 7, at + 1
            else:
                length, at = longer(payload, at, length)
        stop = at + (length >> 1)
        time, at = payload[at + 1], at + 2  # after its attributes, one unused byte
        if time >= 0x80:
            time, at = longer(payload, at, time)
        deltas_at = at
        delta, at = payload[at], at + 1
        if delta >= 0x80:
            if (more := payload[at]) < 0x80:
                delta, at = delta & 0x7F | more << 7, at + 1
            else:
                delta, at = longer(payload, at, delta)
        key_bytes, at = payload[at], at + 1
        if key_bytes >= 0x80:
            key_bytes, at = longer(payload, at, key_bytes)
        key = None
        if key_bytes != _NONE:
            key = payload[at : at + (key_bytes >> 1)]
            at += key_bytes >> 1
        value_bytes = payload[at]
        if stop > size or at >= stop or (length | delta) & 1 or time >> 64:
            raise ValueError("its fields do not fit")
        add((delta >> 1, (time >> 1) ^ -(time & 1), key, value_bytes != _NONE, begin, deltas_at, stop))
        begin = stop
    return begin


def longer(payload: bytes, at: int, first: int) -> tuple[int, int]:
    """A varint of more than one byte, *first* before *at*, as it is stored (zigzag not undone); the position after.
    Raises IndexError, ValueError."""
    byte = payload[at]
    if byte < 0x80:
        return first & 0x7F | byte << 7, at + 1
    value, shift = first & 0x7F, 7
    while byte >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MOST_SHIFT:
            raise ValueError("a varint of more than ten bytes")
        at += 1
        byte = payload[at]
    return value | byte << shift, at + 1
