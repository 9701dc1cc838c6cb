"""The first error of a disk takes its directory offline; what says nothing about the disk does not."""

import errno
from pathlib import Path

import pytest

from kit.failing_disk import FailingDisk
from kit.logs import T0, TP, Place, batch
from tierd.base.errors import DiskFull
from tierd.storage.errors import StorageFailed
from tierd.storage.health import DirectoryHealth
from tierd.storage.log import Log


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENODEV, errno.EACCES, errno.EUCLEAN])
def test_errors_of_the_disk_count(tmp_path: Path, code: int) -> None:
    health = DirectoryHealth(tmp_path)
    told: list[str | None] = []
    health.on_failure = lambda: told.append(health.reason)
    assert health.note(OSError(code, "no", "x"))
    assert health.note(OSError(errno.EIO, "second"))
    assert len(told) == 1
    assert health.reason is not None
    assert "second" not in health.reason


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EMFILE, errno.EXDEV, errno.EEXIST])
def test_errors_of_something_else_do_not(tmp_path: Path, code: int) -> None:
    health = DirectoryHealth(tmp_path)
    assert not health.note(OSError(code, "no", "x"))
    assert not health.note(ValueError())
    assert health.reason is None


def test_a_directory_that_is_gone_counts(tmp_path: Path) -> None:
    assert DirectoryHealth(tmp_path / "gone").note(FileNotFoundError(errno.ENOENT, "no"))


def use(log: Log) -> None:
    log.append(batch(3), now_ms=T0)
    log.move_log_start(1)
    log.roll()
    job = log.unflushed()
    assert job is not None
    job.run()


@pytest.mark.parametrize("step", ["pwrite", "fsync_file", "replace", "write_new", "open", "truncate", "set_mtime"])
def test_each_failing_step_takes_the_directory_offline(tmp_path: Path, step: str) -> None:
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk)
    directory = place.open()
    log = place.new_log(directory)
    log.append(batch(3), now_ms=T0)
    disk.fail(errno.EIO, step, below=directory.path)
    with pytest.raises((OSError, StorageFailed)):
        use(log)
    assert directory.health.reason is not None
    assert "Input/output error" in directory.health.reason
    disk.heal()
    directory.close(clean=True)  # no clean mark on a disk that cannot be trusted
    assert not (directory.path / ".kafka_cleanshutdown").exists()
    again = place.open()
    assert again.logs[TP].log_end in (3, 6)
    again.close(clean=True)


def test_a_full_disk_does_not_take_it_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk)
    directory = place.open()
    log = place.new_log(directory)
    disk.fail(errno.ENOSPC, "pwrite", below=directory.path)
    with pytest.raises(DiskFull):
        log.append(batch(3), now_ms=T0)
    assert directory.health.reason is None
    disk.heal()
    assert log.append(batch(3), now_ms=T0).first_offset == 0
    directory.close(clean=True)


def test_a_full_disk_found_by_fsync_does(tmp_path: Path) -> None:
    """What was in the page cache is gone then, whatever the number of the error."""
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk)
    directory = place.open()
    log = place.new_log(directory)
    log.append(batch(3), now_ms=T0)
    disk.fail(errno.ENOSPC, "fsync_file", below=directory.path)
    job = log.unflushed(active=True)
    assert job is not None
    with pytest.raises(StorageFailed):
        job.run()
    assert directory.health.reason is not None
    directory.close(clean=True)


def test_errors_of_the_state_directory_are_not_the_data_directorys(tmp_path: Path) -> None:
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk)
    directory = place.open()
    disk.fail(errno.EIO, "open", below=place.set_aside)
    path = directory.path / "x"
    path.write_bytes(b"x")
    with pytest.raises(OSError, match="Input/output"):
        directory.set_aside.cut(TP, path, 0, 1)
    assert directory.health.reason is None
    directory.close(clean=True)
