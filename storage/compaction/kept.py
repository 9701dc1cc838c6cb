"""Records that stay, copied into a batch that is written anew: of each only its length and its time are read.

Records of one length in a row, with times of one width, are found by columns, a slice for each byte of these two: then
nothing is read of a record that goes, and of one that stays only the time. Others are read one after the other.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tierd.base.errors import CorruptFile
from tierd.storage import varint
from tierd.storage.compaction.raw import RawRecord, longer, skip

_LEAST_RUN: Final = 16
"""Fewer records of one length are sooner read one by one."""
_MOST_ENCODED: Final = 10_000
_MORE: Final = bytes(0x80) + b"\1" * 0x80
"""Translates a byte of a varint to whether another one follows."""


@dataclass(slots=True)
class Kept:
    """Of each record that stays, in order."""

    times: list[int] = field(default_factory=list)
    """Timestamp deltas."""
    begins: list[int] = field(default_factory=list)
    """Where it begins in the payload, ..."""
    deltas: list[int] = field(default_factory=list)
    """... where its offset delta does, behind the timestamp delta, ..."""
    ends: list[int] = field(default_factory=list)
    """... and where it ends."""

    @classmethod
    def of(cls, records: Sequence[RawRecord]) -> "Kept":
        return cls(
            [record[1] for record in records],
            [record[4] for record in records],
            [record[5] for record in records],
            [record[6] for record in records],
        )

    def copy(self, payload: bytes, *, shift_ms: int = 0, delta_ms: int | None = None) -> bytes:
        """The records with *shift_ms* added to their timestamp deltas, or with *delta_ms* for all of them. Offset
        deltas stay: a batch keeps its base offset."""
        if shift_ms == 0 and delta_ms is None:
            return b"".join([payload[begin:end] for begin, end in zip(self.begins, self.ends, strict=True)])
        out: list[bytes] = []
        for time, at, end in zip(self.times, self.deltas, self.ends, strict=True):
            head = _HEADS[time + shift_ms if delta_ms is None else delta_ms]
            out += (_LENGTHS[len(head) + end - at], head, payload[at:end])
        return b"".join(out)


class _Varints(dict[int, bytes]):
    """Numbers as they are stored, the first few thousand encoded once."""

    def __init__(self, before: bytes) -> None:
        super().__init__()
        self._before = before

    def __missing__(self, number: int) -> bytes:
        out = bytearray(self._before)
        varint.encode(number, out)
        encoded = bytes(out)
        if len(self) < _MOST_ENCODED:
            self[number] = encoded
        return encoded


_LENGTHS: Final = _Varints(b"")
_HEADS: Final = _Varints(b"\0")
"""Timestamp deltas behind the attributes, which mean nothing."""


def kept_at(payload: bytes, count: int, numbers: Sequence[int], where: str) -> Kept:
    """The records with these *numbers*, ascending, of *count*. Raises CorruptFile."""
    kept = Kept()
    try:
        _find(payload, count, numbers, kept)
    except (IndexError, ValueError) as error:
        raise CorruptFile(where, 0, f"broken record after {len(kept.times)} good ones: {error}") from error
    if kept.ends and kept.ends[-1] > len(payload):
        raise CorruptFile(where, 0, f"record {numbers[-1]} ends behind the batch")
    return kept


def _find(payload: bytes, count: int, numbers: Sequence[int], kept: Kept) -> None:
    begin = number = done = 0
    stretch = _LEAST_RUN
    while done < len(numbers):
        run, stride = _run(payload, begin, count - number)
        if run >= _LEAST_RUN:
            upto = bisect_left(numbers, number + run, done)
            _by_columns(payload, begin, stride, run, [one - number for one in numbers[done:upto]], kept)
            begin += run * stride
        else:
            run, stretch = min(stretch, count - number), 2 * stretch
            upto = bisect_left(numbers, number + run, done)
            ahead = run if upto < len(numbers) else numbers[-1] - number + 1
            begin = _one_by_one(payload, begin, [one - number for one in numbers[done:upto]], ahead, kept)
        number, done = number + run, upto


def _run(payload: bytes, begin: int, count: int) -> tuple[int, int]:
    """How many of the *count* records from *begin* on have its length, and times as wide as its; what each takes."""
    length, at = varint.decode(payload, begin)
    stride = at - begin + length
    run = min(count, (len(payload) - begin) // stride) if length > 0 else 0
    if run < _LEAST_RUN or payload[begin + stride] != payload[begin]:
        return 0, stride
    _, deltas_at = varint.decode(payload, at + 1)
    for column_at in (*range(begin, at), *range(at + 1, deltas_at)):
        column = payload[column_at : begin + run * stride : stride]
        if column_at > at:
            column = column.translate(_MORE)
        run = len(column) - len(column.lstrip(column[:1]))
    return run, stride


def _by_columns(payload: bytes, begin: int, stride: int, run: int, numbers: list[int], kept: Kept) -> None:
    _, at = varint.decode(payload, begin)
    _, deltas_at = varint.decode(payload, at + 1)
    stored = [0] * len(numbers)
    for shift, column_at in enumerate(range(at + 1, deltas_at)):
        column = payload[column_at : begin + run * stride : stride]
        stored = [sum_ | (column[one] & 0x7F) << 7 * shift for sum_, one in zip(stored, numbers, strict=True)]
    kept.times += [(one >> 1) ^ -(one & 1) for one in stored]
    begins = [begin + one * stride for one in numbers]
    kept.begins += begins
    kept.deltas += [one + deltas_at - begin for one in begins]
    kept.ends += [one + stride for one in begins]


def _one_by_one(payload: bytes, begin: int, numbers: list[int], count: int, kept: Kept) -> int:
    """Where the record after the *count* from *begin* on begins."""
    ahead = 0
    for number in numbers:
        begin = skip(payload, begin, number - ahead)
        ahead = number + 1
        length, at = payload[begin], begin + 1
        if length >= 0x80:
            length, at = longer(payload, at, length)
        stop = at + (length >> 1)
        time, at = payload[at + 1], at + 2  # after its attributes, one unused byte
        if time >= 0x80:
            time, at = longer(payload, at, time)
        if at >= stop or length & 1 or time >> 64:
            raise ValueError("its fields do not fit")
        kept.times.append((time >> 1) ^ -(time & 1))
        kept.begins.append(begin)
        kept.deltas.append(at)
        kept.ends.append(stop)
        begin = stop
    return skip(payload, begin, count - ahead)
