"""Sizes and durations as people write them: `64MiB`, `7d`, or a plain number of bytes or milliseconds."""

import re

BYTE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MS_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_QUANTITY = re.compile(r"([+-]?\d+)\s*([A-Za-z]*)")
_DECIMAL_UNITS = frozenset({"K", "KB", "M", "MB", "G", "GB", "T", "TB"})


def parse_bytes(text: str) -> int:
    """Bytes. ValueError says which units there are; decimal ones are refused, for Kafka's sizes are binary."""
    number, unit = _split(text, "a size such as 64MiB")
    if unit.upper() in _DECIMAL_UNITS:
        raise ValueError(f"write {unit[0].upper()}iB: sizes are binary")
    return number * _factor(BYTE_UNITS, unit or "B")


def parse_ms(text: str) -> int:
    """Milliseconds. ValueError says which units there are."""
    number, unit = _split(text, "a duration such as 7d or 500ms")
    return number * _factor(MS_UNITS, unit or "ms")


def show_bytes(size_bytes: int) -> str:
    """The largest unit that divides it: 1048576 -> 1MiB, 1000 -> 1000B."""
    return _show(BYTE_UNITS, size_bytes)


def show_ms(duration_ms: int) -> str:
    """The largest unit that divides it: 86400000 -> 1d, 1500 -> 1500ms. Weeks are read, never shown."""
    return _show({unit: factor for unit, factor in MS_UNITS.items() if unit != "w"}, duration_ms)


def _split(text: str, example: str) -> tuple[int, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a number, nor {example}")
    return int(match[1]), match[2]


def _factor(units: dict[str, int], unit: str) -> int:
    if unit not in units:
        raise ValueError(f"unknown unit {unit!r}: use {', '.join(units)}")
    return units[unit]


def _show(units: dict[str, int], value: int) -> str:
    for unit, factor in reversed(units.items()):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value}{next(iter(units))}"
