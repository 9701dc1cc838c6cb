"""The producer state alone; Kafka's verdicts on whole requests are in test_produce_cases."""

import pytest

from kit.logs import T0, batch
from tierd.storage.batch import BatchHeader, ControlType, encode_control_batch, parse_header
from tierd.storage.errors import OutOfOrderSequence, ProducerFenced
from tierd.storage.producers import Producers
from tierd.storage.replay import take_in

MAX_SEQUENCE = 2**31 - 1


def header(
    offset: int, sequence: int, *, count: int = 3, epoch: int = 0, pid: int = 1, txn: bool = False
) -> BatchHeader:
    found = parse_header(batch(count, producer=(pid, epoch, sequence), attributes=0x10 if txn else 0))
    found.base_offset = offset
    return found


def end(producers: Producers, offset: int, kind: ControlType, *, epoch: int, pid: int = 1) -> int | None:
    raw = encode_control_batch(
        offset, kind, producer_id=pid, producer_epoch=epoch, timestamp_ms=T0, coordinator_epoch=4
    )
    done = take_in(producers, parse_header(raw), raw, T0)
    return None if done is None else done.last_stable


def test_five_batches_are_remembered() -> None:
    producers = Producers()
    for i in range(7):
        assert producers.check(header(0, i * 3)) is None
        producers.update(header(100 + i * 3, i * 3), T0)
    for i in range(2, 7):
        known = producers.check(header(0, i * 3))
        assert known is not None
        assert (known.first_offset, known.last_offset) == (100 + i * 3, 102 + i * 3)
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(0, 3))


@pytest.mark.parametrize(("sequence", "count"), [(4, 3), (2, 3), (1, 3), (0, 2), (MAX_SEQUENCE, 3)])
def test_gaps_and_overlaps(sequence: int, count: int) -> None:
    producers = Producers()
    producers.update(header(0, 0), T0)
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(0, sequence, count=count))


def test_sequences_wrap() -> None:
    producers = Producers()
    producers.update(header(0, MAX_SEQUENCE - 1), T0)
    assert producers.check(header(0, 1)) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(0, 0))


def test_epochs_fence_and_begin_at_zero() -> None:
    producers = Producers()
    producers.update(header(0, 0, epoch=4), T0)
    for epoch in (3, -1):
        with pytest.raises(ProducerFenced):
            producers.check(header(0, 3, epoch=epoch))
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(0, 3, epoch=5))
    assert producers.check(header(0, 0, epoch=5)) is None
    producers.update(header(3, 0, epoch=5), T0)
    assert producers.check(header(0, 0, epoch=5)) is not None


def test_a_marker_of_the_next_epoch_begins_sequences_anew() -> None:
    producers = Producers()
    producers.update(header(0, 0, txn=True), T0)
    assert end(producers, 3, ControlType.COMMIT, epoch=1) == 4
    assert producers.check(header(0, 0, epoch=1)) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(header(0, 3, epoch=1))
    entry = producers.entries()[0]
    assert (entry.epoch, entry.last_sequence, entry.last_offset, entry.offset_delta) == (1, None, None, 0)
    assert (entry.coordinator_epoch, entry.txn_first_offset, entry.timestamp_ms) == (4, None, T0)


def test_a_marker_of_the_same_epoch_goes_on() -> None:
    producers = Producers()
    producers.update(header(0, 0, txn=True), T0)
    end(producers, 3, ControlType.ABORT, epoch=0)
    assert producers.check(header(0, 3)) is None


def test_the_oldest_open_transaction() -> None:
    producers = Producers()
    for pid, offset in ((1, 10), (2, 20), (3, 30)):
        producers.update(header(offset, 0, pid=pid, txn=True), T0)
    assert producers.first_open == (10, 1)
    assert end(producers, 40, ControlType.COMMIT, epoch=1, pid=2) == 10
    assert end(producers, 41, ControlType.COMMIT, epoch=1, pid=1) == 30
    assert end(producers, 42, ControlType.COMMIT, epoch=1, pid=3) == 43
    assert end(producers, 43, ControlType.COMMIT, epoch=1, pid=3) is None
    assert producers.first_open is None


def test_a_snapshot_keeps_what_counts() -> None:
    producers = Producers()
    producers.update(header(50, MAX_SEQUENCE - 1, pid=2, txn=True), T0)
    producers.update(header(20, 0, pid=1, txn=True), T0)
    again = Producers.from_entries(producers.entries(), T0)
    assert again.entries() == producers.entries()
    assert again.first_open == (20, 1)
    known = again.check(header(0, MAX_SEQUENCE - 1, pid=2))
    assert known is not None
    assert known.first_offset == 50


def test_silent_producers_are_forgotten_but_for_open_transactions() -> None:
    producers = Producers()
    producers.update(header(0, 0, pid=1), T0)
    producers.update(header(3, 0, pid=2, txn=True), T0)
    producers.update(header(6, 0, pid=3), T0 + 1)
    assert producers.expire(T0 + 1000, 1000) == 0
    assert producers.expire(T0 + 1001, 1000) == 1
    assert [producer.producer_id for producer in producers.producers] == [2, 3]
    assert producers.largest_id == 3
