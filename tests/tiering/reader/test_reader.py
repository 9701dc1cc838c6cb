"""Reads of the bucket give the bytes of the log, whatever is cached or missing."""

import asyncio
import os
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kit.golden import partitions
from kit.remote_log import (
    FAR,
    PART,
    SMALL,
    RemoteLog,
    bodies,
    content,
    indexed,
    read_all,
    reader_of,
    recorded,
    run,
    synthetic,
)
from tierd.remote.indexes import IndexFiles
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record
from tierd.tiering.reader.reader import RemoteReader


@pytest.mark.parametrize("max_bytes", [1, 700, 5000, 1 << 20])
def test_a_consumer_gets_every_byte_across_segments(tmp_path: Path, max_bytes: int) -> None:
    log = synthetic(4, 40)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            assert await read_all(reader, 0, max_bytes) == bodies(log.batches)
            assert await read_all(reader, 0, max_bytes) == bodies(log.batches)

    run(work)
    assert max(Counter(log.gets).values()) > 1
    total = sum(s.size_bytes for s in log.rows.segments)
    assert len([key for key in log.gets if key.endswith(".log")]) <= total // 2000
    assert Counter(key for key in log.gets if key.endswith(".indexes")).most_common(1)[0][1] == 1


@pytest.mark.parametrize("directory", partitions("kafka", "final"), ids=lambda path: path.name)
def test_recorded_partitions_come_back_from_every_offset(directory: Path, tmp_path: Path) -> None:
    log = recorded(directory)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for offset in range(log.start, log.end + 3):
                for max_bytes in (1, 3000):
                    slice = await reader.read(PART, offset, max_bytes=max_bytes, stop=FAR, committed=False)
                    data, expected = content(slice), log.expected(offset, max_bytes)
                    assert expected.startswith(data)
                    assert bool(data) == bool(expected)

    run(work)


@pytest.mark.parametrize("directory", partitions("kafka", "final"), ids=lambda path: path.name)
def test_recorded_partitions_read_from_the_start_by_any_step(directory: Path, tmp_path: Path) -> None:
    log = recorded(directory)

    async def work() -> None:
        for max_bytes in (1, 1 << 20):
            async with reader_of(log, tmp_path / str(max_bytes)) as reader:
                assert await read_all(reader, log.start, max_bytes) == bodies(log.batches)

    run(work)


def test_nothing_at_or_above_stop(tmp_path: Path) -> None:
    log = synthetic(2, 20)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for stop in (1, 30, 59, 60, 61, 119):
                got = await read_all(reader, 0, 1 << 20, stop)
                assert got == log.expected(0, 1 << 20, stop)
            assert not (await reader.read(PART, 60, max_bytes=1, stop=60, committed=False)).length
            assert not (await reader.read(PART, 120, max_bytes=1, stop=FAR, committed=False)).length

    run(work)


def test_the_first_batch_comes_whole_even_when_it_is_larger_than_any_range(tmp_path: Path) -> None:
    log = RemoteLog()
    raw = b"".join(
        encode_batch([Record(n, n, None, os.urandom(size))]) for n, size in enumerate((10, 50_000, 20, 30_000))
    )
    log.add(raw, 0, 4, indexed(raw, 0))

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for offset in range(4):
                slice = await reader.read(PART, offset, max_bytes=1, stop=FAR, committed=False)
                assert content(slice) == log.batches[offset][1]
            assert await read_all(reader, 0, 1) == raw

    run(work)


def test_a_read_from_a_segments_start_does_not_wait_for_its_index(tmp_path: Path) -> None:
    log = synthetic(2, 40)
    log_asked, count = threading.Event(), log.store.before

    def before(operation: str, key: str) -> None:
        count(operation, key)
        if key.endswith(".log"):
            log_asked.set()
        elif key.endswith(".indexes"):
            assert log_asked.wait(60), "the index came first"

    log.store.before = before

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for segment in log.rows.segments:
                log_asked.clear()
                slice = await reader.read(PART, segment.base, max_bytes=1 << 20, stop=FAR, committed=False)
                assert content(slice) == log.expected(segment.base, 1024)
            log_asked.set()
            assert await read_all(reader, 0, 3000) == bodies(log.batches)

    run(work)
    assert Counter(key for key in log.gets if key.endswith(".indexes")).most_common(1)[0][1] == 1


def test_a_batch_larger_than_the_first_range_comes_with_one_request(tmp_path: Path) -> None:
    log = RemoteLog()
    raw = b"".join(encode_batch([Record(n, n, None, os.urandom(1900))]) for n in range(10))
    log.add(raw, 0, 10, indexed(raw, 0))
    options = replace(SMALL, first_bytes=256)

    async def work() -> None:
        async with reader_of(log, tmp_path, options) as reader:
            slice = await reader.read(PART, 5, max_bytes=1, stop=FAR, committed=False)
            assert content(slice) == log.batches[5][1]

    run(work)
    assert [key.rsplit(".")[-1] for key in log.gets] == ["indexes", "log"]


def test_many_readers_share_one_download(tmp_path: Path) -> None:
    log = synthetic(1, 40)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            slices = await asyncio.gather(
                *(reader.read(PART, 60, max_bytes=1, stop=FAR, committed=False) for _ in range(20))
            )
            assert {content(slice) for slice in slices} == {log.expected(60, 1)}

    run(work)
    assert len(log.gets) == 2


def test_a_read_given_up_lands_in_the_cache(tmp_path: Path) -> None:
    log = synthetic(1, 40)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            task = asyncio.create_task(reader.read(PART, 60, max_bytes=1, stop=FAR, committed=False))
            while not [key for key in log.gets if key.endswith(".log")]:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert content(await reader.read(PART, 60, max_bytes=1, stop=FAR, committed=False))

    run(work)
    assert len(log.gets) == 2


def test_the_cache_survives_a_restart_and_damage_to_it(tmp_path: Path) -> None:
    log = synthetic(3, 40)

    async def work(expected_gets: int | None) -> None:
        log.gets.clear()
        async with reader_of(log, tmp_path) as reader:
            assert await read_all(reader, 0, 3000) == bodies(log.batches)
        if expected_gets is not None:
            assert len(log.gets) == expected_gets

    run(lambda: work(None))
    run(lambda: work(0))
    files = sorted(tmp_path.iterdir())
    for path in files[::3]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    (tmp_path / "stranger").write_bytes(b"x")
    (tmp_path / "half.tmp").write_bytes(b"x")
    files[1].write_bytes(b"short")
    run(lambda: work(None))
    assert 0 < len(log.gets) < len(files)
    assert not (tmp_path / "stranger").exists()
    assert not (tmp_path / "half.tmp").exists()
    for path in files[::2]:
        path.unlink(missing_ok=True)
    run(lambda: work(None))


def test_budget_holds_while_files_are_out(tmp_path: Path) -> None:
    log = synthetic(4, 40)
    options = replace(SMALL, cache_bytes=20_000)

    async def work() -> None:
        async with reader_of(log, tmp_path, options) as reader:
            held = []
            for offset in (0, 60, 120):
                held.append(await reader.read(PART, offset, max_bytes=1 << 20, stop=FAR, committed=False))
            waiting = [
                asyncio.create_task(reader.read(PART, n, max_bytes=1, stop=FAR, committed=False))
                for n in range(180, 480, 30)
            ]
            done, _ = await asyncio.wait(waiting, timeout=0.05)
            assert reader._cache.used_bytes <= 20_000
            for slice in held:
                content(slice)
            for task in done:
                content(task.result())
            for task in waiting:
                if task not in done:
                    content(await task)
            assert reader._cache.used_bytes <= 20_000
            assert await read_all(reader, 0, 3000) == bodies(log.batches)
            assert reader._cache.used_bytes <= 20_000

    run(work)


def test_descriptors_out_are_bounded(tmp_path: Path) -> None:
    log = synthetic(4, 40)
    options = replace(SMALL, open_files=2)

    async def work() -> None:
        async with reader_of(log, tmp_path, options) as reader:
            first = await reader.read(PART, 0, max_bytes=1, stop=FAR, committed=False)
            second = await reader.read(PART, 200, max_bytes=1, stop=FAR, committed=False)
            third = asyncio.create_task(reader.read(PART, 300, max_bytes=1, stop=FAR, committed=False))
            await asyncio.wait([third], timeout=0.05)
            assert not third.done()
            content(first)
            content(await third)
            content(second)

    run(work)


def test_forgotten_segments_leave_the_cache(tmp_path: Path) -> None:
    log = synthetic(2, 40)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            await read_all(reader, 0, 3000)
            for segment in log.rows.segments:
                reader.forget(segment.segment_id)
            assert reader._cache.used_bytes == 0

    run(work)
    assert not os.listdir(tmp_path)


def test_empty_ranges_are_passed_over(tmp_path: Path) -> None:
    log = synthetic(1, 10)
    log.add(b"", 30, 50, IndexFiles(offset=b"", timestamp=b"", producer_snapshot=b"", leader_epoch=b""))
    tail = encode_batch([Record(55, 1, b"k", b"v")])
    log.add(tail, 50, 60, indexed(tail, 50))

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            assert await read_all(reader, 0, 900) == bodies(log.batches)
            for offset in range(30, 56):
                assert content(await reader.read(PART, offset, max_bytes=1, stop=FAR, committed=False)) == tail
            assert not (await reader.read(PART, 56, max_bytes=1, stop=FAR, committed=False)).length

    run(work)


def test_a_sequential_reader_is_read_ahead_of_and_a_random_one_is_not(tmp_path: Path) -> None:
    log = synthetic(3, 40)

    async def settled(reader: RemoteReader) -> None:
        while (
            any(slot.landing for slots in reader._pool._segments.values() for slot in slots.all())
            or reader._indexes_ahead
        ):
            await asyncio.sleep(0)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            slice = await reader.read(PART, 0, max_bytes=1 << 20, stop=FAR, committed=False)
            await settled(reader)
            assert len([key for key in log.gets if key.endswith(".log")]) == 1
            assert slice.stop is not None
            content(slice)
            content(await reader.read(PART, slice.stop, max_bytes=1, stop=FAR, committed=False))
            await settled(reader)
            ahead = len([key for key in log.gets if key.endswith(".log")])
            assert ahead >= 1 + SMALL.read_ahead
            log.gets.clear()
            content(await reader.read(PART, slice.stop + 9, max_bytes=1, stop=FAR, committed=False))
            assert not log.gets

    run(work)
