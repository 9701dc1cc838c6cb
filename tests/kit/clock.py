"""A clock that moves when told."""


class FakeClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        """Both clocks go on together."""
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def step_wall(self, by_ms: int) -> None:
        """The wall clock jumps (either way), the monotonic one does not."""
        self._now_ms += by_ms
