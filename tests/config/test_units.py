"""Sizes and durations, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.config.units import parse_bytes, parse_ms, show_bytes, show_ms


@pytest.mark.parametrize(
    ("text", "size"), [("64MiB", 64 << 20), ("1 KiB", 1024), ("10", 10), ("10B", 10), ("-1", -1), (" 2TiB ", 2 << 40)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "duration"), [("7d", 604_800_000), ("1w", 604_800_000), ("5m", 300_000), ("250", 250), ("250ms", 250)]
)
def test_durations(text: str, duration: int) -> None:
    assert parse_ms(text) == duration


@pytest.mark.parametrize("text", ["", "MiB", "1.5MiB", "1MB", "1mb", "1G", "1 XiB", "0x10", "1MiB2"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|unknown unit|sizes are binary"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["", "d", "1y", "1M", "1 day", "PT5M"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|unknown unit"):
        parse_ms(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_what_is_shown_reads_back(number: int) -> None:
    assert parse_bytes(show_bytes(number)) == number
    assert parse_ms(show_ms(number)) == number
