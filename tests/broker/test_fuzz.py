"""Hostile streams against the whole dispatch: recorded requests that are cut, merged, mutated, nested, or mere noise.

No crash, no hang, bounded memory; every connection that the broker ends has its reason in the log.
"""

import asyncio
import logging
import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from broker.client import Client, batch
from broker.running import Running, running
from wire import fuzzing

FRAMES_IN_CI: Final = 100_000
FRAMES_BY_MAKE_FUZZ: Final = 1_000_000
AT_A_TIME: Final = 16
PATIENCE_S: Final = 2.0
MIB: Final = 1024 * 1024
MEMORY: Final = 192 * MIB
_LYING: Final = [-(2**31), -1, 0, 1, 3, 7, 2**20, 100 * MIB, 100 * MIB + 1, 2**31 - 1]


class Dice(random.Random):
    """Streams of hostile requests, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seeds = fuzzing.seeds()

    def stream(self) -> tuple[bytes, int]:
        """What one connection sends, and how many frames that are meant to be."""
        count = self.choice((1, 1, 2, 4, 8))
        return b"".join(self.framed() for _ in range(count)), count

    def framed(self) -> bytes:
        raw = fuzzing.hostile(self._seeds, self)
        match self.randrange(12):
            case 0:
                return self.choice(_LYING).to_bytes(4, "big", signed=True) + raw
            case 1:
                return max(len(raw) + self.randint(-9, 9), 0).to_bytes(4, "big") + raw
            case 2:
                return self.randbytes(self.randint(1, 40))
            case _:
                return len(raw).to_bytes(4, "big") + raw

    def pieces(self, stream: bytes) -> Iterator[bytes]:
        while stream:
            size = self.choice((1, 5, 100, 10_000, 10_000))
            yield stream[:size]
            stream = stream[size:]


class Attack:
    """Some connections at a time, each with a stream of its own; counts what became of them."""

    def __init__(self, at: tuple[str, int], frames: int, seed: int) -> None:
        self._at = at
        self._left = frames
        self._dice = Dice(seed)
        self.ended_by_us = self.ended_by_broker = self.still_waiting = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(self._attack())

    async def _attack(self) -> None:
        while self._left > 0:
            stream, count = self._dice.stream()
            self._left -= count
            await self._one(list(self._dice.pieces(stream)))

    async def _one(self, pieces: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection(*self._at)
        with closing(writer):
            try:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                if reader.at_eof():
                    self.ended_by_broker += 1
                    return
                writer.write_eof()
                async with asyncio.timeout(PATIENCE_S):
                    while await reader.read(MIB):
                        pass
                self.ended_by_us += 1
            except TimeoutError:
                self.still_waiting += 1  # A request behind one that waits: nobody looks at the end of the stream yet.
            except OSError:
                self.ended_by_broker += 1
            finally:
                writer.transport.abort()


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fuzz(started: Running, frames: int, seed: int, log: pytest.LogCaptureFixture) -> None:
    with Client(started.address) as honest:
        assert honest.create("honest").error_code == 0
        before = rss_bytes()
        attack = Attack(started.address, frames, seed)
        asyncio.run(attack.run())
        assert honest.produce("honest", batch()).error_code == 0
        assert honest.fetch("honest", 0).records
        assert honest.call(9, 7, group_id="honest", topics=None, require_stable=False).error_code == 0
    reasons = [record for record in log.records if "connection closed" in record.message]
    assert reasons
    assert all(hasattr(record, "why") for record in reasons)
    assert started.call(lambda: started.broker.counters.bad_requests) > frames // 20
    assert rss_bytes() - before < MEMORY
    assert attack.ended_by_us > attack.still_waiting * 5
    assert not started.problems


@pytest.mark.timeout(600)
def test_hostile_streams_harm_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tierd.broker")
    with running(tmp_path) as started:
        fuzz(started, FRAMES_IN_CI, 20261130, caplog)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(20))
def test_many_more_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    caplog.set_level(logging.INFO, "tierd.broker")
    with running(tmp_path) as started:
        fuzz(started, FRAMES_BY_MAKE_FUZZ // 20, seed, caplog)
