"""Producers to a disk with little room are slowed, and nobody else is."""

import shutil
import time
from pathlib import Path

import pytest

from broker.client import Client, batch
from broker.running import running
from kit.clock import FakeClock
from tierd.broker.homes import Home
from tierd.broker.slow_disks import LEAST_MS, MOST_MS, SlowDisks, pause_ms
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("free_bytes", "expected"),
    [(1999, LEAST_MS), (1980, LEAST_MS), (1900, 100), (1500, 500), (1001, 999), (1000, MOST_MS), (0, MOST_MS)],
)
def test_the_fuller_the_disk_the_longer_the_pause(free_bytes: int, expected: int) -> None:
    assert pause_ms(free_bytes, 2000, 1000) == expected


def test_a_limit_at_the_reserve_has_no_way_between() -> None:
    assert pause_ms(999, 1000, 1000) == MOST_MS


class _Disk(Home):
    """One that says how much is free."""

    free_bytes: int | None = 0

    def space(self) -> tuple[int, int] | None:
        return None if self.free_bytes is None else (10_000, self.free_bytes)


def _disk(name: str, free_bytes: int | None) -> _Disk:
    disk = _Disk(Path(name), None, None)
    disk.free_bytes = free_bytes
    return disk


def test_each_disk_is_looked_at_for_itself_once_a_second_and_let_go_with_some_more_room() -> None:
    clock, full, empty, gone = FakeClock(), _disk("/f", 1500), _disk("/e", 2000), _disk("/g", None)
    slow = SlowDisks((full, empty, gone), clock, 2000, 1000)  # type: ignore[arg-type]  # all that it does is iterate
    assert [slow.pause_of(one) for one in (full, empty, gone)] == [500, 0, 0]
    assert slow.slowed() == [full]
    full.free_bytes, empty.free_bytes = 2249, 1999
    assert [slow.pause_of(one) for one in (full, empty)] == [500, 0]
    clock.advance(1000)
    assert [slow.pause_of(one) for one in (full, empty)] == [LEAST_MS, LEAST_MS]
    full.free_bytes, empty.free_bytes = 2250, 1000
    clock.advance(1000)
    assert [slow.pause_of(one) for one in (full, empty)] == [0, MOST_MS]


@pytest.mark.parametrize("limit", [None, 0])
def test_without_a_limit_nobody_is_slowed(limit: int | None) -> None:
    slow = SlowDisks((_disk("/f", 0),), FakeClock(), limit, 0)  # type: ignore[arg-type]
    assert (slow.on, slow.slowed()) == (False, [])


def _produce(client: Client) -> int:
    """The pause that the answer names, in ms."""
    fields = {"transactional_id": None, "acks": -1, "timeout": 5000}
    data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(1, size=800)}]}]
    answer = client.call(ApiKey.PRODUCE, 9, **fields, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return int(answer.throttle_time.total_seconds() * 1000)


def test_the_answer_names_the_pause_and_the_connection_keeps_it(tmp_path: Path) -> None:
    free_bytes = shutil.disk_usage(tmp_path).free
    with running(tmp_path, disk_slow_bytes=2 * free_bytes) as broker, Client(broker.address) as client:
        client.create("t")
        for _ in range(2):  # the second has a shape that is known by then
            begun = time.monotonic()
            named_ms = _produce(client)
            assert LEAST_MS <= named_ms <= MOST_MS
            client.list_offsets("t", -1)
            assert (time.monotonic() - begun) * 1000 >= named_ms
        assert broker.call(lambda: broker.broker.counters.throttled) == 2
        with Client(broker.address) as other:
            assert other.call(ApiKey.METADATA, 9, topics=()).throttle_time.total_seconds() == 0
            assert other.list_offsets("t", -1).offset == 2


def test_a_disk_with_room_slows_nobody(tmp_path: Path) -> None:
    with running(tmp_path, disk_slow_bytes=1) as broker, Client(broker.address) as client:
        client.create("t")
        assert _produce(client) == 0
