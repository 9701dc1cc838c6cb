"""Restores that end before the bucket does: at which batch, with whole transactions, and with all files that fit."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.aiven import KEYS, recorded_bucket, recorded_ring
from kit.golden import golden
from kit.logs import Place
from kit.made_bucket import EPOCH, MadePartition, bucket_of
from kit.restoring import Restoring
from kit.verifying import flip, replaced
from tierd.base.ids import TopicPartition
from tierd.remote.open import Bucket
from tierd.storage import names
from tierd.storage.batch import BatchHeader, walk
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.epochs import EpochEntry, parse_epochs
from tierd.storage.log import Log
from tierd.storage.producers import Producers
from tierd.storage.replay import take_in
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.txn_rebuild import find_aborted
from tierd.storage.txnindex import parse_txn_index
from tierd.tiering.restore.cutting import CutUnknown


def recorded(root: Path, variant: str) -> Restoring:
    store, _ = recorded_bucket(variant)
    return Restoring(Bucket(store, KEYS, "memory:", recorded_ring()), root)


def batches(variant: str) -> list[tuple[BatchHeader, bytes]]:
    (folder,) = (golden("aiven") / f"local-{variant}").glob("*txn*-0")
    whole = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    return [(header, whole[at : at + header.size_bytes]) for at, header in walk(whole)]


def producers_of(log: bytes) -> Producers:
    producers = Producers()
    for at, header in walk(log):
        take_in(producers, header, log[at : at + header.size_bytes], 0)
    return producers


def settled(log: list[tuple[BatchHeader, bytes]], cut: int) -> int:
    """*cut*, or lower where a transaction is open."""
    while True:
        producers = producers_of(b"".join(raw for header, raw in log if header.next_offset <= cut))
        if producers.first_open is None:
            return cut
        cut = producers.first_open[0]


def logs_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def check_folder(folder: Path, cut: int) -> None:
    """Snapshot, transaction indexes and epochs are as the log has them."""
    log = logs_of(folder)
    snapshot = folder / names.snapshot_file(cut)
    if snapshot.exists():
        told = sorted(parse_snapshot(snapshot.read_bytes()), key=lambda one: one.producer_id)
        assert told == sorted(producers_of(log).entries(), key=lambda one: one.producer_id)
        assert all(one.txn_first_offset is None for one in told)
    for path in folder.glob("*.log"):
        index = path.with_suffix(".txnindex")
        listed = parse_txn_index(index.read_bytes()) if index.exists() else []
        assert listed == find_aborted(folder, int(path.stem), path.stat().st_size)
    assert all(one.start_offset < cut for one in parse_epochs((folder / names.LEADER_EPOCH_CHECKPOINT).read_bytes()))


@contextmanager
def opened(restoring: Restoring, name: str) -> Iterator[Log]:
    """As tierd's engine opens it, which reads nothing again."""
    place = Place(restoring.root / "opened")
    shutil.copytree(restoring.to, place.data)
    directory = place.open()
    try:
        yield directory.logs[TopicPartition(name[:-2], 0)]
    finally:
        directory.close(clean=True)
        shutil.rmtree(place.root)


@pytest.mark.parametrize("variant", ["txn", "txn-enc"])
def test_any_offset_of_a_log_with_transactions(tmp_path: Path, variant: str) -> None:
    log = batches(variant)
    (plan,) = recorded(tmp_path, variant).plan().partitions
    places = sorted({*random.Random(6).sample(range(plan.log_end), 5), 0, plan.log_end})
    for number, offset in enumerate(places):
        (tmp_path / f"{number}").mkdir()
        restoring = recorded(tmp_path / f"{number}", variant)
        (restored,) = restoring(ends={str(plan.name): offset})
        begun = max((header.base_offset for header, _ in log if header.base_offset <= offset), default=0)
        expected = settled(log, begun if offset < plan.log_end else offset)
        folder = restoring.to / str(plan.name)
        assert (restored.log_end, restored.lost) == (expected, ()), offset
        assert logs_of(folder) == b"".join(raw for header, raw in log if header.next_offset <= expected)
        check_folder(folder, expected)
        end = parse_checkpoint((restoring.to / names.RECOVERY_POINT_CHECKPOINT).read_bytes())
        assert end == {plan.name: expected}


def test_a_time(tmp_path: Path) -> None:
    """Before the first batch that reaches it, wherever later ones of an earlier time are."""
    part = MadePartition("t")
    for timestamp_ms in (100, 200, 150, 300, 250, 120, 400):
        part.data(timestamp_ms, 2)
    bucket = bucket_of([(part, [(0, 6), (6, 14)])])
    for until_ms, end in ((0, 0), (100, 0), (101, 2), (200, 2), (201, 6), (300, 6), (301, 12), (400, 12), (401, 14)):
        (plan,) = Restoring(bucket, tmp_path).plan(until_ms=until_ms).partitions
        assert (plan.log_end, plan.source_end, plan.torn) == (end, 14, False), until_ms
    (restored,) = Restoring(bucket, tmp_path)(until_ms=301)
    assert (restored.log_start, restored.log_end) == (0, 12)
    assert logs_of(tmp_path / "restored" / "t-0") == part.log(0, 12)
    epochs = parse_epochs((tmp_path / "restored" / "t-0" / names.LEADER_EPOCH_CHECKPOINT).read_bytes())
    assert epochs == [EpochEntry(EPOCH, 0)]


def test_what_ends_before_it_begins_is_empty_where_it_begins(tmp_path: Path) -> None:
    part = MadePartition("t")
    for timestamp_ms in (100, 200, 300):
        part.data(timestamp_ms, 5)
    restoring = Restoring(bucket_of([(part, [(5, 15)])]), tmp_path)
    (restored,) = restoring(until_ms=50)
    assert (restored.log_start, restored.log_end, restored.lost, restored.size_bytes) == (5, 5, (), 0)
    with opened(restoring, "t-0") as log:
        assert (log.log_start, log.log_end) == (5, 5)


def test_the_engine_opens_it_and_goes_on(tmp_path: Path) -> None:
    restoring = recorded(tmp_path, "plain")
    restoring(ends={"plain-0": 100})
    with opened(restoring, "plain-0") as log:
        assert log.log_end == 100
        assert log.log_start == 0


def two_logs() -> tuple[MadePartition, MadePartition]:
    """A transaction in both, the second one's record long before its marker; the times are a minute apart."""
    one, two = MadePartition("one"), MadePartition("two")
    minute, who = 60_000, (7, 2)
    one.data(minute)
    two.data(minute)
    two.data(2 * minute, producer=who)
    for _ in range(4):
        two.data(3 * minute)
    one.data(9 * minute)
    one.data(4 * minute, producer=who)
    two.marker(5 * minute, who)
    one.marker(5 * minute, who)
    two.data(6 * minute)
    one.data(6 * minute)
    return one, two


def test_a_transaction_that_is_cut_in_one_partition_is_cut_in_all(tmp_path: Path) -> None:
    """A record of a later time ends the one log early, before a transaction; the other has all of it."""
    one, two = two_logs()
    bucket = bucket_of([(one, [(0, 1), (1, 2), (2, one.end)]), (two, [(0, 3), (3, 6), (6, two.end)])])
    plan = {str(one.name): one for one in Restoring(bucket, tmp_path).plan(until_ms=8 * 60_000).partitions}
    assert {name: (one.log_end, one.torn) for name, one in plan.items()} == {"one-0": (1, False), "two-0": (1, True)}
    made = {str(one.plan.name): one for one in Restoring(bucket, tmp_path)(until_ms=8 * 60_000)}
    assert {name: one.log_end for name, one in made.items()} == {"one-0": 1, "two-0": 1}
    assert logs_of(tmp_path / "restored" / "two-0") == two.log(0, 1)
    check_folder(tmp_path / "restored" / "two-0", 1)


def test_what_hangs_at_the_end_is_cut_wherever_a_cut_is(tmp_path: Path) -> None:
    part = MadePartition("t")
    part.data(1)
    part.data(2, producer=(5, 0))
    part.data(3)
    bucket = bucket_of([(part, [(0, part.end)])])
    (plan,) = Restoring(bucket, tmp_path).plan(until_ms=1_000).partitions
    assert (plan.log_end, plan.torn) == (1, True)
    (plan,) = Restoring(bucket, tmp_path).plan().partitions
    assert plan.log_end == 3, "without a cut it is as it was"


def test_other_transactions_stay(tmp_path: Path) -> None:
    """An earlier one of the same producer, and one of another."""
    one, two = MadePartition("one"), MadePartition("two")
    for number, part in enumerate((one, two)):
        part.data(1_000, producer=(7, 0))
        part.marker(1_001 + number, (7, 0))
        part.data(70_000, producer=(8, 0))
        part.marker(70_001 + number, (8, 0))
    one.data(500_000, producer=(7, 0))
    one.data(400_000)
    one.marker(400_001, (7, 0))
    bucket = bucket_of([(one, [(0, 4), (4, one.end)]), (two, [(0, 2), (2, two.end)])])
    ends = {str(one.name): one.log_end for one in Restoring(bucket, tmp_path).plan(until_ms=450_000).partitions}
    assert ends == {"one-0": 4, "two-0": 4}


def test_a_cut_in_what_is_lost_is_refused(tmp_path: Path) -> None:
    store, rows = recorded_bucket("plain")
    replaced(store, next(one.log_key for one in rows.segments if one.base == 60), flip)
    restoring = Restoring(Bucket(store, KEYS, "memory:"), tmp_path)
    with pytest.raises(CutUnknown, match="plain-0 cannot be cut there"):
        restoring.plan(ends={"plain-0": 90})
    assert [one.log_end for one in restoring.plan(ends={"plain-0": 150}).partitions] == [150]


def test_replicas_that_closed_their_segments_at_other_offsets(tmp_path: Path) -> None:
    part = MadePartition("t")
    for number in range(20):
        part.data(100 + number, 2, producer=(3, 1) if number in (4, 5) else None, sequence=2 * (number - 4))
        if number == 7:
            part.marker(100 + number, (3, 1), abort=True)
    bucket = bucket_of([(part, [(0, 14), (8, 14), (10, 23), (19, 31), (31, part.end)])])
    restoring = Restoring(bucket, tmp_path)
    (restored,) = restoring()
    folder = restoring.to / "t-0"
    assert (restored.log_start, restored.log_end, restored.lost) == (0, part.end, ())
    assert logs_of(folder) == part.log()
    assert sorted(int(path.stem) for path in folder.glob("*.log")) == [0, 10, 19, 31]
    check_folder(folder, part.end)
    for base in (10, 19):
        told = parse_snapshot((folder / names.snapshot_file(base)).read_bytes())
        assert [one.producer_id for one in told] == [3]
    with opened(restoring, "t-0") as log:
        assert log.log_end == part.end
    (plan,) = restoring.plan(until_ms=104).partitions
    assert plan.log_end == 8
