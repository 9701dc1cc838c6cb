"""Limits: never more than was earned, in turn, what a client waits for first."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from kit.clock import FakeClock
from kit.weed import ACCESS_KEY, SECRET_KEY, Weed
from tierd.base.clock import SystemClock
from tierd.base.errors import RemoteUnavailable
from tierd.config.model import S3, Remote
from tierd.remote.crc import crc32c
from tierd.remote.limits import Limits, Rate, Urgency, now_urgent, urgent
from tierd.remote.open import open_store
from tierd.remote.store import ObjectStore
from tierd.remote.watchdog import _HERE, Watchdog, waited
from tierd.remote.watched import Calls
from tierd.storage.disk import PosixDisk

_LONG_S = 30


def test_the_first_bytes_are_earned_before_they_go() -> None:
    rate = Rate(1000)
    assert rate.take(5_000, 500) == 5_500
    assert rate.take(5_000, 500) == 6_000


def test_hardly_anything_is_saved_up() -> None:
    rate = Rate(1000)
    rate.take(0, 1000)
    assert rate.take(60_000, 1000) == 60_900, "a tenth of a second, not a minute"


def test_who_wakes_up_late_loses_nothing() -> None:
    rate = Rate(1000)
    assert rate.take(0, 100) == 100
    assert rate.take(150, 100) == 200


@pytest.mark.parametrize("pieces", [1, 7, 300])
def test_over_any_time_no_more_than_the_limit(pieces: int) -> None:
    rate, now_ms, gone = Rate(10_000), 0, 0
    for _ in range(pieces):
        now_ms = max(now_ms, round(rate.take(now_ms, 333) + 0.5))
        gone += 333
        assert gone <= 10_000 * now_ms / 1000


def test_without_limits_nobody_waits_or_takes_small_pieces() -> None:
    limits = Limits(SystemClock())
    for ask in (limits.request, lambda: limits.upload(1 << 40), lambda: limits.download(1 << 40)):
        ask()
    assert (limits.upload_piece(7), limits.download_piece(7), limits.any) == (7, 7, False)


def test_uploads_share_the_limit() -> None:
    limits = Limits(SystemClock(), upload=400_000)
    gone = [0, 0]
    begun = threading.Barrier(2)

    def send(which: int) -> None:
        begun.wait(_LONG_S)
        while sum(gone) < 100_000:
            limits.upload(4096)
            gone[which] += 4096

    started = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(send, (0, 1)))
    took_s = time.monotonic() - started
    assert sum(gone) <= 400_000 * (took_s + 0.1)
    assert min(gone) >= 0.3 * sum(gone)


def _queue_up(limits: Limits, urgencies: list[Urgency], done: list[Urgency]) -> list[threading.Thread]:
    """Threads that wait for a request each, the first of *urgencies* first."""
    assert limits._requests is not None
    waiting = limits._requests._waiting
    threads = []

    def ask(urgency: Urgency) -> None:
        with urgent(urgency):
            limits.request()
        done.append(urgency)

    for number, urgency in enumerate(urgencies, 1):
        thread = threading.Thread(target=ask, args=(urgency,))
        thread.start()
        threads.append(thread)
        _until(lambda number=number: sum(map(len, waiting.values())) + len(done) >= number)  # type: ignore[misc]
    return threads


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + _LONG_S
    while not true():
        assert time.monotonic() < end
        threading.Event().wait(0.001)


def test_a_waiting_client_goes_before_a_sweep_which_goes_on_all_the_same() -> None:
    limits, done = Limits(SystemClock(), requests=4), list[Urgency]()
    limits.request()
    later, client = Urgency.LATER, Urgency.CLIENT
    for thread in _queue_up(limits, [later, later, client, client, client], done):
        thread.join(_LONG_S)
    assert done[:2] == [client, client]
    assert done[2] is later, "the oldest, at times"


def test_a_close_ends_all_waits() -> None:
    limits = Limits(SystemClock(), upload=1, download=1, requests=1)
    limits.request()
    errors: list[RemoteUnavailable] = []
    started = threading.Barrier(4)

    def wait(ask: Callable[[], None]) -> None:
        started.wait(_LONG_S)
        try:
            for _ in range(1000):
                ask()
        except RemoteUnavailable as error:
            errors.append(error)

    asks = (limits.request, lambda: limits.upload(1 << 30), lambda: limits.download(1 << 30))
    threads = [threading.Thread(target=wait, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    started.wait(_LONG_S)
    limits.close()
    for thread in threads:
        thread.join(_LONG_S)
    assert len(errors) == 3


def test_a_thread_says_how_urgent_it_is_for_good_or_for_a_while() -> None:
    limits, done = Limits(SystemClock(), requests=1000), list[Urgency]()

    def look() -> None:
        now_urgent(Urgency.CLIENT)
        with urgent(Urgency.LATER):
            limits.request()
        done.append(Urgency.CLIENT)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(_LONG_S)
    assert done == [Urgency.CLIENT]


_SIZE = 600_000
_FAST = 1_000_000


def _takes_its_time(store: ObjectStore) -> None:
    """An object goes up and comes down at *_FAST* bytes a second, the first byte included; it is whole."""
    data = bytes(range(256)) * (_SIZE // 256)
    started = time.monotonic()
    store.put("k", data, crc32c=crc32c(data))
    up_s = time.monotonic() - started
    assert store.get("k") == data
    assert store.pieces("k", 0, len(data), b"".join) == data
    down_s = time.monotonic() - started - up_s
    assert up_s >= 0.99 * len(data) / _FAST
    assert down_s >= 2 * len(data) / _FAST - 0.15
    store.close()


def test_a_directory_is_limited(tmp_path: Path) -> None:
    remote = Remote(upload_per_second=_FAST, download_per_second=_FAST)
    _takes_its_time(open_store(f"file:{tmp_path}", remote, disk=PosixDisk(), clock=SystemClock()).store)


@pytest.mark.s3
def test_a_bucket_is_limited(weed_server: Weed) -> None:
    secret = SecretStr(SECRET_KEY)
    s3 = S3(endpoint=weed_server.endpoint, region="us-east-1", access_key_id=ACCESS_KEY, secret_access_key=secret)
    remote = Remote(upload_per_second=_FAST, download_per_second=_FAST, requests_per_second=100, s3=s3)
    url = f"s3://{weed_server.bucket('limited')}/x/"
    _takes_its_time(open_store(url, remote, disk=PosixDisk(), clock=SystemClock()).store)


def test_a_call_that_waits_for_a_limit_is_not_one_that_the_bucket_leaves_unanswered() -> None:
    clock = FakeClock()
    calls = Calls(clock)
    with calls.one():
        clock.advance(50_000)
        assert (calls.silent_ms, calls.oldest_ms) == (50_000, 50_000)
        calls.went_on(1)
        clock.advance(7)
        assert (calls.silent_ms, calls.oldest_ms) == (7, 7)


def test_a_pause_for_a_limit_is_not_the_time_of_the_request_that_is_watched() -> None:
    clock = FakeClock()
    dog = Watchdog(clock, 1000)
    with dog.request(0):
        before = _HERE.request
        assert before is not None
        begun_ms, since_ms = before.begun_ms, before.since_ms
        waited(500)
        assert (before.begun_ms - begun_ms, before.since_ms - since_ms) == (500, 500)
    waited(500)  # of no request: nothing to tell
    dog.close()
