"""Reads from the bucket that fail again and again: each is counted, few are worth a line."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kit.clock import FakeClock
from tierd.base.errors import CorruptFile, RemoteUnavailable, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.broker.counters import Counters
from tierd.broker.remote_reads import RemoteReads, RemoteWant
from tierd.storage.view import EMPTY_SLICE, LogSlice

PART = PartitionId(Uuid(b"t" * 16), 0)


class Failing:
    """A tier whose reads below *good_from* fail."""

    def __init__(self, error: TierdError, good_from: int) -> None:
        self.error, self.good_from = error, good_from

    async def read(self, part: PartitionId, offset: int, **_: object) -> LogSlice:
        if offset < self.good_from:
            raise self.error
        return EMPTY_SLICE


@pytest.mark.parametrize("error", [RemoteUnavailable("away"), CorruptFile("object", 0, "gone")])
def test_the_first_failure_is_told_then_each_that_doubles_their_number(
    error: TierdError, caplog: pytest.LogCaptureFixture
) -> None:
    partition: Any = SimpleNamespace(id=PART, silent_ms=None, tried_ms=0)
    counters, tier = Counters(), Failing(error, good_from=100)

    async def run() -> None:
        reads = RemoteReads(tier, FakeClock(), counters)  # type: ignore[arg-type]

        async def ask(offset: int) -> None:
            await reads.begin(RemoteWant(partition, offset, 1000, 200, False))

        for _ in range(9):
            with pytest.raises(type(error)):
                await ask(5)
            await ask(150)  # others read well meanwhile
        assert [record.__dict__["times"] for record in caplog.records] == [1, 2, 4, 8]
        tier.good_from = 0
        await ask(5)
        tier.good_from = 100
        with pytest.raises(type(error)):
            await ask(5)
        assert caplog.records[-1].__dict__["times"] == 1

    asyncio.run(run())
    assert counters.remote_reads_failed == 10
