"""When the daemon looks by itself whether the bucket is whole: a daily window, and what a look may spend."""

import re
from dataclasses import dataclass
from typing import Annotated, Final

from tierd.config.kinds import BYTES, MILLIS, Number, Switch
from tierd.config.section import Section, Setting
from tierd.config.topic import DAY_MS

_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class DayWindow:
    """Minutes of a UTC day, [begin, end); it may go over midnight."""

    begin: int
    end: int

    def left_ms(self, now_ms: int) -> int:
        """How long it is still open at a wall clock time; 0: it is shut."""
        since_ms = (now_ms - self.begin * _MINUTE_MS) % DAY_MS
        return max((self.end - self.begin) * _MINUTE_MS % DAY_MS - since_ms, 0)


def window_of(text: str) -> DayWindow:
    """Of `HH:MM-HH:MM`. Raises ValueError."""
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise ValueError("not HH:MM-HH:MM")
    first, first_minute, last, last_minute = map(int, found.groups())
    begin, end = first * 60 + first_minute, last * 60 + last_minute
    if begin == end:
        raise ValueError("begins when it ends")
    return DayWindow(begin, end)


@dataclass(frozen=True, slots=True)
class Window:
    """`HH:MM-HH:MM`, kept as it is written; the value *none* is never."""

    @property
    def allowed(self) -> str:
        return "HH:MM-HH:MM in UTC, or none"

    def read(self, raw: object) -> str | None:
        if raw == "none":
            return None
        window_of(str(raw))
        return str(raw)

    def show(self, value: str | None) -> str:
        return "none" if value is None else value


class Checking(Section):
    """What `tierd verify` does at a command, by the clock."""

    window: Annotated[
        str | None,
        Setting(
            "remote.verify.window",
            Window(),
            "When the daemon looks each day whether the bucket is whole; what is not done by its end goes on the next "
            "day. none: only `tierd verify` does it.",
        ),
    ] = None
    every_ms: Annotated[
        int,
        Setting(
            "remote.verify.interval.ms", Number(0, unit=MILLIS), "Time from a look that is complete to the next one."
        ),
    ] = 7 * DAY_MS
    deep: Annotated[
        bool, Setting("remote.verify.deep", Switch(), "Read every byte, as `tierd verify --deep`; costs a GET of all.")
    ] = False
    sample_percent: Annotated[
        int, Setting("remote.verify.sample.percent", Number(1, 100), "Share of the segments, another one each time.")
    ] = 100
    requests: Annotated[
        int | None,
        Setting("remote.verify.budget.requests", Number(1, none=-1), "Requests in one window at most."),
    ] = None
    bytes: Annotated[
        int | None,
        Setting("remote.verify.budget.bytes", Number(1, unit=BYTES, none=-1), "Bytes read in one window at most."),
    ] = None
