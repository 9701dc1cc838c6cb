"""Closed segments below the recovery point that are not what their names say: found at their first use."""

import inspect
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, fill, log_bytes, slice_bytes
from kit.model_disk import ModelDisk, PowerCut
from tierd.storage.batch import walk
from tierd.storage.disk import PosixDisk
from tierd.storage.names import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT, Suffix, segment_file

TIERED = replace(SMALL, remote_storage_enable=True, file_delete_delay_ms=0)


def stopped(root: Path) -> tuple[Place, bytes, list[tuple[int, int]]]:
    """A log stopped cleanly: its bytes, and [base, next base) of each closed segment."""
    place = Place(root, TIERED)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 60)
    whole = log_bytes(log)
    ranges = [(view.base, view.next_base) for view in log.closed()]
    directory.close(clean=True)
    assert len(ranges) > 3
    return place, whole, ranges


def log_file(place: Place, base: int) -> Path:
    return place.data / f"{TP}" / segment_file(base, Suffix.LOG)


def torn(root: Path) -> tuple[Place, bytes, tuple[int, int], int]:
    """The second segment is 100 bytes short: with it goes its last batch, two records."""
    place, whole, ranges = stopped(root)
    path = log_file(place, ranges[1][0])
    os.truncate(path, path.stat().st_size - 100)
    return place, whole, (ranges[1][1] - 2, ranges[1][1]), ranges[1][0]


def test_a_torn_end_is_cut_and_named(tmp_path: Path) -> None:
    place, _, gap, base = torn(tmp_path)
    directory = place.open()
    log = directory.logs[TP]
    assert log.gaps == ()
    sent = log_bytes(log)
    assert log.gaps == (gap,)
    offsets = [header.base_offset for _, header in walk(sent)]
    assert offsets == [offset for offset in range(0, 120, 2) if offset != gap[0]]
    assert [(cut.base, cut.next_offset) for cut in log.cuts] == [(base, gap[0])]
    assert len(place.set_aside_files()) == 2
    directory.close(clean=True)
    again = place.open().logs[TP]
    assert (log_bytes(again), again.gaps, again.cuts) == (sent, (gap,), [])


def test_a_torn_end_is_left_to_a_bucket_that_has_it(tmp_path: Path) -> None:
    place, whole, gap, _ = torn(tmp_path)
    log = place.open().logs[TP]
    log.begin(1, 0)
    log.on_loss = lambda: log.judge_gaps(0, gap[1])  # type: ignore[func-returns-value, assignment]
    assert slice_bytes(log, gap[0]) == b""
    assert (log.local_start, log.log_start, log.gaps) == (gap[1], 0, ())
    assert whole.endswith(log_bytes(log))


@pytest.mark.parametrize("indexed", [True, False])
def test_a_segment_that_lies_in_another_is_set_aside(indexed: bool, tmp_path: Path) -> None:
    place, whole, ranges = stopped(tmp_path)
    base = ranges[1][0]
    raw = log_file(place, base).read_bytes()
    position, header = list(walk(raw))[2]
    copy = log_file(place, header.base_offset)
    copy.write_bytes(raw[position:])
    log = place.open().logs[TP]
    if not indexed:
        log_file(place, base).with_suffix(".index").unlink()
    assert log_bytes(log) == whole
    assert log.gaps == ()
    assert copy.name in place.set_aside_files()


def test_what_reaches_into_the_next_segment_is_cut(tmp_path: Path) -> None:
    place, whole, ranges = stopped(tmp_path)
    first, second = (log_file(place, ranges[i][0]) for i in (1, 2))
    _, header = next(iter(walk(second.read_bytes())))
    with first.open("ab") as file:
        file.write(second.read_bytes()[: header.size_bytes])
    log = place.open().logs[TP]
    assert log_bytes(log) == whole
    assert (log.gaps, len(log.cuts)) == ((), 1)


def ends_with_a_batch(path: Path) -> int:
    """Cut off in front of its last batches: all that is left is whole."""
    position, header = list(walk(path.read_bytes()))[-2]
    os.truncate(path, position)
    return header.base_offset


def emptied(path: Path) -> int:
    os.truncate(path, 0)
    return int(path.stem)


def gone(path: Path) -> int:
    path.unlink()
    return int(path.stem)


def overwritten(path: Path) -> int:
    """It holds what a later segment does; what lies in between is not in it."""
    path.write_bytes(sorted(path.parent.glob("*.log"))[4].read_bytes())
    return int(path.stem)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [ends_with_a_batch, emptied, gone, overwritten])
def test_a_loss_that_only_the_indexes_tell_of_is_named(
    damage: Callable[[Path], int], clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, _, ranges = stopped(tmp_path)
    start = damage(log_file(place, ranges[1][0]))
    if not clean:
        (place.data / CLEAN_SHUTDOWN).unlink()
    directory = place.open()
    log = directory.logs[TP]
    log.begin(1, 0)
    kept = [offset for offset in range(0, 120, 2) if not start <= offset < ranges[1][1]]
    assert [header.base_offset for _, header in walk(log_bytes(log))] == kept
    assert (log.gaps, log.log_start) == (((start, ranges[1][1]),), 0)
    assert ("the .log of a segment is gone" in caplog.text) == (damage is gone)
    directory.close(clean=True)
    again = place.open().logs[TP]
    assert [header.base_offset for _, header in walk(log_bytes(again))] == kept
    assert again.gaps == log.gaps


@pytest.mark.parametrize("steps", range(8))
def test_an_index_that_compaction_has_left_tells_of_no_loss(steps: int, tmp_path: Path) -> None:
    """A stop came while the old files got their marks; another one, before all of them were gone."""
    place, _, ranges = stopped(tmp_path)
    path = log_file(place, ranges[2][0])
    deleted = path.with_name(f"{path.name}.deleted")
    path.replace(deleted)
    before = log_file(place, ranges[1][0])
    before.with_name(f"{before.name}.deleted").write_bytes(before.read_bytes())
    place.disk = disk = ModelDisk(tmp_path)
    disk.dies_at = disk.steps + steps
    with suppress(PowerCut):
        place.open().close(clean=False)
    place.disk = PosixDisk()
    log = place.open().logs[TP]
    assert log_bytes(log)
    assert log.gaps == ()
    assert not list(path.parent.glob(f"{path.stem}.*index*"))


@pytest.mark.parametrize("at", [1, -1])
def test_a_segment_of_another_place_is_a_loss_where_it_is_read_again(at: int, tmp_path: Path) -> None:
    """It holds what the active one does; the last closed one may then be all that is left."""
    place, _, ranges = stopped(tmp_path)
    start, stop = ranges[at]
    (place.data / CLEAN_SHUTDOWN).unlink()
    (place.data / RECOVERY_POINT_CHECKPOINT).unlink()
    active = log_file(place, ranges[-1][1])
    raw, lost = active.read_bytes(), log_file(place, start).read_bytes()
    log_file(place, start).write_bytes(raw)
    if at < 0:
        active.write_bytes(lost)
    log = place.open().logs[TP]
    log.begin(1, 0)
    kept = [offset for offset in range(0, 120 if at > 0 else start, 2) if not start <= offset < stop]
    assert [header.base_offset for _, header in walk(log_bytes(log))] == kept
    assert (log.gaps, log.log_end) == (((start, stop),) if at > 0 else (), kept[-1] + 2)


def test_a_hole_between_whole_segments_is_passed_over(tmp_path: Path) -> None:
    """Compaction leaves such holes, and nobody knows what was compacted before it was adopted."""
    place, _, ranges = stopped(tmp_path)
    for path in (place.data / f"{TP}").glob(f"{ranges[2][0]:020d}.*"):
        path.unlink()
    log = place.open().logs[TP]
    assert [header.base_offset for _, header in walk(log_bytes(log))] == [
        offset for offset in range(0, 120, 2) if not ranges[2][0] <= offset < ranges[2][1]
    ]
    assert (log.gaps, log.local_start) == ((), 0)


def test_whole_segments_are_left_as_they_are(tmp_path: Path) -> None:
    place, whole, _ = stopped(tmp_path)
    log = place.open().logs[TP]
    assert log_bytes(log) == whole
    assert (log.gaps, log.cuts, place.set_aside_files()) == ((), [], [])


def test_a_folder_in_the_place_of_an_index_is_moved_away(tmp_path: Path) -> None:
    place, whole, ranges = stopped(tmp_path)
    index = log_file(place, ranges[1][0]).with_suffix(".index")
    index.unlink()
    index.mkdir()
    assert log_bytes(place.open().logs[TP]) == whole
    assert index.is_file()
    assert (index.parent / f"{index.name}.no-file").is_dir()


def test_a_log_start_beyond_the_end_is_said_to_be_that(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place, _, _ = stopped(tmp_path)
    (place.data / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1000\n")
    log = place.open().logs[TP]
    log.begin(1, 0)
    assert (log.log_start, log.log_end) == (1000, 1000)
    assert "log start lies beyond the log end" in caplog.text
    assert place.set_aside_files()


_DEEP = 100
"""So much deeper than now Python may call itself: enough for all that is no recursion."""


class WithoutSync(PosixDisk):
    """For very many small files: the power stays on here."""

    def fsync_file(self, path: Path) -> None:
        """Nobody asks."""

    def fsync_dir(self, path: Path) -> None:
        """Nobody asks."""


@pytest.fixture
def shallow() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + _DEEP)
    yield
    sys.setrecursionlimit(limit)


def test_very_many_segments_in_a_row_may_have_lost_all_they_had(tmp_path: Path, shallow: None) -> None:
    """Only their indexes tell of them."""
    place = Place(tmp_path, TIERED, disk=WithoutSync())
    directory = place.open()
    fill(place.new_log(directory), 2)
    directory.close(clean=True)
    bases = range(4, 4 + 2 * (_DEEP + 20), 2)
    for base in bases:
        log_file(place, base).touch()
        log_file(place, base).with_suffix(".index").write_bytes(struct.pack(">II", 1, 0))
        log_file(place, base).with_suffix(".timeindex").write_bytes(struct.pack(">qI", T0, 1))
    directory = place.open()
    log = directory.logs[TP]
    log.begin(1, 0)
    log.append(batch(), now_ms=T0)
    assert slice_bytes(log, bases[-2])
    assert (log.log_end, log.gaps) == (bases[-1] + 1, ((4, bases[-1]),))
    directory.close(clean=True)
