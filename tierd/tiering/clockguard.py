"""Whether the time can be trusted enough to delete by it (remote/LAYOUT.md, "Deleting")."""

from tierd.base.clock import Clock


class ClockGuard:
    """Compares the local wall clock with the bucket's and with the monotonic one since the start."""

    def __init__(self, clock: Clock, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def trouble(self, server_ms: int | None) -> str | None:
        """Why evictions and deletes must wait, in words, or None. *server_ms*: the bucket's clock now."""
        now_ms = self._clock.now_ms()
        stepped_ms = now_ms - self._clock.monotonic_ms() - self._offset_ms
        if abs(stepped_ms) > self._limit_ms:
            return f"the wall clock has jumped by {stepped_ms} ms since the start"
        if server_ms is None:
            return "the bucket has not told its time yet"
        if abs(now_ms - server_ms) > self._limit_ms:
            return f"the local clock is {now_ms - server_ms} ms ahead of the bucket's"
        return None
