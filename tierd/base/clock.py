"""Time is passed in: production code takes a Clock, tests a FakeClock (tests/kit/clock.py)."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never run backwards; only differences mean anything."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def utc(at_ms: int) -> str:
    """A wall clock time for people. Raises OverflowError, ValueError or OSError beyond what a calendar reaches."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
