"""What all readers of the bucket share: memory for what is in flight, and indexes that are kept; and where they end."""

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kit.remote_log import FAR, PART, SMALL, RemoteLog, content, reader_of, run, synthetic
from tierd.tiering.reader.reader import RemoteReader

RANGE = SMALL.first_bytes


class Counted:
    """Ranges of logs that are asked for at a time: each waits until *wanted* are under way, or all that may be."""

    def __init__(self, log: RemoteLog, wanted: int) -> None:
        self._lock = threading.Lock()
        self._enough = threading.Event()
        self._wanted = wanted
        self.under_way = self.most = 0
        log.store.before = self.before
        self._get = log.store.get
        log.store.get = self.get  # type: ignore[method-assign]

    def before(self, operation: str, key: str) -> None:
        if operation == "get" and key.endswith(".log"):
            with self._lock:
                self.under_way += 1
                self.most = max(self.most, self.under_way)
                if self.under_way == self._wanted:
                    self._enough.set()
            assert self._enough.wait(60)

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        try:
            return self._get(key, start, stop, if_match=if_match)
        finally:
            if key.endswith(".log"):
                with self._lock:
                    self.under_way -= 1


@pytest.mark.parametrize("at_once", [1, 3])
def test_ranges_of_all_readers_have_one_memory_budget(tmp_path: Path, at_once: int) -> None:
    log = synthetic(8, 10)
    counted = Counted(log, at_once)
    options = replace(SMALL, memory_bytes=at_once * 2 * RANGE - 1, first_bytes=2 * RANGE - 1)

    async def work() -> None:
        async with reader_of(log, tmp_path, options) as reader:
            wanted = [
                reader.read(PART, segment.base, max_bytes=1, stop=FAR, committed=False) for segment in log.rows.segments
            ]
            for slice in await asyncio.gather(*wanted):
                content(slice)

    run(work)
    assert counted.most == at_once


def test_an_index_that_left_the_memory_is_read_from_the_disk(tmp_path: Path) -> None:
    log = synthetic(4, 40)

    async def work() -> None:
        async with reader_of(log, tmp_path, replace(SMALL, index_bytes=1)) as reader:
            for _ in range(2):
                for segment in log.rows.segments:
                    for offset in (segment.base + 31, segment.base + 91):
                        content(await reader.read(PART, offset, max_bytes=1, stop=FAR, committed=False))
            assert len(reader._indexes._loaded) == 1

    run(work)
    asked = Counter(key for key in log.gets if key.endswith(".indexes"))
    assert len(asked) == 4
    assert set(asked.values()) == {1}


async def settled(reader: RemoteReader) -> None:
    while reader._indexes_ahead or any(
        slot.landing for slots in reader._pool._segments.values() for slot in slots.all()
    ):
        await asyncio.sleep(0)


def test_read_ahead_crosses_segments_and_ends_where_the_disk_goes_on(tmp_path: Path) -> None:
    log = synthetic(4, 10)
    stop = log.rows.segments[2].base
    options = replace(SMALL, read_ahead=20)

    async def work() -> None:
        async with reader_of(log, tmp_path, options) as reader:
            offset = 0
            for _ in range(5):
                slice = await reader.read(PART, offset, max_bytes=1, stop=stop, committed=False)
                assert slice.stop is not None
                content(slice)
                offset = slice.stop
                await settled(reader)

    run(work)
    assert [was_read(log, number) for number in range(4)] == [True, True, False, False]


def was_read(log: RemoteLog, number: int) -> bool:
    """Whether bytes of segment *number* were asked for."""
    return log.rows.segments[number].log_key in log.gets
