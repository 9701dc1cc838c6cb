"""How fast somebody is, over sliding windows as Kafka takes them, and how long to pause who is too fast. Pure."""

import math
from collections import deque
from typing import Final

_LONGEST_MS: Final = 2**31 - 1
"""As much as an answer can say; a limit may be next to nothing."""


class Windows:
    """Amounts of the last *number* windows of *window_ms* each. A window begins with the first amount in it."""

    __slots__ = ("_kept_ms", "_least_span_ms", "_samples", "_total", "_window_ms")

    def __init__(self, number: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._kept_ms = number * window_ms
        self._least_span_ms = max(number - 1, 1) * window_ms
        self._samples: deque[list[float]] = deque()
        """Begin and amount of each."""
        self._total = 0.0

    def add(self, amount: float, most_per_s: float, now_ms: int) -> int:
        """How long nothing more may come until the rate is down at *most_per_s*, in ms; 0: it is below."""
        samples = self._samples
        self._forget(now_ms - self._kept_ms)
        if samples and now_ms - samples[-1][0] < self._window_ms:
            samples[-1][1] += amount
        else:
            samples.append([now_ms, amount])
        self._total += amount
        return self._pause_ms(most_per_s, now_ms)

    def owed_ms(self, most_per_s: float, now_ms: int) -> int:
        """The same for what was added before."""
        self._forget(now_ms - self._kept_ms)
        return self._pause_ms(most_per_s, now_ms)

    def _pause_ms(self, most_per_s: float, now_ms: int) -> int:
        if self._total * 1000 <= most_per_s * self._least_span_ms:
            return 0
        span_ms = max(now_ms - self._samples[0][0], self._least_span_ms)
        rate = self._total * 1000 / span_ms
        return math.ceil(min((rate - most_per_s) / most_per_s * span_ms, _LONGEST_MS)) if rate > most_per_s else 0

    def _forget(self, expired_ms: int) -> None:
        samples = self._samples
        while samples and samples[0][0] <= expired_ms:
            self._total -= samples.popleft()[1]
            if not samples:
                self._total = 0.0  # what rounding has left


class Bucket:
    """A token bucket: any amount may be taken as long as there is something in it; it then owes what it had not."""

    __slots__ = ("_seen_ms", "_tokens")

    def __init__(self, full: float, now_ms: int) -> None:
        self._tokens = full
        self._seen_ms = now_ms

    def take(self, amount: float, most_per_s: float, full: float, now_ms: int, *, strict: bool) -> bool:
        """Whether it may be; *strict*: not while the bucket owes anything."""
        gained = (now_ms - self._seen_ms) * most_per_s / 1000
        self._tokens, self._seen_ms = min(self._tokens + gained, full), now_ms
        if strict and self._tokens < 0:
            return False
        self._tokens -= amount
        return True

    def debt_ms(self, most_per_s: float, now_ms: int) -> int:
        """Until when it owes nothing."""
        owed = -self._tokens * 1000 / most_per_s - (now_ms - self._seen_ms)
        return max(math.ceil(min(owed, _LONGEST_MS)), 0)
