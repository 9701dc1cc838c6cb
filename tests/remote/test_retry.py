"""Back-off: bounded in tries and time, deaf to what will not heal."""

import threading
from collections.abc import Callable

import pytest

from kit.clock import FakeClock
from tierd.remote.errors import AccessRefused, BucketMissing, Damaged, NotFound, RemoteUnavailable, Throttled
from tierd.remote.retry import Retrier, RetryPolicy
from tierd.remote.server_clock import ServerClock


class Waits(threading.Event):
    """Notes pauses instead of making them, and lets the clock run on."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.pauses_ms: list[int] = []

    def wait(self, timeout: float | None = None) -> bool:
        pause_ms = round((timeout or 0) * 1000)
        self.pauses_ms.append(pause_ms)
        self.clock.advance(pause_ms)
        return self.is_set()


def failing(error: Exception, times: int) -> Callable[[int], int]:
    def request(failures: int) -> int:
        if failures < times:
            raise error
        return failures

    return request


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def waits(clock: FakeClock) -> Waits:
    return Waits(clock)


@pytest.mark.parametrize("error", [RemoteUnavailable("x"), Throttled("x"), Damaged("x")])
def test_what_may_heal_is_tried_again(clock: FakeClock, waits: Waits, error: Exception) -> None:
    assert Retrier(RetryPolicy(tries=4), clock, waits).run(failing(error, 3)) == 3
    assert len(waits.pauses_ms) == 3


@pytest.mark.parametrize("error", [AccessRefused("x"), BucketMissing("x"), NotFound("x")])
def test_what_does_not_heal_soon_is_raised_at_once(clock: FakeClock, waits: Waits, error: Exception) -> None:
    with pytest.raises(type(error)):
        Retrier(RetryPolicy(), clock, waits).run(failing(error, 1))
    assert waits.pauses_ms == []


def test_tries_are_bounded(clock: FakeClock, waits: Waits) -> None:
    with pytest.raises(RemoteUnavailable):
        Retrier(RetryPolicy(tries=3), clock, waits).run(failing(RemoteUnavailable("x"), 9))
    assert len(waits.pauses_ms) == 2


def test_time_is_bounded(clock: FakeClock, waits: Waits) -> None:
    with pytest.raises(RemoteUnavailable):
        Retrier(RetryPolicy(tries=100, limit_ms=10_000), clock, waits).run(failing(RemoteUnavailable("x"), 99))
    assert sum(waits.pauses_ms) <= 10_000


def test_pauses_double_and_are_longer_when_throttled(clock: FakeClock, waits: Waits) -> None:
    policy = RetryPolicy(first_ms=100, longest_ms=350)
    assert [policy.pause_ms(n, throttled=False) for n in (1, 2, 3, 4)] == [100, 200, 350, 350]
    assert policy.pause_ms(1, throttled=True) == 400
    Retrier(policy, clock, waits).run(failing(RemoteUnavailable("x"), 2))
    assert 50 <= waits.pauses_ms[0] <= 100
    assert 100 <= waits.pauses_ms[1] <= 200


def test_closing_ends_the_pause(clock: FakeClock, waits: Waits) -> None:
    retrier = Retrier(RetryPolicy(), clock, waits)
    retrier.close()
    with pytest.raises(RemoteUnavailable):
        retrier.run(failing(RemoteUnavailable("x"), 1))
    assert len(waits.pauses_ms) == 1


def test_the_servers_clock_runs_on(clock: FakeClock) -> None:
    server = ServerClock(clock)
    server.saw(None)
    server.saw("soon")
    assert server.now_ms() is None
    server.saw("Mon, 30 Nov 2026 12:00:00 GMT")
    clock.advance(1500)
    clock.step_wall(-3_600_000)
    assert server.now_ms() == 1_796_040_001_500
