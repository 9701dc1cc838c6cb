"""Transactions as one log sees them: who may write, how they end, who is fenced."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.logs import T0, Place, batch
from tierd.base.errors import DiskFull
from tierd.storage.disk import PosixDisk
from tierd.storage.errors import CoordinatorFenced, InTransaction, ProducerFenced, TransactionRefused
from tierd.storage.log import Log
from tierd.storage.view import AbortedTxn


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    place = Place(tmp_path)
    directory = place.open()
    yield place.new_log(directory)
    directory.close(clean=False)


def transactional(sequence: int, epoch: int) -> memoryview:
    return batch(2, producer=(7, epoch, sequence), attributes=0x10)


def test_the_end_of_a_transaction_is_written_once(log: Log) -> None:
    log.append(transactional(0, 0), now_ms=T0, in_transaction=True)
    assert log.in_transaction(7, 0)
    assert not log.in_transaction(7, 1)
    for _ in range(2):
        wrote = log.end_transaction(7, 1, 4, commit=False, now_ms=T0, raised=True)
        assert (log.log_end, log.last_stable, log.in_transaction(7, 0)) == (3, 3, False)
    assert not wrote
    assert log.aborted(0, 3) == (AbortedTxn(7, 0),)
    log.append(transactional(0, 1), now_ms=T0, in_transaction=True)
    with pytest.raises(ProducerFenced, match="epoch 1 is known"):
        log.end_transaction(7, 1, 4, commit=True, now_ms=T0, raised=True)
    assert log.end_transaction(7, 1, 4, commit=True, now_ms=T0)  # a tool, or a client that raises no epochs
    assert (log.log_end, log.last_stable) == (6, 6)
    assert log.aborted(0, 6) == (AbortedTxn(7, 0),)


def test_zombies_are_fenced_by_the_marker(log: Log) -> None:
    log.append(transactional(0, 0), now_ms=T0, in_transaction=True)
    log.end_transaction(7, 1, 4, commit=True, now_ms=T0, raised=True)
    with pytest.raises(ProducerFenced):
        log.append(transactional(2, 0), now_ms=T0, in_transaction=True)
    with pytest.raises(ProducerFenced):
        log.end_transaction(7, 0, 4, commit=False, now_ms=T0)
    with pytest.raises(CoordinatorFenced):
        log.end_transaction(7, 1, 3, commit=False, now_ms=T0)
    with pytest.raises(ProducerFenced):
        log.append(transactional(0, 0), now_ms=T0, internal=True)
    assert log.log_end == 3


def test_the_decision_of_the_own_coordinator_gets_through_a_later_epoch(log: Log) -> None:
    log.append(transactional(0, 0), now_ms=T0, in_transaction=True)
    log.end_transaction(7, 0, 1000, commit=False, now_ms=T0)  # a tool
    log.append(transactional(2, 0), now_ms=T0, in_transaction=True)
    with pytest.raises(CoordinatorFenced):
        log.end_transaction(7, 1, 3, commit=True, now_ms=T0)
    assert log.end_transaction(7, 1, 3, commit=True, now_ms=T0, decided=True)
    assert not log.end_transaction(7, 1, 3, commit=True, now_ms=T0, decided=True)
    assert (log.last_stable, log.aborted(0, 6)) == (6, (AbortedTxn(7, 0),))


def test_a_marker_may_come_where_nothing_was_written(log: Log) -> None:
    assert log.end_transaction(8, 5, 0, commit=True, now_ms=T0)
    assert (log.log_end, log.last_stable, log.aborted(0, 1)) == (1, 1, ())
    with pytest.raises(ProducerFenced):
        log.append(batch(producer=(8, 4, 0), attributes=0x10), now_ms=T0, in_transaction=True)


def test_a_batch_must_say_whether_it_belongs_to_the_transaction(log: Log) -> None:
    with pytest.raises(TransactionRefused):
        log.append(transactional(0, 0), now_ms=T0)
    log.append(transactional(0, 0), now_ms=T0, in_transaction=True)
    for sequence, epoch in ((2, 0), (0, 1)):
        with pytest.raises(InTransaction, match="open since offset 0"):
            log.append(batch(2, producer=(7, epoch, sequence)), now_ms=T0)
    assert log.append(transactional(0, 0), now_ms=T0, in_transaction=True).duplicate
    log.end_transaction(7, 0, 0, commit=True, now_ms=T0)
    assert not log.append(batch(2, producer=(7, 0, 2)), now_ms=T0).duplicate


def test_a_transaction_that_is_open_keeps_its_producer(log: Log) -> None:
    log.append(transactional(0, 0), now_ms=T0, in_transaction=True)
    log.append(batch(producer=(8, 0, 0)), now_ms=T0)
    assert log.expire_producers(T0 + 1001, 1000) == 1
    assert [producer.producer_id for producer in log.producers] == [7]


class ScarceDisk(PosixDisk):
    free = 1 << 40

    def free_bytes(self, path: Path) -> int:
        return self.free


def test_a_transaction_can_be_ended_out_of_the_reserve(tmp_path: Path) -> None:
    """Else what it holds back could never leave the disk."""
    disk = ScarceDisk()
    place = Place(tmp_path, disk=disk, reserve_bytes=1000)
    directory = place.open()
    log = place.new_log(directory)
    log.append(transactional(0, 0), now_ms=T0, in_transaction=True)
    disk.free = 500
    place.clock.advance(1000)
    with pytest.raises(DiskFull):
        log.end_transaction(7, 1, 0, commit=True, now_ms=T0)
    disk.free = 600
    place.clock.advance(1000)
    with pytest.raises(DiskFull):
        log.append(batch(), now_ms=T0)
    assert log.end_transaction(7, 1, 0, commit=True, now_ms=T0)
    assert log.last_stable == 3
    directory.close(clean=False)
