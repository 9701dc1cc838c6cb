"""Bounded retries with back-off for requests that may be sent again."""

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tierd.base.clock import Clock
from tierd.remote.errors import AccessRefused, BucketMissing, RemoteUnavailable, Throttled

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Pauses double from *first_ms* to *longest_ms*, shortened by up to half at random; fourfold when throttled."""

    tries: int = 5
    first_ms: int = 100
    longest_ms: int = 2_000
    limit_ms: int = 30_000
    """No new try begins later than this after the first one."""

    def pause_ms(self, failures: int, *, throttled: bool) -> int:
        """Pause after so many failures (from 1), without the random part."""
        pause = min(self.first_ms << (failures - 1), self.longest_ms)
        return pause * 4 if throttled else pause


class Retrier:
    """Runs requests. Any thread; `close` ends all pauses at once."""

    def __init__(
        self,
        policy: RetryPolicy,
        clock: Clock,
        closing: threading.Event | None = None,
        below: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        """*below*: the randomness, a number of 0 and above that is below its argument."""
        self._below = below
        self._policy = policy
        self._clock = clock
        self._closing = closing or threading.Event()

    def run(self, request: Callable[[int], T]) -> T:
        """Give what *request* gives; it is told how many tries failed before it.

        Only RemoteUnavailable is tried again, and of those not AccessRefused and BucketMissing, which heal on a slower
        scale (the caller's).
        """
        start_ms = self._clock.monotonic_ms()
        failures = 0
        while True:
            try:
                return request(failures)
            except (AccessRefused, BucketMissing) as error:
                error.at_once = failures == 0
                raise
            except RemoteUnavailable as error:
                failures += 1
                pause_ms = self._policy.pause_ms(failures, throttled=isinstance(error, Throttled))
                late = self._clock.monotonic_ms() + pause_ms - start_ms > self._policy.limit_ms
                if failures >= self._policy.tries or late or self._wait(pause_ms):
                    raise

    def _wait(self, pause_ms: int) -> bool:
        """True when closing."""
        shorter = self._below(pause_ms // 2 + 1)
        return self._closing.wait((pause_ms - shorter) / 1000)

    def close(self) -> None:
        self._closing.set()
