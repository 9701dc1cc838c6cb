"""Rates over sliding windows, and token buckets."""

import pytest

from tierd.broker.security.windows import Bucket, Windows

WINDOWS, MS = 11, 1000


def test_who_stays_below_the_rate_never_pauses() -> None:
    windows = Windows(WINDOWS, MS)
    assert not any(windows.add(1000, 1100, second * MS) for second in range(100))


def test_a_burst_may_use_what_all_windows_allow() -> None:
    windows = Windows(WINDOWS, MS)
    assert windows.add(10_000, 1000, 0) == 0
    # 11,000 in ten seconds are a tenth too much: a second more makes up for it.
    assert windows.add(1000, 1000, 1) == 1000


@pytest.mark.parametrize("amount", [10_001, 25_000, 1_000_000])
def test_after_the_pause_the_rate_is_what_was_allowed(amount: int) -> None:
    pause_ms = Windows(WINDOWS, MS).add(amount, 1000, 0)
    assert amount * 1000 / (10_000 + pause_ms) == pytest.approx(1000, rel=1e-3)


def test_what_is_owed_is_what_is_left_of_the_pause() -> None:
    windows = Windows(WINDOWS, MS)
    assert windows.owed_ms(1000, 0) == 0
    assert windows.add(12_000, 1000, 0) == 2000
    assert windows.owed_ms(1000, 0) == 2000
    assert windows.owed_ms(1000, 10_500) == pytest.approx(1500, abs=1)  # rounded up
    assert windows.owed_ms(1000, 11_000) == 0  # forgotten
    assert windows.add(1000, 1000, 11_000) == 0


def test_old_windows_are_forgotten() -> None:
    windows = Windows(WINDOWS, MS)
    windows.add(1_000_000, 1, 0)
    assert windows.add(0, 1, 10_999) > 0
    assert windows.add(0, 1, 11_000) == 0


def test_a_bucket_gives_more_than_it_has_and_then_nothing_until_it_owes_nothing() -> None:
    bucket = Bucket(10, 0)
    assert bucket.take(30, 1, 10, 0, strict=True)
    assert bucket.debt_ms(1, 0) == 20_000
    assert not bucket.take(1, 1, 10, 19_000, strict=True)
    assert bucket.debt_ms(1, 19_000) == 1000
    assert bucket.take(1, 1, 10, 20_000, strict=True)
    assert bucket.take(5, 1, 10, 20_000, strict=False)
    assert bucket.debt_ms(1, 20_000) == 6000


def test_a_bucket_fills_no_higher_than_full() -> None:
    bucket = Bucket(10, 0)
    assert bucket.take(0, 1, 10, 10**9, strict=True)
    assert bucket.take(11, 1, 10, 10**9, strict=True)
    assert bucket.debt_ms(1, 10**9) == 1000


@pytest.mark.parametrize("most_per_s", [1e-9, 1e-300, 5e-324])
def test_a_limit_next_to_nothing_is_a_long_pause(most_per_s: float) -> None:
    assert Windows(11, 1000).add(1e6, most_per_s, 0) == 2**31 - 1
    bucket = Bucket(most_per_s, 0)
    bucket.take(1e6, most_per_s, most_per_s, 0, strict=False)
    assert bucket.debt_ms(most_per_s, 0) == 2**31 - 1
