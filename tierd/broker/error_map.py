"""What storage refuses, in the protocol's words: the table of storage/ENGINE.md, "Append"."""

from tierd.base.errors import CorruptFile, DiskFull, TierdError, WorkerGone
from tierd.storage.errors import (
    BatchTooLarge,
    CoordinatorFenced,
    CorruptBatch,
    InTransaction,
    InvalidRecord,
    InvalidTimestamp,
    OutOfOrderSequence,
    ProducerFenced,
    ReadOnly,
    Repairing,
    StorageFailed,
    TransactionRefused,
)
from tierd.wire.errors import ErrorCode
from tierd.wire.produce import PartitionProduced, RecordError

_CODES: dict[type[Exception], ErrorCode] = {
    CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    InvalidRecord: ErrorCode.INVALID_RECORD,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    TransactionRefused: ErrorCode.INVALID_TXN_STATE,
    InTransaction: ErrorCode.INVALID_TXN_STATE,
    ReadOnly: ErrorCode.POLICY_VIOLATION,
    CoordinatorFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    WorkerGone: ErrorCode.KAFKA_STORAGE_ERROR,
    Repairing: ErrorCode.KAFKA_STORAGE_ERROR,
    StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    CorruptFile: ErrorCode.KAFKA_STORAGE_ERROR,
    OSError: ErrorCode.KAFKA_STORAGE_ERROR,
}
_LOG_START_UNKNOWN = (CorruptBatch, BatchTooLarge, DiskFull, StorageFailed, CorruptFile)
"""Refused before the partition was looked at, as in Kafka's answers: log start -1."""
_SHOWN = 3


def code_of(error: TierdError | OSError) -> ErrorCode:
    """The code of the error's class or of the nearest class it derives from."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), ErrorCode.UNKNOWN_SERVER_ERROR)


def refused(partition: int, error: TierdError, log_start: int) -> PartitionProduced:
    """The answer for a partition whose append failed with *error*."""
    errors = [RecordError(bad.batch_index, bad.message) for bad in getattr(error, "record_errors", ())]
    return PartitionProduced(
        partition,
        code_of(error),
        log_start=None if isinstance(error, _LOG_START_UNKNOWN) else log_start,
        record_errors=errors,
        message=_summary(errors) if errors and isinstance(error, InvalidRecord) else str(error),
    )


def _summary(errors: list[RecordError]) -> str:
    shown = ", ".join(f"RecordError(batchIndex={bad.index}, message='{bad.message}')" for bad in errors[:_SHOWN])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing "
        f"the first three errors at most: [{shown}]"
    )
