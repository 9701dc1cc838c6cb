"""What the bucket gives back: lost offsets, forgotten producers and epochs."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, log_bytes
from tierd.storage.directory import LogDirectory
from tierd.storage.epochs import encode_epochs
from tierd.storage.log import Log
from tierd.storage.names import LEADER_EPOCH_CHECKPOINT, Suffix, segment_file
from tierd.storage.snapshot import ProducerEntry, encode_snapshot, parse_snapshot
from tierd.storage.view import Seed

TIERED = replace(SMALL, remote_storage_enable=True, file_delete_delay_ms=0)


def fill(log: Log, batches: int, producer: int = 5, first: int = 0) -> None:
    for i in range(batches):
        log.append(batch(3, size=100, producer=(producer, 0, first + i * 3)), now_ms=T0 + i)


def torn_in_the_middle(root: Path) -> tuple[Place, LogDirectory, tuple[int, int]]:
    """A log whose second segment has lost all from its third batch on, opened again; the offsets lost."""
    place = Place(root, TIERED)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 40)
    second = log.closed()[1]
    directory.starts.persist(TP, 0)
    directory.close(clean=False)
    path = place.data / f"{TP}" / segment_file(second.base, Suffix.LOG)
    raw = bytearray(path.read_bytes())
    size = 12 + int.from_bytes(raw[8:12], "big")
    raw[2 * size + 100] ^= 1
    path.write_bytes(raw)
    return place, place.open(), (second.base + 6, second.next_base)


def test_lost_offsets_are_left_to_a_bucket_that_has_them(tmp_path: Path) -> None:
    place, directory, gap = torn_in_the_middle(tmp_path)
    log = directory.logs[TP]
    assert log.gaps == (gap,)
    whole = log_bytes(log)
    assert log.judge_gaps(0, gap[1]) == (gap,)
    assert (log.local_start, log.log_start, log.gaps) == (gap[1], 0, ())
    assert (place.data / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"
    log.begin(1, 0)
    assert whole.endswith(log_bytes(log))
    directory.close(clean=True)
    again = place.open().logs[TP]
    assert (again.local_start, again.log_start, again.gaps) == (gap[1], 0, ())


@pytest.mark.parametrize(("start", "short_by"), [(0, 1), (3, 0)], ids=["ends too soon", "begins too late"])
def test_a_bucket_that_lacks_them_changes_nothing(start: int, short_by: int, tmp_path: Path) -> None:
    _, directory, gap = torn_in_the_middle(tmp_path)
    log = directory.logs[TP]
    before = log_bytes(log)
    assert log.judge_gaps(start, gap[1] - short_by) == ()
    assert (log.local_start, log.gaps) == (0, (gap,))
    log.begin(1, 0)
    assert log_bytes(log) == before


def test_what_is_judged_lost_stays_lost(tmp_path: Path) -> None:
    """Later the bucket has a copy of what was left of the segment: it covers the offsets and does not have them."""
    place, directory, gap = torn_in_the_middle(tmp_path)
    directory.logs[TP].judge_gaps(0, 0)
    directory.close(clean=True)
    log = place.open().logs[TP]
    assert log.judge_gaps(0, log.log_end) == ()
    assert log.gaps == (gap,)
    log.move_log_start(gap[1])
    assert log.gaps == ()


def test_a_crash_before_the_judgement_puts_it_off(tmp_path: Path) -> None:
    place, directory, gap = torn_in_the_middle(tmp_path)
    directory.close(clean=False)
    assert place.open().logs[TP].judge_gaps(0, gap[1]) == (gap,)


def evicted(root: Path) -> tuple[Place, Seed, int]:
    """Producer 5 wrote only what is in the bucket by now, in epochs 0 and 3; producer 6 wrote what is left.

    The disk has neither snapshot nor epoch file.
    """
    place = Place(root, TIERED)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 20)
    log.begin(3, 0)
    fill(log, 20, producer=5, first=60)
    log.roll()
    at = log.log_end
    fill(log, 30, producer=6)
    log.roll()
    fill(log, 2, producer=6, first=90)
    job = log.unflushed()
    assert job is not None
    job.run()
    log.flushed(job)
    folder = place.data / f"{TP}"
    seed = Seed((folder / segment_file(at, Suffix.SNAPSHOT)).read_bytes(), encode_epochs(list(log.epochs)))
    assert log.evict(at) == at
    directory.purge()
    directory.close(clean=True)
    for path in folder.glob("*.snapshot"):
        path.unlink()
    (folder / LEADER_EPOCH_CHECKPOINT).unlink()
    return place, seed, at


def test_forgotten_producers_and_epochs_come_back(tmp_path: Path) -> None:
    place, seed, at = evicted(tmp_path)
    directory = place.open()
    log = directory.logs[TP]
    assert log.forgetful
    assert log.epoch_at(0) is None
    log.recall(seed, at)
    assert not log.forgetful
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs] == [(0, 0), (3, 60)]
    log.begin(4, 0)
    for producer, last in ((5, 117), (6, 93)):
        assert log.append(batch(3, size=100, producer=(producer, 0, last)), now_ms=T0).duplicate
    known = {
        path.name: {entry.producer_id for entry in parse_snapshot(path.read_bytes())}
        for path in log.directory.glob("*.snapshot")
    }
    assert known[segment_file(at, Suffix.SNAPSHOT)] == {5}
    assert all(producers == {5, 6} for name, producers in known.items() if name > segment_file(at, Suffix.SNAPSHOT))
    directory.close(clean=True)
    again = place.open().logs[TP]
    assert not again.forgetful
    again.begin(5, 0)
    assert again.append(batch(3, size=100, producer=(5, 0, 117)), now_ms=T0).duplicate


def test_a_seed_within_the_local_log_is_replayed_from_its_place(tmp_path: Path) -> None:
    """The bucket's end lies in the middle of what is on the disk: what the seed knows already is not taken in twice."""
    place, _, at = evicted(tmp_path)
    log = place.open().logs[TP]
    second = log.closed()[1].base
    told = ProducerEntry(
        producer_id=6,
        epoch=0,
        last_sequence=second - at - 1,
        last_offset=second - 1,
        offset_delta=2,
        timestamp_ms=T0,
        coordinator_epoch=None,
        txn_first_offset=None,
    )
    log.recall(Seed(encode_snapshot([told]), b"0\n2\n0 0\n3 60\n"), second)
    log.begin(4, 0)
    assert log.append(batch(3, size=100, producer=(6, 0, 93)), now_ms=T0).duplicate
    snapshots = sorted(path.name for path in log.directory.glob("*.snapshot"))
    assert snapshots[0] == segment_file(second, Suffix.SNAPSHOT)


def test_a_log_that_has_its_memory_is_not_forgetful(tmp_path: Path) -> None:
    place = Place(tmp_path, TIERED)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 40)
    job = log.unflushed()
    assert job is not None
    job.run()
    log.flushed(job)
    log.evict(log.closed()[-1].base)
    directory.close(clean=False)
    assert not place.open().logs[TP].forgetful
