"""One step of the disk fails while a transaction is aborted: the abort is in the log whole, or not at all."""

import errno
import itertools
from pathlib import Path

import pytest

from kit.failing_disk import FailingDisk
from kit.logs import SMALL, T0, Place, batch, fill
from tierd.base.errors import DiskFull
from tierd.storage.errors import StorageFailed
from tierd.storage.log import Log
from tierd.storage.view import AbortedTxn


class OnceFailing(FailingDisk):
    """The step that comes after *left* others fails, no other does."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code
        self.left: int | None = None

    def check(self, step: str, *paths: Path) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            self.fail(self._code, below=Path("/"))
            try:
                super().check(step, *paths)
            finally:
                self.heal()


def transactional(sequence: int, epoch: int) -> memoryview:
    return batch(2, producer=(7, epoch, sequence), attributes=0x10)


def abort(log: Log, epoch: int) -> bool:
    return log.end_transaction(7, epoch, 0, commit=False, now_ms=T0, raised=True)


def begun(place: Place, *, full: bool) -> Log:
    """A log after a restart that holds an aborted transaction and an open one; *full*: at the end of its segment."""
    directory = place.open()
    log = place.new_log(directory)
    log.append(transactional(0, 0), now_ms=T0, in_transaction=True)
    abort(log, 1)
    directory.close(clean=True)
    (log,) = place.open().logs.values()
    log.begin(1, 0)
    log.append(transactional(0, 1), now_ms=T0, in_transaction=True)
    if full:
        while (room := SMALL.roll_bytes - log.active_log()[1]) > 500:
            fill(log, 1)
        log.append(batch(size=room - 90), now_ms=T0)
    return log


def test_an_abort_reads_nothing_after_its_marker_is_written(tmp_path: Path) -> None:
    """What a start has to know of the segment it has read; a read that fails later would lose the entry for good."""
    place = Place(tmp_path)
    log = begun(place, full=False)
    (index,) = log.directory.glob("*.txnindex")
    away = index.rename(index.with_name("away"))
    assert abort(log, 2)
    away.rename(index)
    expected = (AbortedTxn(7, 0), AbortedTxn(7, 3))
    assert log.aborted(0, log.log_end) == expected
    assert log.roll()
    assert log.aborted(0, log.log_end) == expected


@pytest.mark.parametrize(("code", "full"), [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, True)])
def test_whichever_step_fails_the_abort_comes_once(tmp_path: Path, code: int, full: bool) -> None:
    failed = 0
    for step in itertools.count():
        disk = OnceFailing(code)
        place = Place(tmp_path / str(step), disk=disk)
        log = begun(place, full=full)
        end = log.log_end
        disk.left = step
        try:
            assert abort(log, 2)
        except (DiskFull, OSError, StorageFailed):
            failed += 1
            assert (log.log_end, log.in_transaction(7, 1)) == (end, True)
            assert log.aborted(0, end) == (AbortedTxn(7, 0),)
        else:
            if disk.left is not None:
                break  # there was no such step
        disk.left = None
        if log.failed is None:
            abort(log, 2)  # as the coordinator does: it knows not what came of it
        else:
            assert log.log_end == end
            log = _again(place, clean=False)
            assert abort(log, 2)
        expected = (AbortedTxn(7, 0), AbortedTxn(7, 3))
        assert log.aborted(0, log.log_end) == expected
        assert _again(place, clean=log.failed is None).aborted(0, end + 1) == expected
    assert failed > (5 if full else 0)


def _again(place: Place, *, clean: bool) -> Log:
    directory = place.open()
    if clean:
        directory.close(clean=True)
        directory = place.open()
    (log,) = directory.logs.values()
    log.begin((log.epochs[-1].epoch if log.epochs else 0) + 1, 0)
    return log
