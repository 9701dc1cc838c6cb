"""Transactions in one log: what holds back the last stable offset, and what is remembered of aborted ones."""

from kit.logs import T0, Opened, batch, by_time, fill, slice_bytes
from tierd.storage.batch import ControlType, encode_control_batch
from tierd.storage.view import AbortedTxn


def marker(offset: int, kind: ControlType, *, producer_epoch: int = 1) -> memoryview:
    raw = encode_control_batch(
        offset, kind, producer_id=7, producer_epoch=producer_epoch, timestamp_ms=T0, coordinator_epoch=0
    )
    return memoryview(bytearray(raw))


def transactional(sequence: int, epoch: int) -> memoryview:
    return batch(2, producer=(7, epoch, sequence), attributes=0x10)


def test_transactions_hold_back_the_stable_offset(opened: Opened) -> None:
    log = opened.log
    log.append(batch(2), now_ms=T0)
    log.append(transactional(0, 0), now_ms=T0, internal=True)
    log.append(batch(2), now_ms=T0)
    assert (log.last_stable, log.log_end) == (2, 6)
    assert log.view().pinned_by == "producer 7 has had a transaction open since offset 2"
    assert slice_bytes(log, 2, committed=True) == b""
    assert by_time(log, T0, committed=True) is not None
    log.append(marker(6, ControlType.ABORT), now_ms=T0, internal=True)
    assert (log.last_stable, log.view().pinned_by) == (7, None)
    assert log.aborted(0, 7) == (AbortedTxn(7, 2),)
    found = log.read(0, 1 << 20, committed=True)
    assert found.aborted == (AbortedTxn(7, 2),)
    found.release()
    log.append(transactional(0, 1), now_ms=T0, internal=True)
    log.append(marker(9, ControlType.COMMIT, producer_epoch=2), now_ms=T0, internal=True)
    for clean in (True, False):
        log = opened.again(clean=clean)
        assert log.aborted(0, log.log_end) == (AbortedTxn(7, 2),)
        assert log.last_stable == log.log_end


def test_an_aborted_transaction_is_kept_across_restarts_and_rolls(opened: Opened) -> None:
    log = opened.log
    log.append(transactional(0, 0), now_ms=T0, internal=True)
    log.append(marker(2, ControlType.ABORT), now_ms=T0, internal=True)
    log = opened.again()
    log.begin(1, 0)
    log.append(transactional(0, 1), now_ms=T0, internal=True)
    log.append(marker(5, ControlType.ABORT, producer_epoch=2), now_ms=T0, internal=True)
    log.roll()
    assert log.aborted(0, 6) == (AbortedTxn(7, 0), AbortedTxn(7, 3))
    assert opened.again().aborted(0, 6) == (AbortedTxn(7, 0), AbortedTxn(7, 3))


def test_a_hanging_transaction_survives_a_restart(opened: Opened) -> None:
    opened.log.append(transactional(0, 0), now_ms=T0, internal=True)
    fill(opened.log, 30)
    for clean in (True, False):
        assert opened.again(clean=clean).last_stable == 0
