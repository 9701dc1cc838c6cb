"""Offsets of open transactions: what a marker makes of them, read from the log."""

from tierd.broker.groups.codec import Commit, CommitKey, encode_commit, encode_commit_key
from tierd.broker.groups.pending import PendingOffsets
from tierd.broker.groups.replay import GroupReplay
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.records import Record

A, B = CommitKey("g", "t", 0), CommitKey("g", "t", 1)


def commit(offset: int) -> Commit:
    return Commit(offset=offset, leader_epoch=None, metadata="", commit_ms=1)


def stored(at: int, key: CommitKey, offset: int | None, producer: int = -1) -> bytes:
    value = None if offset is None else encode_commit(commit(offset))
    bits = 0 if producer < 0 else TRANSACTIONAL
    record = Record(at, 1, encode_commit_key(key), value)
    return encode_batch([record], producer_id=producer, producer_epoch=0, attributes=bits, base_sequence=0)


def marker(at: int, kind: ControlType, producer: int) -> bytes:
    return encode_control_batch(at, kind, producer_id=producer, producer_epoch=1, timestamp_ms=1, coordinator_epoch=0)


def test_what_is_open_is_told_apart_from_what_holds() -> None:
    replay = GroupReplay("x")
    replay.feed(stored(0, A, 1) + stored(1, A, 5, 7) + stored(2, B, 6, 8))
    assert replay.commits == {A: commit(1)}
    assert (A in replay.pending, B in replay.pending, set(replay.pending.of_group("g"))) == (True, True, {A, B})
    replay.feed(marker(3, ControlType.COMMIT, 7))
    assert replay.commits == {A: commit(5)}
    assert (A in replay.pending, B in replay.pending) == (False, True)
    replay.feed(marker(4, ControlType.ABORT, 8) + marker(5, ControlType.COMMIT, 8))
    assert (replay.commits, set(replay.pending.groups)) == ({A: commit(5)}, set())


def test_the_record_written_last_holds_not_the_marker() -> None:
    replay = GroupReplay("x")
    replay.feed(stored(0, A, 5, 7) + stored(1, A, 9) + marker(2, ControlType.COMMIT, 7))
    assert replay.commits == {A: commit(9)}
    replay.feed(stored(3, A, 5, 7) + stored(4, A, 6, 7) + marker(5, ControlType.COMMIT, 7))
    assert replay.commits == {A: commit(6)}


def test_a_deleted_offset_does_not_come_back() -> None:
    replay = GroupReplay("x")
    replay.feed(stored(0, A, 5, 7) + stored(1, B, 5, 7) + stored(2, A, None) + marker(3, ControlType.COMMIT, 7))
    assert replay.commits == {B: commit(5)}


def test_a_key_is_open_as_long_as_one_transaction_holds_it() -> None:
    pending = PendingOffsets()
    pending.put(1, [(A, commit(1))])
    pending.put(1, [(A, commit(2))])
    pending.put(2, [(A, commit(3))])
    assert pending.take(1) == {A: commit(2)}
    assert A in pending
    assert list(pending.commits()) == [(A, commit(3))]
    assert pending.drop(A) == [commit(3)]
    assert (A in pending, pending.take(2), pending.take(3)) == (False, {}, {})
