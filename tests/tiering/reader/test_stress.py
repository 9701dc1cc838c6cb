"""Many readers at once, a cache that is far too small, a bucket that fails and damages: bytes stay right."""

import asyncio
import contextlib
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kit.remote_log import FAR, PART, SMALL, RemoteLog, content, reader_of, run, synthetic
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.tiering.reader.reader import RemoteReader

TIGHT = replace(
    SMALL, cache_bytes=24_000, memory_bytes=20_000, threads=3, table_bytes=600, index_bytes=500, open_files=6
)


class Crowd:
    """Everybody who uses one reader, throwing the same dice."""

    def __init__(self, log: RemoteLog, reader: RemoteReader, dice: random.Random) -> None:
        self.log, self.reader, self.dice = log, reader, dice

    async def consumer(self, sequential: bool) -> None:
        dice, offset = self.dice, self.dice.randrange(self.log.end)
        for _ in range(25):
            max_bytes = dice.choice([1, 1500, 9000])
            try:
                slice = await self.reader.read(PART, offset, max_bytes=max_bytes, stop=FAR, committed=False)
            except RemoteUnavailable:
                continue
            if dice.random() < 0.3:
                await others()
            data, expected, after = content(slice), self.log.expected(offset, max_bytes), slice.stop
            assert expected.startswith(data)
            assert bool(data) == bool(expected)
            offset = after if sequential and after is not None else dice.randrange(self.log.end)

    async def forgetter(self) -> None:
        for _ in range(40):
            await others()
            self.reader.forget(self.dice.choice(self.log.rows.segments).segment_id)

    async def by_time(self) -> None:
        for _ in range(20):
            number = self.dice.randrange(self.log.end)
            with contextlib.suppress(RemoteUnavailable):
                found = await self.reader.by_time(PART, 1000 + 10 * number, start=0, stop=FAR)
                assert found is not None
                assert found.offset == number

    async def impatient(self) -> None:
        for _ in range(20):
            offset = self.dice.randrange(self.log.end)
            task = asyncio.create_task(self.reader.read(PART, offset, max_bytes=1, stop=FAR, committed=False))
            await self.dice.choice([others, lambda: asyncio.sleep(0)])()
            task.cancel()
            (done,) = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(done, BaseException):
                done.release()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_readers_beside_each_other(tmp_path: Path, seed: int) -> None:
    log, dice = synthetic(4, 40), random.Random(seed)

    def sometimes_fail(operation: str, key: str) -> None:
        if operation == "get" and dice.random() < 0.05:
            raise RemoteUnavailable("now and then")

    log.store.before = sometimes_fail

    async def work() -> None:
        async with reader_of(log, tmp_path, TIGHT) as reader:
            crowd = Crowd(log, reader, dice)
            consumers = [crowd.consumer(sequential=n % 2 == 0) for n in range(8)]
            await asyncio.gather(*consumers, crowd.forgetter(), crowd.by_time(), crowd.impatient())
            log.store.before = lambda operation, key: None
            await asyncio.wait_for(crowd.consumer(sequential=True), 60)
            await _settled(reader)
            assert reader._cache._open == 0
            assert reader._cache.used_bytes == sum(file.size_bytes for file in reader._cache._files.values())
            assert reader._cache.used_bytes <= TIGHT.cache_bytes

    run(work)


async def others() -> None:
    """Let everybody else have some turns."""
    for _ in range(20):
        await asyncio.sleep(0)


async def _settled(reader: RemoteReader) -> None:
    """Nothing is under way any more."""
    while True:
        landing = [slot.landing for slots in reader._pool._segments.values() for slot in slots.all() if slot.landing]
        under_way = [*landing, *reader._indexes_ahead.values(), *reader._indexes._loading.values()]
        if not under_way:
            return
        await asyncio.gather(*under_way, return_exceptions=True)


def test_damage_is_never_passed_on(tmp_path: Path) -> None:
    log, dice = synthetic(2, 40), random.Random(7)
    for segment in log.rows.segments:
        data = bytearray(log.store.get(segment.log_key))
        batch = 991
        for number in dice.sample(range(40), 6):
            data[number * batch + dice.randrange(60, batch)] ^= 1
        log.store._objects[segment.log_key].data = bytes(data)

    async def work() -> None:
        async with reader_of(log, tmp_path, TIGHT) as reader:
            served = refused = 0
            for offset in range(0, log.end, 3):
                try:
                    slice = await reader.read(PART, offset, max_bytes=1, stop=FAR, committed=False)
                except CorruptFile:
                    refused += 1
                    continue
                assert content(slice) == log.expected(offset, 1)
                served += 1
            assert served
            assert refused

    run(work)
