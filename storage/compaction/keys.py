"""The keys of a batch's records, found faster than `raw.py` finds all of each record, in the usual case.

Records of one layout in a row (lengths and widths are the same) are read by columns, a slice for each byte of the
layout: then C loops do the work. Others are read one by one. What is not usual is left to `raw_records`, which also
says what is wrong with it.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from struct import Struct, iter_unpack
from typing import Final

from tierd.storage import varint

_LEAST_RUN: Final = 16
"""Fewer records of one layout are sooner read one by one."""
_AT_ONCE: Final = 64
"""So many records of one layout are unpacked in one go: five times as fast as each alone."""
_WIDE: Final = 0x4000
"""Varints of three bytes and more, zigzag, begin here."""
_NULL: Final = 1
"""The length -1, zigzag."""
_SHORT_DELTAS: Final = bytes(range(0, 0x80, 2))
"""The offset deltas that are stored in one byte, in order; then both bytes of those stored in two."""
_LONG_DELTAS: Final = tuple(
    bytes(column) for column in zip(*((one & 0x7F | 0x80, one >> 7) for one in range(0x80, _WIDE, 2)), strict=True)
)
_SAME: Final = bytes(range(0x100))
_MORE: Final = bytes(0x80) + b"\1" * 0x80
"""Translates a byte of a varint to whether another one follows."""


@dataclass(slots=True)
class Keys:
    """What was found of the records so far."""

    found: list[bytes] = field(default_factory=list)
    longest: int = 0
    """No key has more bytes."""
    dense: bool = True
    """Record number i has offset delta i."""
    tombstones: bool = False
    """Some record has no value."""


def quick_keys(payload: bytes, count: int) -> Keys | None:
    """The keys of all *count* records, which must be all of *payload*; None when `raw_records` must be asked: a record
    without a key, a varint longer than usual, something broken."""
    keys, begin, stretch = Keys(), 0, _LEAST_RUN
    try:
        while (number := len(keys.found)) < count:
            after = _by_columns(payload, begin, count, keys)
            if after is None:
                after = _one_by_one(payload, begin, range(2 * number, 2 * min(number + stretch, count), 2), keys)
                stretch *= 2
            if after is None:
                return None
            begin = after
    except (IndexError, varint.BadVarint):
        return None
    return keys if begin == len(payload) else None


def _one_by_one(payload: bytes, begin: int, wanted: range, keys: Keys) -> int | None:
    """Read as many records as *wanted* has offset deltas, zigzag. Where the last one ends; None: see `quick_keys`."""
    add, odd, longest = keys.found.append, 0, keys.longest
    for want in wanted:
        length, at = payload[begin], begin + 2  # behind its attributes, one unused byte
        if length >= 0x80:
            length, at = length & 0x7F | payload[begin + 1] << 7, at + 1
        begin = at - 1 + (length >> 1)
        while payload[at] >= 0x80:
            at += 1
        delta, at = payload[at + 1], at + 2
        if delta >= 0x80:
            delta, at = delta & 0x7F | payload[at] << 7, at + 1
        if delta != want:
            keys.dense = False
        key_bytes, at = payload[at], at + 1
        if key_bytes >= 0x80:
            key_bytes, at = key_bytes & 0x7F | payload[at] << 7, at + 1
        odd |= length | delta | key_bytes
        longest |= key_bytes >> 1
        stop = at + (key_bytes >> 1)
        add(payload[at:stop])
        if stop >= begin:
            return None
        if payload[stop] == 1:  # the length -1
            keys.tombstones = True
    keys.longest = longest
    return None if odd & 1 or odd >= _WIDE else begin


def _by_columns(payload: bytes, begin: int, count: int, keys: Keys) -> int | None:
    """Read the records that have the layout of the one at *begin*. Where they end; None when they are few."""
    number = len(keys.found)
    length, at = varint.decode(payload, begin)
    stride = at - begin + length
    run = min(_of_one_width(number, count), (len(payload) - begin) // stride if length > 0 else 0)
    if run < _LEAST_RUN or payload[begin + stride] != payload[begin]:
        return None
    _, deltas_at = varint.decode(payload, at + 1)
    _, length_at = varint.decode(payload, deltas_at)
    key_bytes, key_at = varint.decode(payload, length_at)
    rest = begin + stride - key_at - key_bytes
    for first, stop, classes in ((begin, at, _SAME), (at + 1, deltas_at, _MORE), (length_at, key_at, _SAME)):
        for column_at in range(first, stop):
            column = payload[column_at : begin + run * stride : stride].translate(classes)
            run = len(column) - len(column.lstrip(column[:1]))
    end = begin + run * stride
    if run < _LEAST_RUN or key_bytes < 0 or rest <= 0 or not _counts(payload, deltas_at, end, stride, number):
        return None
    keys.longest = max(keys.longest, key_bytes)
    layout, records = f"{key_at - begin}x{key_bytes}s{rest}x", memoryview(payload)[begin:end]
    whole = run // _AT_ONCE * _AT_ONCE * stride
    for found in _many(layout).iter_unpack(records[:whole]):
        keys.found += found
    keys.found += chain.from_iterable(iter_unpack(layout, records[whole:]))
    keys.tombstones = keys.tombstones or _NULL in payload[end - rest - (run - 1) * stride : end : stride]
    return end


@lru_cache(256)
def _many(layout: str) -> Struct:
    return Struct(layout * _AT_ONCE)


def _of_one_width(number: int, count: int) -> int:
    """How many records from *number* on have offset deltas that are as wide as its own."""
    return min(count, len(_SHORT_DELTAS) if number < len(_SHORT_DELTAS) else _WIDE // 2) - number


def _counts(payload: bytes, deltas_at: int, end: int, stride: int, number: int) -> bool:
    """Whether the offset deltas, the first at *deltas_at*, count on from *number*."""
    first = payload[deltas_at:end:stride]
    if number < len(_SHORT_DELTAS):
        return first == _SHORT_DELTAS[number : number + len(first)]
    number -= len(_SHORT_DELTAS)
    second = payload[deltas_at + 1 : end : stride]
    return (first, second) == tuple(column[number : number + len(first)] for column in _LONG_DELTAS)
