"""A loop that stands still is told of while it does, with the place where it stands. Real threads."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from kit.clock import FakeClock
from tierd.base.clock import SystemClock
from tierd.daemon.standstill import Standstill

PATIENCE_S = 60
STILL, ON, NO_PROCESSOR = (
    "the loop stands still: nobody is answered",
    "the loop goes on",
    "this process had no processor",
)


class Said(logging.Handler):
    """An event for each message."""

    def __init__(self) -> None:
        super().__init__()
        self.events = {message: threading.Event() for message in (STILL, ON, NO_PROCESSOR)}
        self.records: dict[str, dict[str, object]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.records.setdefault(record.getMessage(), vars(record))
        self.events[record.getMessage()].set()


@pytest.fixture
def said() -> Iterator[Said]:
    handler, logger = Said(), logging.getLogger("tierd.daemon.standstill")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def stand_until_told(said: Said) -> None:
    assert said.events[STILL].wait(PATIENCE_S)


def test_a_loop_that_stands_still_is_told_of_with_its_place(said: Said) -> None:
    async def scenario() -> None:
        watching = Standstill(SystemClock(), look_s=0.01, long_ms=200)
        watching.start()
        stand_until_told(said)
        assert await asyncio.to_thread(said.events[ON].wait, PATIENCE_S)
        watching.stop()

    asyncio.run(scenario())
    told, went_on = said.records[STILL], said.records[ON]
    assert told["for_ms"] >= 200  # type: ignore[operator]
    assert "stand_until_told (test_standstill.py:" in str(told["at"])
    assert went_on["stood_ms"] >= told["for_ms"]  # type: ignore[operator]


def test_a_machine_that_stands_still_is_no_fault_of_the_loop(said: Said) -> None:
    clock = FakeClock()

    async def scenario() -> None:
        watching = Standstill(clock, look_s=0.01)
        watching.start()
        while not await asyncio.to_thread(said.events[NO_PROCESSOR].wait, 0.05):
            clock.advance(60_000)  # between two looks: which of them sees it is the thread's affair
        watching.stop()

    asyncio.run(scenario())
    assert NO_PROCESSOR in said.records
