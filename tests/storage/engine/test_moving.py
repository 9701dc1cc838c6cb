"""A log moves to another directory while it is being written and read: nothing is lost, nothing comes twice."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, log_bytes, slice_bytes
from tierd.base.errors import CorruptFile, DiskFull
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk, PosixFile
from tierd.storage.folder_copy import CopyStopped, FolderCopy
from tierd.storage.health import DirectoryHealth
from tierd.storage.log import Log


@pytest.fixture
def places(tmp_path: Path) -> tuple[Place, Place]:
    return Place(tmp_path / "a"), Place(tmp_path / "b")


@pytest.fixture
def directories(places: tuple[Place, Place]) -> Iterator[tuple[LogDirectory, LogDirectory]]:
    opened = places[0].open(), places[1].open()
    yield opened
    for directory in opened:
        directory.close(clean=False)


def fill(log: Log, count: int, producer: int | None = None) -> None:
    for _ in range(count):
        sequence = log.log_end * 3
        who = None if producer is None else (producer, 0, sequence)
        log.append(batch(3, size=200, producer=who), now_ms=T0)


def move(log: Log, source: LogDirectory, target: LogDirectory, between: int = 0) -> FolderCopy:
    """As the broker does it; *between* batches come while the copy is made."""
    copy = target.copy_of(log, source)
    copy.begin()
    for _ in range(2):
        copy.round(*log.active_log())
        fill(log, between)
    log.settle_files()
    copy.round(*log.active_log())
    target.take_in(log, copy)
    source.let_go(log.name)
    return copy


def test_a_moved_log_goes_on_and_opens_again(
    directories: tuple[LogDirectory, LogDirectory], places: tuple[Place, Place]
) -> None:
    a, b = directories
    log = places[0].new_log(a)
    fill(log, 30)
    assert len(log.closed()) > 2
    held = log.read(0, 4000, committed=False)
    move(log, a, b, between=10)
    fill(log, 20)
    expected = log_bytes(log)
    assert log.directory == b.path / "t-0"
    assert (TP in a.logs, b.logs[TP]) == (False, log)
    assert held.spans
    assert os.pread(held.spans[0].fd, held.spans[0].length, held.spans[0].position)  # what readers hold stays readable
    held.release()
    log.roll()
    job = log.unflushed()
    assert job is not None
    job.run()
    log.flushed(job)
    assert not (a.path / "t-0").exists()
    for directory in directories:
        directory.write_checkpoints()
        directory.close(clean=False)
    again = places[1].open()
    assert log_bytes(again.logs[TP]) == expected
    again.close(clean=True)


def test_producers_are_known_after_a_move(
    directories: tuple[LogDirectory, LogDirectory], places: tuple[Place, Place]
) -> None:
    a, b = directories
    log = places[0].new_log(a)
    firsts = [log.append(batch(3, producer=(7, 0, 3 * n)), now_ms=T0).first_offset for n in range(6)]
    move(log, a, b)
    for n in range(1, 6):  # all of the last five, not just what a snapshot keeps
        again = log.append(batch(3, producer=(7, 0, 3 * n)), now_ms=T0)
        assert (again.duplicate, again.first_offset) == (True, firsts[n])


def test_log_start_lasts_in_the_new_directory(
    directories: tuple[LogDirectory, LogDirectory], places: tuple[Place, Place]
) -> None:
    a, b = directories
    log = places[0].new_log(a)
    fill(log, 30)
    log.move_log_start(47)
    move(log, a, b)
    b.close(clean=False)
    again = places[1].open()
    assert (again.logs[TP].log_start, again.logs[TP].log_end) == (47, 90)
    again.close(clean=True)


def test_what_left_the_original_leaves_the_copy(
    directories: tuple[LogDirectory, LogDirectory], places: tuple[Place, Place]
) -> None:
    a, b = directories
    log = places[0].new_log(a)
    fill(log, 40)
    copy = b.copy_of(log, a)
    copy.begin()
    copy.round(*log.active_log())
    log.move_log_start(log.closed()[2].base)
    copy.round(*log.active_log())
    kept = sorted(path.name for path in log.directory.iterdir() if not path.name.endswith(".deleted"))
    assert sorted(path.name for path in copy.target.iterdir()) == kept
    assert copy.size_bytes == log.size_bytes


def test_a_preallocated_segment_is_copied_as_far_as_it_counts(tmp_path: Path) -> None:
    import dataclasses

    settings = dataclasses.replace(SMALL, preallocate=True, internal_segment_bytes=1 << 20)
    one, two = Place(tmp_path / "a", settings), Place(tmp_path / "b", settings)
    a, b = one.open(), two.open()
    log = one.new_log(a)
    fill(log, 20)
    move(log, a, b, between=3)
    assert (log.directory / "00000000000000000000.log").stat().st_size == log.size_bytes
    fill(log, 5)
    expected = log_bytes(log)
    a.close(clean=False)
    b.close(clean=True)
    again = two.open()
    assert log_bytes(again.logs[TP]) == expected
    again.close(clean=True)


def test_the_reserve_of_the_target_is_not_touched(tmp_path: Path) -> None:
    one, two = Place(tmp_path / "a"), Place(tmp_path / "b", reserve_bytes=1 << 60)
    a, b = one.open(), two.open()
    log = one.new_log(a)
    fill(log, 5)
    copy = b.copy_of(log, a)
    copy.begin()
    with pytest.raises(DiskFull, match="reserve"):
        copy.round(*log.active_log())
    b.discard(TP, copy.target.name)
    b.purge()
    assert not [path for path in b.path.iterdir() if path.is_dir()]
    assert slice_bytes(log, 0)
    a.close(clean=False)
    b.close(clean=False)


def test_a_copy_can_be_stopped(directories: tuple[LogDirectory, LogDirectory], places: tuple[Place, Place]) -> None:
    a, b = directories
    log = places[0].new_log(a)
    fill(log, 5)
    copy = b.copy_of(log, a)
    copy.begin()
    with pytest.raises(CopyStopped):
        copy.round(*log.active_log(), lambda: True)


class _CutsOnOpening(PosixDisk):
    """Cuts *source* when its copy is opened for the first time: a repair comes between the look at it and the copy."""

    source: Path | None = None

    def open(self, path: Path, *, create: bool = False) -> PosixFile:
        if self.source is not None and path.name == self.source.name:
            os.truncate(self.source, self.source.stat().st_size // 2)
            self.source = None
        return super().open(path, create=create)


def test_a_segment_that_is_cut_while_it_is_copied_comes_as_it_is_then(tmp_path: Path) -> None:
    source, target = tmp_path / "t-0", tmp_path / "t-0.copy"
    source.mkdir()
    first, active = source / f"{0:020d}.log", source / f"{10:020d}.log"
    first.write_bytes(b"x" * 1000)
    active.write_bytes(b"y" * 100)
    disk = _CutsOnOpening()
    disk.source = first
    copy = FolderCopy(source, target, disk, DirectoryHealth(tmp_path), 0)
    copy.begin()
    copy.round(active.name, 100)
    copy.round(active.name, 100)
    assert (target / first.name).read_bytes() == b"x" * 500
    with pytest.raises(CorruptFile):  # of the active one the log knows the size
        copy.round(active.name, 101)
