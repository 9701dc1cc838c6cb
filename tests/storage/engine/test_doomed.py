"""Directories that leave: many with one fsync, and what a disk that fails makes of it."""

import errno
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.failing_disk import FailingDisk
from tierd.base.ids import TopicPartition
from tierd.storage.doomed import Doomed, Leaving

PARTS = [TopicPartition("t", number) for number in range(3)]


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def doomed(tmp_path: Path, disk: FailingDisk) -> Doomed:
    for part in PARTS:
        (tmp_path / str(part)).mkdir()
        (tmp_path / str(part) / "file").touch()
    return Doomed(tmp_path, disk, FakeClock())


def leaving(delay_ms: int = 0) -> list[Leaving]:
    return [Leaving(part, str(part), delay_ms) for part in PARTS]


def test_many_leave_and_are_purged_in_their_time(tmp_path: Path, doomed: Doomed) -> None:
    assert doomed.doom_all(leaving(delay_ms=10)) == {}
    assert len(list(tmp_path.glob("t-?.*-delete"))) == len(list(tmp_path.iterdir())) == 3
    assert doomed.purge() == 0
    doomed._clock.advance(10)  # type: ignore[attr-defined]
    assert doomed.purge() == 3
    assert list(tmp_path.iterdir()) == []


def test_folders_in_one_go_with_it(tmp_path: Path, doomed: Doomed) -> None:
    (tmp_path / "t-0" / "backup" / "older").mkdir(parents=True)
    (tmp_path / "t-0" / "backup" / "file").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "t-1" / "link").symlink_to(tmp_path / "kept")
    assert doomed.doom_all(leaving()) == {}
    assert doomed.purge() == 5
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").exists()


def test_one_that_cannot_be_renamed_does_not_keep_the_others(tmp_path: Path, disk: FailingDisk, doomed: Doomed) -> None:
    disk.fail(errno.EIO, "replace", below=tmp_path / "t-1")
    failed = doomed.doom_all(leaving())
    assert list(failed) == [PARTS[1]]
    assert (tmp_path / "t-1").is_dir()
    assert len(list(tmp_path.glob("*-delete"))) == 2


def test_without_the_fsync_none_is_known_to_be_gone(tmp_path: Path, disk: FailingDisk, doomed: Doomed) -> None:
    disk.fail(errno.EIO, "fsync_dir", below=tmp_path)
    assert sorted(doomed.doom_all(leaving())) == PARTS
