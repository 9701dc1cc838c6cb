"""Taking batches that are in the log into the state that stands beside it: producers, transactions, epochs."""

from tierd.base.errors import CorruptFile
from tierd.storage.batch import BatchHeader, parse_control
from tierd.storage.producers import CompletedTxn, Producers
from tierd.storage.records import iter_records
from tierd.storage.txnindex import AbortedEntry


def take_in(producers: Producers, header: BatchHeader, batch: bytes | memoryview, seen_ms: int) -> CompletedTxn | None:
    """Let *producers* know the batch; the transaction that it ends, if it is a marker of one.

    *batch* is looked into only for control batches. One whose control record does not decode is passed over: its CRC is
    right, so nobody knows more than that it is there.
    """
    if not header.has_producer:
        return None
    if not header.control:
        producers.update(header, seen_ms)
        return None
    try:
        kind, coordinator_epoch = parse_control(next(iter_records(batch, header)))
    except (CorruptFile, StopIteration):
        return None
    if kind not in (0, 1):
        return None  # not a transaction's marker
    return producers.end_txn(header, kind, coordinator_epoch, seen_ms)


def aborted_entry(txn: CompletedTxn | None) -> AbortedEntry | None:
    """What a `.txnindex` says of it; commits leave nothing."""
    if txn is None or not txn.aborted:
        return None
    return AbortedEntry(txn.producer_id, txn.first_offset, txn.marker_offset, txn.last_stable)
