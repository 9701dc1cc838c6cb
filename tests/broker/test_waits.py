"""A request that waits long is said to, and where it stands; those that wait for others by design are not."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import Client, batch
from broker.running import Running, settings
from kit.clock import FakeClock
from kit.slow_disk import SlowDisk
from tierd.broker.waits import LONG_S, Wait, Waits, stands_at
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

SAID = "requests are not answered yet"


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, int]]:
    """API, number of requests and seconds of each line."""
    records = [vars(record) for record in caplog.records if record.getMessage() == SAID]
    return [(record["api"], record["requests"], record["longest_s"]) for record in records]


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk("commit")


@pytest.fixture
def broker(tmp_path: Path, disk: SlowDisk) -> Iterator[Running]:
    started = Running(settings(tmp_path), None, FakeClock())
    started.disk = disk
    started.start()
    yield started
    disk.go.set()
    started.stop()


def sweep(broker: Running, *, after_s: float) -> None:
    assert isinstance(broker.clock, FakeClock)
    broker.clock.advance(round(after_s * 1000))
    broker.call(broker.broker.server._sweep)


def test_a_produce_that_the_disk_does_not_answer(
    broker: Running, disk: SlowDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(broker.address) as one, Client(broker.address) as two, Client(broker.address) as reader:
        one.create("t", tierd_acks_durability="disk")
        reader.send_fetch([("t", 0, 0, 1 << 20)], max_wait=3_600_000)
        disk.stands.clear()
        disk.go.clear()
        for client in (one, two):
            rows = [{"name": "t", "partition_data": [{"index": 0, "records": batch()}]}]
            client.send(0, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=rows)
        assert disk.stands.wait(60)
        patience = threading.Event()
        while sum(c.work is not None for c in broker.call(lambda: list(broker.broker.server._connections))) < 3:
            patience.wait(0.01)
        sweep(broker, after_s=0)
        sweep(broker, after_s=LONG_S - 1)
        assert said(caplog) == []
        sweep(broker, after_s=1)
        sweep(broker, after_s=1)
        assert said(caplog) == [("PRODUCE", 2, 10)]
        assert "Work.answered" in vars(caplog.records[-1])["at"]
        sweep(broker, after_s=LONG_S)
        assert said(caplog)[1:] == [("PRODUCE", 2, 21)]
        disk.go.set()
        assert one.answer(0, 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert two.answer(0, 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_what_stands_at_another_place_is_another_line(caplog: pytest.LogCaptureFixture) -> None:
    async def innermost() -> None:
        """Not begun."""

    async def outer() -> None:
        await innermost()

    caplog.set_level(logging.WARNING)
    first, second = outer(), innermost()
    looks = Waits()
    for _ in range(2):
        looks.look([Wait(ApiKey.END_TXN, LONG_S, first), Wait(ApiKey.END_TXN, LONG_S, second), Wait(None, 99, second)])
    assert said(caplog) == [("END_TXN", 1, 10), ("END_TXN", 1, 10), ("?", 1, 99)]
    looks.look([])
    looks.look([Wait(ApiKey.END_TXN, LONG_S, first), Wait(ApiKey.JOIN_GROUP, 300, first)])
    assert said(caplog)[3:] == [("END_TXN", 1, 10)]
    assert stands_at(first).endswith("outer")
    first.close()
    second.close()
