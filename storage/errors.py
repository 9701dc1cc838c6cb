"""What appending to and reading from a log can refuse; one class per thing that the caller answers differently.

The table in ENGINE.md, "Append", says which batch meets which. DiskFull is in tierd.base.errors.
"""

from dataclasses import dataclass

from tierd.base.errors import TierdError


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why one record of a refused batch is not acceptable."""

    batch_index: int
    """Number of the record within its batch, from 0."""
    message: str


class Repairing(TierdError):
    """What is asked for is damaged, and a thread is at it: ask again once that is done."""


class AppendRefused(TierdError):
    """Root of what the sender of a batch did wrong; nothing was written."""


class CorruptBatch(AppendRefused):
    """The CRC does not match, or the magic is one that nobody knows; the sender may send it again."""


class InvalidRecord(AppendRefused):
    """The batch breaks a rule; sending it again changes nothing."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.record_errors = record_errors


class UnsupportedCodec(InvalidRecord):
    """The attributes name a compression codec that no version of the format has."""


class InvalidTimestamp(AppendRefused):
    """A record's timestamp lies outside message.timestamp.before/after.max.ms."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(message)
        self.message = message
        self.record_errors = record_errors


class BatchTooLarge(AppendRefused):
    """Above max.message.bytes."""


class OutOfOrderSequence(AppendRefused):
    """A gap, an overlap or a too old duplicate in a producer's sequence numbers."""


class ProducerFenced(AppendRefused):
    """A newer epoch of the same producer id has written already."""


class TransactionRefused(AppendRefused):
    """The batch is transactional, but no transaction of its producer includes this partition."""


class InTransaction(AppendRefused):
    """The batch is not transactional, but its producer has a transaction open in this partition."""


class CoordinatorFenced(AppendRefused):
    """A transaction's end from a coordinator whose successor has written already."""


class ReadOnly(AppendRefused):
    """The log is there to be read; nothing is ever appended to it."""


class OffsetOutOfRange(TierdError):
    """The offset is not in the local log, which holds [start, end)."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is not in the local log, which holds [{start}, {end})")
        self.offset = offset
        self.start = start
        self.end = end


class StorageFailed(TierdError):
    """A write or flush failed and what lies on the disk is no longer known: the log takes no appends until restart."""


class FlushPutOff(TierdError):
    """A file could not be opened for its fsync because descriptors are short: nothing is unknown, try it again."""


class EpochRefused(TierdError):
    """The leader epoch to enter is not above the epochs that the log already has."""
