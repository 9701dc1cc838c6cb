"""Files under one budget: the oldest idle ones go, those that are out never, a full disk is a clear error."""

import asyncio
import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.remote_log import run
from tierd.base.errors import DiskFull
from tierd.tiering.reader.cache import CacheFile, DiskCache


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def put(cache: DiskCache, name: str, size_bytes: int, gone: list[str] | None = None) -> CacheFile:
    cache.write(name, iter([name[:1].encode() * size_bytes]))
    return cache.add(name, size_bytes, lambda: gone.append(name) if gone is not None else None)


def test_least_recently_used_files_make_room(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    cache, gone = DiskCache(tmp_path / "c", 30, 9, threads), list[str]()
    list(cache.found())
    files = [put(cache, name, 10, gone) for name in "abc"]
    fd = cache.pin(files[0])
    cache.unpin(files[0])
    assert fd >= 0
    put(cache, "d", 10, gone)
    assert gone == ["b"]
    held = cache.pin(files[2])
    put(cache, "e", 20, gone)
    assert gone == ["b", "a", "d"]
    assert os.pread(held, 10, 0) == b"c" * 10
    assert cache.used_bytes == 30
    cache.drop(files[2])
    assert os.pread(held, 10, 0) == b"c" * 10
    assert cache.used_bytes == 30
    cache.unpin(files[2])
    assert cache.used_bytes == 20
    threads.shutdown()
    assert os.listdir(tmp_path / "c") == ["e"]


def test_a_name_is_free_at_once(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    cache = DiskCache(tmp_path, 100, 9, threads)
    for _ in range(20):
        cache.drop(put(cache, "a", 10))
        file = put(cache, "a", 10)
        assert os.pread(cache.pin(file), 10, 0) == b"a" * 10
        cache.unpin(file)
        cache.drop(file)


def test_a_reservation_waits_for_a_release_or_is_refused(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    async def work() -> None:
        cache = DiskCache(tmp_path, 30, 9, threads)
        file = put(cache, "a", 20)
        cache.pin(file)
        assert await cache.reserve(10, wait=False)
        assert not await cache.reserve(10, wait=False)
        waiting = asyncio.create_task(cache.reserve(10, wait=True))
        await asyncio.sleep(0)
        assert not waiting.done()
        cache.unpin(file)
        assert await waiting
        assert cache.used_bytes == 20
        cache.unreserve(10)
        cache.unreserve(10)
        assert await cache.reserve(500, wait=True)
        assert cache.used_bytes == 500

    run(work)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_leaves_no_half_file(
    code: int, tmp_path: Path, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(code, "no")

    cache = DiskCache(tmp_path, 100, 9, threads)
    with monkeypatch.context() as patch:
        patch.setattr("tierd.tiering.reader.cache.os.write", full)
        with pytest.raises(OSError if code == errno.EIO else DiskFull):
            cache.write("a", iter([b"x"]))
    assert not os.listdir(tmp_path)


def test_what_an_earlier_run_left_is_found_oldest_first(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    cache = DiskCache(tmp_path, 100, 9, threads)
    for number, name in enumerate("cab"):
        cache.write(name, iter([b"x" * 3]))
        os.utime(tmp_path / name, (number, number))
    (tmp_path / "half.tmp").write_bytes(b"")
    assert list(cache.found()) == [("c", 3), ("a", 3), ("b", 3)]
    assert not (tmp_path / "half.tmp").exists()
