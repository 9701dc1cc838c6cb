"""Looking at the records of a batch one by one: what is looked for, what was found, and how much may be done at once.

Apart from `validate`, which decides with it, because it may take long: the caller may have it done elsewhere and come
back with the verdict. Pure; any thread, any process.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from tierd.base.errors import CorruptFile, TierdError
from tierd.storage.compression import LIMIT_BYTES, Codec
from tierd.storage.errors import InvalidRecord, InvalidTimestamp, RecordError
from tierd.storage.header import BatchHeader, parse_header
from tierd.storage.records import iter_records

SHORT_RECORDS: Final = 200
SHORT_BYTES: Final = 64 * 1024
_SHORT_RECORD_BYTES: Final = 16 * 1024
"""A compressed record that is larger takes the long way: a few bytes may unpack to very many."""
_NO_TIMESTAMP: Final = -1
_MOST_RECORD_ERRORS: Final = 100


@dataclass(frozen=True, slots=True)
class Look:
    """What must be known of a batch's records."""

    where: str
    """The partition, for texts."""
    between_ms: tuple[int, ...] = ()
    """(least, most) that a timestamp may be; empty: the header has shown that all are in range."""
    decode: bool = False
    """Whether every record must decode and the offsets must be without gaps; then the largest timestamp is wanted."""
    keys: bool = False
    """Whether every record must have a key."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found; the first of what is wrong decides."""

    largest_ms: int | None = None
    """Of the timestamps, when they were wanted; -1 when no record has any."""
    out_of_range: tuple[RecordError, ...] = ()
    broken: str | None = None
    keyless: int = 0
    keyless_errors: tuple[RecordError, ...] = ()

    def check(self) -> None:
        """Raises InvalidTimestamp or InvalidRecord."""
        if self.out_of_range:
            raise InvalidTimestamp("One or more records have been rejected due to invalid timestamp", self.out_of_range)
        if self.broken is not None:
            raise InvalidRecord(self.broken)
        if self.keyless:
            raise InvalidRecord(_keyless_text(self.keyless, self.keyless_errors), self.keyless_errors)


class Looking(Protocol):
    """Gives the verdict on a batch, or raises LongLook."""

    def __call__(self, batch: memoryview, header: BatchHeader, look: Look, /) -> Verdict: ...


class LongLook(TierdError):
    """The records are too many to be looked at here; nothing has happened yet. Come back with the verdict."""

    def __init__(self, look: Look) -> None:
        super().__init__(f"{look.where}: a batch whose records take long to look at")
        self.look = look


def look_at(batch: memoryview, header: BatchHeader, look: Look) -> Verdict:
    """Look at all records, however long it takes."""
    try:
        return _look(batch, header, look, LIMIT_BYTES)
    except CorruptFile as error:
        return Verdict(broken=f"its records do not decode: {error.reason}")


def look_briefly(batch: memoryview, header: BatchHeader, look: Look) -> Verdict:
    """The same where it takes a millisecond or two. Raises LongLook."""
    if header.count > SHORT_RECORDS or header.size_bytes > SHORT_BYTES:
        raise LongLook(look)
    if header.codec == Codec.NONE:
        return look_at(batch, header, look)
    try:
        return _look(batch, header, look, _SHORT_RECORD_BYTES)
    except CorruptFile as error:
        raise LongLook(look) from error  # perhaps only because a record is large


def look_at_bytes(batch: memoryview, look: Look) -> Verdict:
    """As `look_at`, of a batch whose header was found good before."""
    return look_at(batch, parse_header(batch), look)


def _look(batch: memoryview, header: BatchHeader, look: Look, limit_bytes: int) -> Verdict:
    least, most = look.between_ms or (0, 0)
    late: list[RecordError] = []
    keyless: list[int] = []
    largest = _NO_TIMESTAMP
    for i, record in enumerate(iter_records(batch, header, look.where, limit_bytes=limit_bytes)):
        time_ms = record.timestamp_ms
        if look.between_ms and time_ms != _NO_TIMESTAMP and not least <= time_ms <= most:
            late.append(_out_of_range(i, time_ms, least, most))
            if len(late) == _MOST_RECORD_ERRORS:
                break
        if look.decode:
            if record.offset != header.base_offset + i:
                delta = record.offset - header.base_offset
                return Verdict(out_of_range=tuple(late), broken=f"record {i} of the batch has offset delta {delta}")
            if time_ms > largest:
                largest = time_ms
            if record.key is None and look.keys:
                keyless.append(i)
    text = f"Compacted topic cannot accept message without key in topic partition {look.where}"
    shown = tuple([RecordError(i, text) for i in keyless[:_MOST_RECORD_ERRORS]])
    return Verdict(largest if look.decode else None, tuple(late), None, len(keyless), shown)


def _out_of_range(i: int, timestamp_ms: int, least: int, most: int) -> RecordError:
    return RecordError(
        i,
        f"Timestamp {timestamp_ms} of message with offset {i} is out of range. "
        f"The timestamp should be within [{least}, {most}]",
    )


def _keyless_text(count: int, errors: tuple[RecordError, ...]) -> str:
    shown = ", ".join(f"RecordError(batchIndex={e.batch_index}, message={e.message!r})" for e in errors[:3])
    return (
        f"One or more records have been rejected due to {count} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )
