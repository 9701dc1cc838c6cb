"""The real disk, the descriptors, and the places where bytes go."""

import errno
import os
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.logs import TP
from tierd.base.disk import publish
from tierd.base.errors import DiskFull
from tierd.storage.disk import PosixDisk
from tierd.storage.fdcache import FdCache
from tierd.storage.reserve import DiskReserve
from tierd.storage.setaside import SetAside

DISK = PosixDisk()


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    DISK.mkdir(path.parent)
    DISK.mkdir(path.parent)
    with pytest.raises(FileNotFoundError):
        DISK.open(path)
    file = DISK.open(path, create=True)
    file.pwrite(b"hello", 3)
    file.pwrite(memoryview(bytearray(b"HE")), 3)
    file.truncate(6)
    file.fsync()
    assert os.pread(file.fd, 99, 0) == b"\0\0\0HEl"
    file.close()
    file.close()
    DISK.set_mtime(path, 1_700_000_000_123)
    assert path.stat().st_mtime_ns == 1_700_000_000_123_000_000
    publish(DISK, path, b"new")
    assert path.read_bytes() == b"new"
    DISK.fsync_file(path)
    DISK.link_new(path, tmp_path / "link")
    with pytest.raises(FileExistsError):
        DISK.link_new(path, tmp_path / "link")
    DISK.unlink(path)
    DISK.rmdir(path.parent)
    assert DISK.free_bytes(tmp_path) > 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_disk_full(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.open(tmp_path / "file", create=True)

    def pwrite(*_: object) -> int:
        raise OSError(number, "no room")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(DiskFull):
        file.pwrite(b"x", 0)
    with pytest.raises(DiskFull):
        DISK.write_new(tmp_path / "other", b"x")
    file.close()


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DISK.open(tmp_path / "file", create=True)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, memoryview(data)[:3], position))
    file.pwrite(b"0123456789", 1)
    file.close()
    assert (tmp_path / "file").read_bytes() == b"\x000123456789"


def test_other_errors_pass(tmp_path: Path) -> None:
    file = DISK.open(tmp_path / "file", create=True)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"x", 0)


def paths(folder: Path, count: int) -> list[Path]:
    found = [folder / str(i) for i in range(count)]
    for path in found:
        path.write_bytes(path.name.encode())
    return found


def test_the_least_recently_used_descriptor_is_closed(tmp_path: Path) -> None:
    cache = FdCache(limit=2)
    a, b, c = (cache.handle(path) for path in paths(tmp_path, 3))
    for handle in (a, b, a, c):
        handle.acquire()
        handle.release()
    assert (a.is_open, b.is_open, c.is_open) == (True, False, True)
    cache.close()
    assert len(cache) == 0


def test_a_descriptor_in_use_stays(tmp_path: Path) -> None:
    cache = FdCache(limit=1)
    a, b = (cache.handle(path) for path in paths(tmp_path, 2))
    fd = a.acquire()
    b.acquire()
    assert len(cache) == 2
    a.drop()
    a.path.unlink()
    assert os.pread(fd, 9, 0) == b"0"
    a.release()
    assert not a.is_open
    with pytest.raises(FileNotFoundError):
        a.acquire()
    b.release()
    cache.close()


def test_reader_and_writer_share_a_descriptor(tmp_path: Path) -> None:
    cache = FdCache()
    handle = cache.handle(paths(tmp_path, 1)[0], DISK)
    fd = handle.acquire()
    handle.writer().pwrite(b"new", 0)
    assert handle.writer().fd == fd
    assert os.pread(fd, 9, 0) == b"new"
    handle.release()
    handle.drop()
    assert not handle.is_open


def test_bytes_are_set_aside_under_names_of_their_own(tmp_path: Path) -> None:
    aside = SetAside(tmp_path / "aside", DISK)
    path = tmp_path / "0.log"
    path.write_bytes(b"good" + bytes(3_000_000) + b"bad")
    first = aside.cut(TP, path, 4, path.stat().st_size)
    second = aside.cut(TP, path, 4, path.stat().st_size)
    assert first is not None
    assert second is not None
    assert first.read_bytes() == path.read_bytes()[4:]
    assert second.name == f"{first.name}.1"
    assert aside.cut(TP, path, 4, 2_000_000) is None  # zeros are nothing
    moved = aside.move(TP, path)
    assert not path.exists()
    assert moved.read_bytes().endswith(b"bad")
    assert aside.count == 3


def test_setting_aside_across_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"data")

    def replace(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "replace", replace)
    moved = SetAside(tmp_path / "aside", DISK).move(TP, path)
    assert moved.read_bytes() == b"data"
    assert not path.exists()


def test_the_reserve_looks_once_a_second(tmp_path: Path) -> None:
    class Shrinking(PosixDisk):
        free = 1000

        def free_bytes(self, path: Path) -> int:
            return self.free

    disk, clock = Shrinking(), FakeClock()
    reserve = DiskReserve(tmp_path, disk, clock, 400)
    reserve.take(500)
    disk.free = 5000
    with pytest.raises(DiskFull, match="400"):
        reserve.take(101)
    reserve.take(100)
    clock.advance(1000)
    reserve.take(4000)
