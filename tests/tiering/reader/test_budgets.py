"""What all readers of the bucket share: memory for what is in flight, and indexes that are kept; and where they end."""

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kit.remote_log import FAR, PART, SMALL, RemoteLog, content, reader_of, run, synthetic
from tierd.tiering.reader.permits import Ticket
from tierd.tiering.reader.reader import RemoteReader

RANGE = SMALL.first_bytes


@pytest.mark.parametrize("at_once", [1, 3])
def test_ranges_of_all_readers_have_one_memory_budget(tmp_path: Path, at_once: int) -> None:
    log, go = synthetic(8, 10), threading.Event()

    def before(operation: str, key: str) -> None:
        assert not key.endswith(".log") or go.wait(60)

    log.store.before = before
    options = replace(SMALL, memory_bytes=at_once * 2 * RANGE - 1, first_bytes=2 * RANGE - 1)

    async def work() -> None:
        async with reader_of(log, tmp_path, options) as reader:
            bases = [segment.base for segment in log.rows.segments]
            reads = [reader.read(PART, base, max_bytes=1, stop=FAR, committed=False) for base in bases]
            tasks = [asyncio.create_task(read) for read in reads]
            try:
                while len(tickets := [ticket for ticket in under_way(reader) if ticket.urgent]) < len(bases):
                    await asyncio.sleep(0)
                for _ in range(10):
                    await asyncio.sleep(0)
                assert sum(ticket.granted.done() for ticket in tickets) == at_once
            finally:
                go.set()
            for slice in await asyncio.gather(*tasks):
                content(slice)

    run(work)


def under_way(reader: RemoteReader) -> list[Ticket]:
    """What the downloads that have begun hold, or wait for."""
    slots = [slot for slots in reader._pool._segments.values() for slot in slots.all()]
    return [slot.ticket for slot in slots if slot.ticket is not None]


def test_an_index_that_left_the_memory_is_read_from_the_disk(tmp_path: Path) -> None:
    log = synthetic(4, 40)

    async def work() -> None:
        async with reader_of(log, tmp_path, replace(SMALL, index_bytes=1)) as reader:
            for place in (31, 91):  # the second time no segment's index is in memory, and its range not cached
                for segment in log.rows.segments:
                    content(await reader.read(PART, segment.base + place, max_bytes=1, stop=FAR, committed=False))
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
            for _ in range(9):
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
