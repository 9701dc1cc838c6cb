"""The bucket's clock, as its answers tell it."""

from email.utils import parsedate_to_datetime

from tierd.base.clock import Clock


class ServerClock:
    """Keeps the last `Date` and how long ago it came. Any thread (one assignment of a tuple)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: tuple[int, int] | None = None

    def saw(self, date: str | None) -> None:
        """An answer's `Date` header; what does not parse is passed over."""
        if date is None:
            return
        try:
            when = parsedate_to_datetime(date)
        except ValueError:
            return
        self._seen = (int(when.timestamp() * 1000), self._clock.monotonic_ms())

    def now_ms(self) -> int | None:
        """Whole seconds exact, as the header has them; None before any answer."""
        if self._seen is None:
            return None
        date_ms, at_ms = self._seen
        return date_ms + self._clock.monotonic_ms() - at_ms
