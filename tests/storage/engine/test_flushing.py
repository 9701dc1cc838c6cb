"""What is on the disk: recovery points, failed flushes, a full disk."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from kit.compaction import flush
from kit.failing_disk import FailingDisk
from kit.logs import SMALL, T0, TP, Opened, Place, batch, fill, log_bytes
from kit.model_disk import ModelDisk
from tierd.base.errors import DiskFull
from tierd.storage.errors import FlushPutOff, StorageFailed


def test_flushing_moves_the_recovery_point(opened: Opened) -> None:
    log = opened.log
    assert log.unflushed() is None
    fill(log, 60)
    flush(log)
    assert log.recovery_point == log.view().active_base
    assert log.unflushed() is None
    log.settings = replace(SMALL, flush_messages=1, internal_segment_bytes=1 << 20)
    log.append(batch(), now_ms=T0)
    assert log.flush_due(0)
    job = log.unflushed(active=True)
    assert job is not None
    job.run()
    log.flushed(job)
    assert log.recovery_point == log.log_end
    assert not log.flush_due(0)
    log.roll()
    job = log.unflushed()  # its indexes are not durable yet
    assert job is not None
    assert job.upto == log.log_end


def test_flush_ms(opened: Opened) -> None:
    opened.log.settings = replace(SMALL, flush_ms=1000)
    fill(opened.log, 1)
    assert not opened.log.flush_due(999)
    assert opened.log.flush_due(1000)


def test_a_failed_flush_ends_appends(opened: Opened) -> None:
    fill(opened.log, 60)
    job = opened.log.unflushed()
    assert job is not None
    opened.log.directory.rename(opened.place.root / "gone")
    opened.log.directory.write_bytes(b"no folder")
    with pytest.raises(StorageFailed):
        job.run()
    opened.log.flushed(job)
    opened.log.directory.unlink()
    (opened.place.root / "gone").rename(opened.log.directory)
    with pytest.raises(StorageFailed):
        fill(opened.log, 1)
    assert opened.log.unflushed() is None
    opened.log.failed = None


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_flush_without_descriptors_is_only_put_off(tmp_path: Path, code: int) -> None:
    disk = FailingDisk()
    place = Place(tmp_path, disk=disk)
    log = place.new_log(place.open())
    fill(log, 60)
    job = log.unflushed(active=True)
    assert job is not None
    disk.fail(code, "fsync_file", below=tmp_path)
    with pytest.raises(FlushPutOff):
        job.run()
    log.flushed(job)
    assert log.failed is None
    assert log.recovery_point == 0
    disk.heal()
    fill(log, 1)
    job = log.unflushed(active=True)
    assert job is not None
    job.run()
    log.flushed(job)
    assert log.recovery_point == log.log_end


def test_a_flush_of_a_partition_that_goes_meanwhile(opened: Opened) -> None:
    fill(opened.log, 60)
    job = opened.log.unflushed()
    assert job is not None
    opened.directory.remove(TP)
    job.run()
    assert not job.failed


def test_a_full_disk_tears_nothing_and_service_resumes(tmp_path: Path) -> None:
    disk = ModelDisk(tmp_path)
    place = Place(tmp_path, disk=disk)
    log = place.new_log(place.open())
    fill(log, 5)
    before = log_bytes(log)
    for room in (0, 10, 200, 300):
        disk.room_bytes = room
        with pytest.raises(DiskFull):
            fill(log, 40)
        assert log_bytes(log)[: len(before)] == before
        assert len(log_bytes(log)) == log.size_bytes
    disk.room_bytes = None
    fill(log, 40)
    assert log.failed is None
    assert log_bytes(log)[: len(before)] == before


def test_the_reserve_is_kept(opened: Opened, tmp_path: Path) -> None:
    place = Place(tmp_path / "other", reserve_bytes=1 << 60)
    log = place.new_log(place.open())
    with pytest.raises(DiskFull, match="reserve"):
        fill(log, 1)
