"""Damage that a thread repairs, and what happens to the log and its files meanwhile."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, fill, log_bytes, slice_bytes
from kit.model_disk import ModelDisk, PowerCut
from tierd.base.errors import CorruptFile, DiskFull
from tierd.storage.batch import walk
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.storage.errors import OffsetOutOfRange, Repairing
from tierd.storage.log import Log
from tierd.storage.names import TMP, Suffix, segment_file
from tierd.storage.repairs import Repair

SETTINGS = replace(SMALL, file_delete_delay_ms=0)


class Thread:
    """The thread that repairs, at work only when a test says so."""

    def __init__(self, directory: LogDirectory) -> None:
        self.waiting: list[Repair] = []
        self._repairs = directory.repairs
        self._repairs.hand_over = self.waiting.append

    def work(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Repair; *meanwhile* comes before the loop takes it in."""
        repair = self.waiting.pop(0)
        try:
            take_in = repair.work()
            meanwhile()
            take_in()
        except (CorruptFile, DiskFull, OSError) as error:
            self._repairs.end(repair, error)
        else:
            self._repairs.end(repair)


class Damaged:
    """A log whose second segment is 100 bytes short: its last batch, two records, is `gap`."""

    def __init__(self, root: Path) -> None:
        self.place = Place(root, SETTINGS)
        directory = self.place.open()
        log = self.place.new_log(directory)
        fill(log, 60)
        self.whole = log_bytes(log)
        self.ranges = [(view.base, view.next_base) for view in log.closed()]
        directory.close(clean=True)
        self.base, stop = self.ranges[1]
        self.gap = (stop - 2, stop)
        os.truncate(self.path(Suffix.LOG), self.path(Suffix.LOG).stat().st_size - 100)

    def copied(self, root: Path) -> "Damaged":
        shutil.copytree(self.place.root, root)
        other = copy(self)
        other.place = Place(root, SETTINGS)
        return other

    def path(self, suffix: Suffix) -> Path:
        return self.place.data / f"{TP}" / segment_file(self.base, suffix)

    def open(self) -> None:
        self.directory = self.place.open()
        self.log = self.directory.logs[TP]
        self.log.begin(1, 0)
        self.thread = Thread(self.directory)

    def left(self) -> list[str]:
        return [path.name for path in self.path(Suffix.LOG).parent.iterdir() if path.name.endswith(TMP)]


@pytest.fixture
def damaged(tmp_path: Path) -> Damaged:
    damaged = Damaged(tmp_path)
    damaged.open()
    return damaged


def bases(log: Log) -> list[int]:
    return [header.base_offset for _, header in walk(log_bytes(log))]


def without(gap: tuple[int, int], end: int) -> list[int]:
    return [offset for offset in range(0, end, 2) if not gap[0] <= offset < gap[1]]


def begun(damaged: Damaged, offset: int | None = None) -> None:
    """A read has met the damage: it has to wait, and whoever comes after it, too."""
    for _ in range(2):
        with pytest.raises(Repairing):
            slice_bytes(damaged.log, damaged.base if offset is None else offset)
    assert len(damaged.thread.waiting) == 1


def through(damaged: Damaged, meanwhile: Callable[[], object] = lambda: None) -> None:
    """All repairs that are left: of the index, then of the log."""
    while damaged.thread.waiting:
        damaged.thread.work(meanwhile)
        with suppress(Repairing, OffsetOutOfRange, FileNotFoundError):
            slice_bytes(damaged.log, damaged.base)


def test_all_else_goes_on_meanwhile(damaged: Damaged) -> None:
    log = damaged.log
    begun(damaged)
    segments = len(log.closed())

    def meanwhile() -> None:
        fill(log, 20)
        assert len(slice_bytes(log, 0, 1 << 20)) == damaged.path(Suffix.LOG).with_name(f"{0:020d}.log").stat().st_size
        assert slice_bytes(log, damaged.ranges[2][0])
        with pytest.raises(Repairing):
            slice_bytes(log, damaged.base)

    through(damaged, meanwhile)
    assert len(log.closed()) > segments, "it has rolled"
    assert bases(log) == without(damaged.gap, log.log_end)
    assert (log.gaps, len(log.cuts), damaged.left(), log.repairing) == ((damaged.gap,), 1, [], False)
    assert len(damaged.place.set_aside_files()) == 2
    damaged.directory.close(clean=True)
    again = damaged.place.open().logs[TP]
    assert (bases(again), again.gaps, again.cuts) == (without(damaged.gap, log.log_end), (damaged.gap,), [])


def test_a_segment_that_is_dropped_meanwhile(damaged: Damaged) -> None:
    begun(damaged)
    stop = damaged.ranges[1][1]
    through(damaged, lambda: damaged.log.move_log_start(stop))
    assert bases(damaged.log) == list(range(stop, 120, 2))
    assert (damaged.log.cuts, damaged.left()) == ([], [])
    damaged.directory.purge()
    assert not list(damaged.path(Suffix.LOG).parent.glob(f"{damaged.base:020d}*"))


def test_a_log_that_is_deleted_meanwhile_and_one_that_gets_its_name(damaged: Damaged) -> None:
    begun(damaged)
    fresh: list[Log] = []

    def anew() -> None:
        if not fresh:
            damaged.directory.remove(TP)
            fresh.append(damaged.place.new_log(damaged.directory))
            fill(fresh[0], 3)

    repair = damaged.thread.waiting[0]
    through(damaged, anew)
    damaged.thread.waiting.append(repair)  # or it comes to it only now
    damaged.thread.work()
    assert (bases(fresh[0]), damaged.left()) == ([0, 2, 4], [])
    assert [path.name for path in damaged.path(Suffix.LOG).parent.glob("*.log")] == [f"{0:020d}.log"]


def test_another_file_of_that_name_is_left_alone(damaged: Damaged) -> None:
    """As when a cleaning puts its own in the segment's place."""
    begun(damaged)
    damaged.thread.work()
    with pytest.raises(Repairing):
        slice_bytes(damaged.log, damaged.base)
    cut = damaged.thread.waiting[0]
    path = damaged.path(Suffix.LOG)
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes() * 2)
    other.replace(path)
    size = path.stat().st_size
    damaged.thread.work()
    assert path.stat().st_size == size
    with pytest.raises(CorruptFile, match="replaced"):
        slice_bytes(damaged.log, damaged.base)
    assert cut.segment.size_bytes < size


def test_what_went_wrong_is_told_once_and_tried_again(damaged: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(damaged)
    full = DiskFull("no room")

    def no_room(*_: object) -> None:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr(PosixDisk, "write_new", no_room)
        damaged.thread.work()
    with pytest.raises(DiskFull, match="no room"):
        slice_bytes(damaged.log, damaged.base)
    begun(damaged)
    through(damaged)
    assert bases(damaged.log) == without(damaged.gap, 120)
    assert damaged.log.gaps == (damaged.gap,)


def test_a_loss_that_only_the_old_index_tells_of_is_noted_before_that_goes(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    path = damaged.path(Suffix.LOG)
    _, header = next(walk(path.read_bytes()))
    os.truncate(path, 11 * header.size_bytes)
    for dies_at in (1, 2):  # repairs that are done when the process is killed
        damaged.open()
        begun(damaged)
        for _ in range(dies_at - 1):
            damaged.thread.work()
            with suppress(Repairing):
                slice_bytes(damaged.log, damaged.base)
        damaged.directory.close(clean=False)
    damaged.open()
    begun(damaged)
    through(damaged)
    gap = (damaged.base + 22, damaged.ranges[1][1])
    assert (bases(damaged.log), damaged.log.gaps) == (without(gap, 120), (gap,))


@pytest.mark.parametrize("more", [3, 20])
def test_the_active_segment_grows_or_closes_while_its_index_is_made_again(more: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    fill(place.new_log(directory), 10)
    directory.close(clean=True)
    path = place.data / f"{TP}" / segment_file(0, Suffix.INDEX)
    raw = bytearray(path.read_bytes())
    raw[7] ^= 1
    path.write_bytes(raw)
    directory = place.open()
    log = directory.logs[TP]
    log.begin(1, 0)
    thread = Thread(directory)
    with suppress(Repairing):
        for offset in range(log.log_end):
            slice_bytes(log, offset, 1)
    thread.work(lambda: fill(log, more))
    assert bool(log.closed()) == (more == 20)
    for offset in range(log.log_end):
        if log.closed():  # what was made lacks its end: once more
            with suppress(Repairing):
                slice_bytes(log, offset, 1)
            while thread.waiting:
                thread.work()
        (_, header), *_ = walk(slice_bytes(log, offset, 1))
        assert header.base_offset == offset - offset % 2
    assert not thread.waiting
    log.roll()
    whole = log_bytes(log)
    directory.close(clean=True)
    assert log_bytes(place.open().logs[TP]) == whole


def test_a_transaction_index_is_made_again_in_the_thread(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    log.append(batch(3, producer=(7, 0, 0), attributes=0x10), now_ms=T0, in_transaction=True)
    log.end_transaction(7, 0, 0, commit=False, now_ms=T0)
    log.roll()
    whole = log.aborted(0, 100)
    directory.close(clean=True)
    path = place.data / f"{TP}" / segment_file(0, Suffix.TXN_INDEX)
    path.write_bytes(path.read_bytes()[:-1])
    directory = place.open()
    log = directory.logs[TP]
    thread = Thread(directory)
    with pytest.raises(Repairing):
        log.aborted(0, 100)
    thread.work()
    assert log.aborted(0, 100) == whole
    assert len(whole) == 1


@pytest.mark.parametrize("power", [False, True])
def test_a_stop_at_any_step_loses_and_doubles_nothing(power: bool, tmp_path: Path) -> None:
    template = Damaged(tmp_path / "template")
    for dies_at in count(1):
        damaged = template.copied(tmp_path / f"{dies_at}")
        damaged.place.disk = disk = ModelDisk(damaged.place.root)
        damaged.open()
        disk.power_on(dies_at)
        try:
            with suppress(Repairing):
                slice_bytes(damaged.log, damaged.base)
            through(damaged)
        except PowerCut:
            pass
        over = disk.steps < dies_at
        if power:
            disk.lose_unsynced()
        damaged.place.disk = PosixDisk()
        damaged.directory.close(clean=False)
        log = damaged.place.open().logs[TP]
        log.begin(2, 0)
        assert bases(log) == without(damaged.gap, 120), dies_at
        assert (log.gaps, damaged.left()) == ((damaged.gap,), []), dies_at
        if over:
            assert dies_at > 10
            break
