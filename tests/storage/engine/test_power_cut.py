"""The power goes at every single step of a log's life; what was promised must be there afterwards.

Each cut is looked at three ways: the process died but the page cache lives (kill -9), everything not fsynced is gone,
and a random part of it is gone.
"""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, log_bytes
from kit.model_disk import ModelDisk, PowerCut
from tierd.storage.batch import parse_header, walk
from tierd.storage.log import Log
from tierd.storage.snapshot import encode_snapshot
from tierd.storage.view import Seed

TIERED = replace(SMALL, internal_segment_bytes=700, remote_storage_enable=True, file_delete_delay_ms=0)
PRODUCER = 9


@dataclass
class Promise:
    """What the log has told the world so far."""

    acked: dict[int, bytes] = field(default_factory=dict)
    """Batch by base offset."""
    durable_to: int = 0
    log_start: int = 0
    created: bool = False

    def append(self, log: Log, count: int) -> None:
        for _ in range(count):
            sequence = log.log_end
            raw = batch(2, size=60, producer=(PRODUCER, 0, sequence), at_ms=T0 + sequence)
            done = log.append(raw, now_ms=T0 + sequence)
            assert done.first_offset == sequence
            self.acked[done.first_offset] = bytes(raw)

    def flush(self, log: Log, *, active: bool = False) -> None:
        job = log.unflushed(active=active)
        if job is not None:
            job.run()
            log.flushed(job)
            self.durable_to = max(self.durable_to, job.upto)


def live(place: Place, promise: Promise) -> None:
    """A log's life: born, written, rolled, flushed, evicted, cut at its start, closed, opened, written again."""
    directory = place.open()
    log = place.new_log(directory)
    promise.created = True
    promise.append(log, 7)
    promise.flush(log)
    directory.write_checkpoints()
    promise.append(log, 3)
    promise.flush(log, active=True)
    assert log.evict(log.closed()[1].base) == log.closed()[0].base
    promise.append(log, 4)
    promise.log_start = log.log_start
    log.move_log_start(log.closed()[0].next_base)
    promise.log_start = log.log_start
    directory.purge()
    directory.close(clean=True)
    promise.durable_to = log.log_end
    directory = place.open()
    log = directory.logs[TP]
    log.begin(3, 0)
    promise.append(log, 5)
    promise.flush(log)
    directory.close(clean=False)


def check(place: Place, promise: Promise, *, survives: bool) -> None:
    """Open what is left: all that was promised is there, nothing else is, and the log goes on."""
    directory = place.open()
    must_be_there = promise.durable_to if not survives else max([0, *(b + 2 for b in promise.acked)])
    if TP not in directory.logs:
        assert not must_be_there
        directory.close(clean=False)
        return
    log = directory.logs[TP]
    assert log.log_end >= must_be_there
    assert log.log_start >= promise.log_start
    at = log.local_start
    for _, header in walk(log_bytes(log)):
        assert header.base_offset <= at or (at, header.base_offset) in log.gaps, "a hole"
        assert at <= header.next_offset, "an overlap"
        at = header.next_offset
    assert at == log.log_end
    for header, raw in log.batches():
        assert raw == promise.acked[header.base_offset]
    goes_on(log)
    directory.close(clean=True)


def goes_on(log: Log) -> None:
    """Epochs rise, the producer is remembered exactly as far as the log reaches."""
    log.begin(max(log.leader_epoch, 0) + 1, 0)
    end = log.log_end
    if end - 2 >= log.local_start:
        again = log.append(batch(2, size=60, producer=(PRODUCER, 0, end - 2), at_ms=T0 + end - 2), now_ms=T0)
        assert again.duplicate
        assert again.first_offset == end - 2
    done = log.append(batch(2, size=60, producer=(PRODUCER, 0, end), at_ms=T0), now_ms=T0)
    assert (done.first_offset, done.duplicate) == (end, False)
    assert log.view().log_end == end + 2


def steps_of_a_life(root: Path) -> int:
    root.mkdir()
    disk = ModelDisk(root)
    live(Place(root, TIERED, disk=disk), Promise())
    return disk.steps


@pytest.mark.parametrize("part", range(4))
def test_power_cut_at_every_step(part: int, tmp_path: Path) -> None:
    steps = steps_of_a_life(tmp_path / "whole")
    assert steps > 100
    for dies_at in range(1 + part, steps + 1, 4):
        for how in ("killed", "nothing", "some"):
            root = tmp_path / "life"
            root.mkdir()
            disk = ModelDisk(root, dies_at)
            promise = Promise()
            with pytest.raises(PowerCut):
                live(Place(root, TIERED, disk=disk), promise)
            if how != "killed":
                disk.lose_unsynced(Random(dies_at) if how == "some" else None)
            try:
                check(Place(root, TIERED, disk=ModelDisk(root)), promise, survives=how == "killed")
            except Exception as error:
                error.add_note(f"step {dies_at} ({disk.trace[-1]}), {how}; before: {disk.trace[-6:-1]}")
                raise
            shutil.rmtree(root)


def flush_and_roll(place: Place) -> None:
    """All is on the disk and noted so while the segment is still active; then it is closed."""
    directory = place.open()
    log = place.new_log(directory)
    promise = Promise()
    promise.append(log, 3)
    promise.flush(log, active=True)
    directory.write_checkpoints()
    log.roll()
    promise.append(log, 1)
    directory.close(clean=False)


@pytest.mark.parametrize("lose", [False, True])
def test_power_cut_before_a_closed_segments_indexes_are_whole(lose: bool, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    disk = ModelDisk(whole)
    flush_and_roll(Place(whole, TIERED, disk=disk))
    rolled = disk.trace.index(f"create {6:020d}.log")
    for dies_at in range(rolled, disk.steps + 1):
        root = tmp_path / "life"
        root.mkdir()
        disk = ModelDisk(root, dies_at)
        with pytest.raises(PowerCut):
            flush_and_roll(Place(root, TIERED, disk=disk))
        if lose:
            disk.lose_unsynced()
        directory = Place(root, TIERED, disk=ModelDisk(root)).open()
        log = directory.logs[TP]
        assert log.log_end == 6
        for view in log.closed():
            assert view.largest_timestamp_ms == T0 + 5
        directory.close(clean=True)
        shutil.rmtree(root)


@pytest.mark.parametrize("seed", range(12))
def test_what_recovery_has_cut_off_does_not_come_back(seed: int, tmp_path: Path) -> None:
    """Not even when the next segment's name has survived, and nothing else, and so nobody reads this one again."""
    place, promise = Place(tmp_path, TIERED, disk=ModelDisk(tmp_path)), Promise()
    directory = place.open()
    log = place.new_log(directory)
    promise.append(log, 3)
    promise.flush(log, active=True)
    directory.write_checkpoints()
    directory.close(clean=False)
    with (log.directory / f"{0:020d}.log").open("ab") as file:
        file.write(bytes(batch(2, size=60))[:-10])
    disk = place.disk = ModelDisk(tmp_path)
    directory = place.open()
    directory.logs[TP].roll()
    directory.close(clean=False)
    disk.lose_unsynced(Random(seed))
    directory = Place(tmp_path, TIERED).open()
    assert log_bytes(directory.logs[TP]) == b"".join(promise.acked.values())
    directory.close(clean=True)


def knows_a_retry(tmp_path: Path, epoch: int) -> None:
    """The log, opened again, takes the last batch that the producer wrote for what it is."""
    directory = Place(tmp_path, TIERED).open()
    log = directory.logs[TP]
    log.begin(epoch, 0)
    again = log.append(batch(2, size=60, producer=(PRODUCER, 0, 4), at_ms=T0 + 4), now_ms=T0)
    assert (again.first_offset, again.duplicate) == (4, True)
    directory.close(clean=True)


@pytest.mark.parametrize("flushed", [True, False])
def test_producers_are_remembered_though_all_they_wrote_was_deleted(flushed: bool, tmp_path: Path) -> None:
    """Also when nothing has been flushed between the roll and the cut."""
    disk, promise = ModelDisk(tmp_path), Promise()
    directory = Place(tmp_path, TIERED, disk=disk).open()
    log = Place(tmp_path, TIERED, disk=disk).new_log(directory)
    promise.append(log, 3)
    promise.flush(log, active=True)
    log.roll()
    log.move_log_start(log.log_end)
    if flushed:
        promise.flush(log, active=True)
        directory.write_checkpoints()
    directory.close(clean=False)
    disk.lose_unsynced()
    knows_a_retry(tmp_path, 1)


def test_a_start_does_not_take_for_flushed_what_was_closed_after_the_flush(tmp_path: Path) -> None:
    """The recovery point lies where the new segment begins, but it came from a flush of the one before, which was then
    still active; the kill in between leaves no sign of that."""
    disk, promise = ModelDisk(tmp_path), Promise()
    place = Place(tmp_path, TIERED, disk=disk)
    directory = place.open()
    log = place.new_log(directory)
    promise.append(log, 3)
    promise.flush(log, active=True)
    directory.write_checkpoints()
    log.roll()
    directory.close(clean=False)
    directory = place.open()
    log = directory.logs[TP]
    log.begin(1, 0)
    log.move_log_start(log.log_end)
    directory.close(clean=False)
    disk.lose_unsynced()
    knows_a_retry(tmp_path, 2)


SEED = Seed(encode_snapshot([]), b"0\n2\n0 0\n5 70\n")


def fall_behind(place: Place, promise: Promise) -> None:
    """The bucket has offsets up to 100, the disk fewer: go on above it."""
    directory = place.open()
    log = place.new_log(directory)
    promise.append(log, 8)
    promise.flush(log, active=True)
    log.begin(6, 100, SEED)
    promise.durable_to = 100
    promise.append(log, 2)
    directory.close(clean=True)


def test_power_cut_while_going_on_above_the_bucket(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    disk = ModelDisk(whole)
    fall_behind(Place(whole, TIERED, disk=disk), Promise())
    for dies_at in range(1, disk.steps + 1):
        for lose in (False, True):
            root = tmp_path / "life"
            root.mkdir()
            disk, promise = ModelDisk(root, dies_at), Promise()
            with pytest.raises(PowerCut):
                fall_behind(Place(root, TIERED, disk=disk), promise)
            if lose:
                disk.lose_unsynced()
            check_above(Place(root, TIERED, disk=ModelDisk(root)), promise)
            shutil.rmtree(root)


def check_above(place: Place, promise: Promise) -> None:
    """The next start gets above the bucket's end, in one piece, and every old byte is in the log or set aside."""
    directory = place.open()
    if TP not in directory.logs:
        assert promise.durable_to == 0
        directory.close(clean=False)
        return
    log = directory.logs[TP]
    log.begin(7, 100, SEED)
    assert log.log_end >= 100
    assert log.local_start == 100
    assert log.log_start == 0
    assert [entry.epoch for entry in log.epochs][:2] == [0, 5]
    assert log.append(batch(), now_ms=T0).first_offset >= 100
    for header, raw in log.batches(100, log.log_end - 1):
        assert raw == promise.acked[header.base_offset]
    if promise.durable_to:
        kept = b"".join(path.read_bytes() for path in place.set_aside.rglob("*.log*"))
        for base, raw in promise.acked.items():
            assert base >= 100 or raw in kept
    directory.close(clean=True)


def come_and_go(place: Place) -> None:
    directory = place.open()
    log = place.new_log(directory)
    Promise().append(log, 8)
    directory.remove(TP)
    place.clock.advance(1)
    directory.purge()
    directory.close(clean=True)


@pytest.mark.parametrize("how", ["killed", "nothing", "some"])
def test_power_cut_while_a_partition_is_deleted(how: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    disk = ModelDisk(whole)
    come_and_go(Place(whole, TIERED, disk=disk))
    removed = disk.trace.index("fsync_dir data", disk.trace.index("mkdir t-0"))
    for dies_at in range(1, disk.steps + 1):
        root = tmp_path / "life"
        root.mkdir()
        disk = ModelDisk(root, dies_at)
        with pytest.raises(PowerCut):
            come_and_go(Place(root, TIERED, disk=disk))
        if how != "killed":
            disk.lose_unsynced(Random(dies_at) if how == "some" else None)
        place = Place(root, TIERED, disk=ModelDisk(root))
        directory = place.open()
        assert TP not in directory.logs or dies_at <= removed
        directory.purge()
        directory.close(clean=True)
        assert not [path for path in place.data.iterdir() if path.name.endswith("-delete")]
        shutil.rmtree(root)


def test_the_model_forgets_what_was_not_fsynced(tmp_path: Path) -> None:
    disk = ModelDisk(tmp_path)
    disk.write_new(tmp_path / "a", b"one")
    disk.fsync_file(tmp_path / "a")
    disk.fsync_dir(tmp_path)
    disk.write_new(tmp_path / "a", b"two")
    disk.write_new(tmp_path / "b", b"three")
    disk.fsync_file(tmp_path / "b")
    disk.lose_unsynced()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"one"}


def test_headers_of_the_kit_are_what_they_seem() -> None:
    assert parse_header(batch(2, producer=(PRODUCER, 0, 4))).base_sequence == 4
