"""Objects that are damaged, deleted or replaced, and downloads that fail: nobody gets wrong bytes."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from kit.remote_log import (
    FAR,
    PART,
    RemoteLog,
    bodies,
    content,
    indexed,
    read_all,
    reader_of,
    run,
    synthetic,
)
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.remote.indexes import IndexFiles


@pytest.mark.parametrize("damage", ["none", "stray", "falling", "beyond"])
def test_an_offset_index_that_is_no_good_is_done_without(tmp_path: Path, damage: str) -> None:
    log, good = RemoteLog(), synthetic(1, 60)
    raw = bodies(good.batches)
    files = indexed(raw, 0)
    offset = files.offset
    bad = {"none": b"", "stray": offset + b"abc", "falling": offset[::-1], "beyond": offset + b"\x0f" * 8}[damage]
    log.add(raw, 0, 180, IndexFiles(offset=bad, timestamp=files.timestamp, producer_snapshot=b"", leader_epoch=b""))

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            assert content(await reader.read(PART, 100, max_bytes=1, stop=FAR, committed=False)) == log.expected(100, 1)
            assert await read_all(reader, 0, 5000) == raw

    run(work)


def test_a_damaged_range_is_fetched_once_more(tmp_path: Path) -> None:
    log = synthetic(1, 40)
    key = log.rows.segments[0].log_key
    whole = log.store.get(key)
    broken = bytearray(whole)
    broken[200] ^= 1
    log.gets.clear()

    def damage_first_answer(operation: str, key_read: str) -> None:
        if operation == "get" and key_read == key:
            log.gets.append(key)
            log.store._objects[key].data = bytes(broken) if len(log.gets) == 1 else whole

    log.store.before = damage_first_answer

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            assert await read_all(reader, 0, 1 << 20) == whole

    run(work)
    assert len(log.gets) > 2


def test_bytes_that_stay_bad_never_reach_anybody_and_are_not_cached(tmp_path: Path) -> None:
    log = synthetic(1, 40)
    key = log.rows.segments[0].log_key
    whole = log.store.get(key)
    for position in range(0, 900, 7):
        broken = bytearray(whole)
        broken[position] ^= 0x10
        log.store._objects[key].data = bytes(broken)

        async def work() -> None:
            async with reader_of(log, tmp_path) as reader:
                slice = await reader.read(PART, 0, max_bytes=900, stop=FAR, committed=False)
                data = content(slice)
                changed = [at for at in range(min(len(data), 900)) if data[at] != whole[at]]
                # Base offset and leader epoch lie outside the CRC; all else must be as it was.
                assert all(at % 1009 in range(16) for at in changed) or not changed

        try:
            run(work)
        except CorruptFile:
            assert not [name for name in os.listdir(tmp_path) if ".0." in name]
        for name in os.listdir(tmp_path):
            (tmp_path / name).unlink()


def test_a_failed_download_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    log = synthetic(2, 40)
    away = True

    def fail(operation: str, key: str) -> None:
        if away and operation == "get":
            raise RemoteUnavailable("away")

    log.store.before = fail

    async def work() -> None:
        nonlocal away
        async with reader_of(log, tmp_path) as reader:
            for _ in range(3):
                with pytest.raises(RemoteUnavailable):
                    await reader.read(PART, 7, max_bytes=1, stop=FAR, committed=False)
            assert not os.listdir(tmp_path)
            away = False
            assert await read_all(reader, 0, 3000) == bodies(log.batches)

    run(work)


def test_a_segment_deleted_meanwhile_is_looked_up_again(tmp_path: Path) -> None:
    log = synthetic(3, 40)
    first = log.rows.segments[0]
    log.store.delete([first.log_key])

    def gone_from_catalog_too(operation: str, key: str) -> None:
        if key == first.log_key and first in log.rows.segments:
            log.rows.segments.remove(first)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            with pytest.raises(CorruptFile, match="not in the bucket"):
                await reader.read(PART, 5, max_bytes=1, stop=FAR, committed=False)
            log.store.before = gone_from_catalog_too
            with pytest.raises(CorruptFile, match="no segment in the bucket"):
                await reader.read(PART, 5, max_bytes=1, stop=FAR, committed=False)
            assert content(await reader.read(PART, 120, max_bytes=1, stop=FAR, committed=False))

    run(work)


def test_a_damaged_object_is_said_ever_more_rarely(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = synthetic(1, 40)
    stored = log.store._objects[log.rows.segments[0].log_key]
    stored.data = stored.data[:100] + bytes(len(stored.data) - 100)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for _ in range(5):
                with pytest.raises(CorruptFile):
                    await reader.read(PART, 0, max_bytes=900, stop=FAR, committed=False)

    run(work)
    assert [vars(record)["times"] for record in caplog.records if "bad range" in record.message] == [1, 2, 4]


def test_another_object_in_its_place_is_not_read(tmp_path: Path) -> None:
    log = synthetic(1, 40)
    segment = log.rows.segments[0]
    log.store.keep(segment.log_key, log.store.get(segment.log_key) + b"x", None)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            with pytest.raises(CorruptFile, match="another object"):
                await reader.read(PART, 5, max_bytes=1, stop=FAR, committed=False)

    run(work)


@pytest.mark.parametrize("whole_folder", [False, True])
def test_a_cache_that_somebody_removes_while_it_is_used_is_filled_again(tmp_path: Path, *, whole_folder: bool) -> None:
    log = synthetic(3, 40)
    cache = tmp_path / "cache"

    async def work() -> None:
        async with reader_of(log, cache) as reader:
            for _ in range(3):
                assert await read_all(reader, 0, 3000) == bodies(log.batches)
                assert await reader.by_time(PART, 1000 + 10 * 200, start=0, stop=FAR) is not None
                if whole_folder:
                    shutil.rmtree(cache)
                else:
                    for name in os.listdir(cache):
                        (cache / name).unlink()

    run(work)


def test_a_file_that_cannot_be_opened_once_is_not_given_up_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = synthetic(1, 40)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            await read_all(reader, 0, 3000)
        async with reader_of(log, tmp_path) as reader:
            with monkeypatch.context() as patched:
                patched.setattr(os, "open", _no_descriptor)
                with pytest.raises(OSError, match="too many"):
                    await reader.read(PART, 0, max_bytes=1, stop=FAR, committed=False)
            assert await read_all(reader, 0, 3000) == bodies(log.batches)

    run(work)


def _no_descriptor(*_: object) -> int:
    raise OSError(errno.EMFILE, "too many open files")
