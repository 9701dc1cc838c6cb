"""The daily window in which the daemon looks at its bucket."""

import pytest

from tierd.config.checking import DayWindow, Window

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize("text", ["02:00-05:30", "23:00-01:00", "00:00-23:59", "none"])
def test_it_is_shown_as_it_is_read(text: str) -> None:
    assert Window().show(Window().read(text)) == text


@pytest.mark.parametrize("text", ["", "2:00-5:00", "02:00", "24:00-25:00", "02:60-03:00", "02:00-02:00", "x", 5, None])
def test_what_is_none(text: object) -> None:
    with pytest.raises(ValueError, match=r"not HH:MM-HH:MM|begins when it ends"):
        Window().read(text)


@pytest.mark.parametrize(
    ("window", "hour", "left"),
    [
        (DayWindow(120, 300), 1.99, 0),
        (DayWindow(120, 300), 2, 3),
        (DayWindow(120, 300), 4.5, 0.5),
        (DayWindow(120, 300), 5, 0),
        (DayWindow(1380, 60), 22, 0),
        (DayWindow(1380, 60), 23, 2),
        (DayWindow(1380, 60), 0.5, 0.5),
        (DayWindow(1380, 60), 1, 0),
    ],
)
def test_how_long_it_is_open(window: DayWindow, hour: float, left: float) -> None:
    for day in (0, 20_000):
        assert window.left_ms(day * DAY_MS + round(hour * HOUR_MS)) == pytest.approx(left * HOUR_MS)
