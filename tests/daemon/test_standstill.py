"""A loop that stands still is told of while it does, with the place where it stands. Real threads."""

import asyncio
import logging
import threading

import pytest

from kit.clock import FakeClock
from tierd.base.clock import SystemClock
from tierd.daemon.standstill import Standstill

PATIENCE = 6000


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def stand_until_told(caplog: pytest.LogCaptureFixture) -> None:
    never = threading.Event()
    for _ in range(PATIENCE):
        if "the loop stands still: nobody is answered" in lines(caplog):
            return
        never.wait(0.01)


def test_a_loop_that_stands_still_is_told_of_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        watching = Standstill(SystemClock(), look_s=0.01, long_ms=200)
        watching.start()
        stand_until_told(caplog)
        for _ in range(PATIENCE):
            if "the loop goes on" in lines(caplog):
                break
            await asyncio.sleep(0.01)
        watching.stop()

    asyncio.run(scenario())
    told = next(vars(record) for record in caplog.records if "stands still" in record.getMessage())
    assert told["for_ms"] >= 200
    assert "stand_until_told (test_standstill.py:" in told["at"]
    went_on = next(vars(record) for record in caplog.records if record.getMessage() == "the loop goes on")
    assert went_on["stood_ms"] >= told["for_ms"]


def test_a_machine_that_stands_still_is_no_fault_of_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = FakeClock()

    async def scenario() -> None:
        watching = Standstill(clock, look_s=0.01)
        watching.start()
        for _ in range(PATIENCE):
            if "this process had no processor" in lines(caplog):
                break
            clock.advance(60_000)
            await asyncio.sleep(0.05)
        watching.stop()

    asyncio.run(scenario())
    assert "this process had no processor" in lines(caplog)
