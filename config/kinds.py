"""Kinds of setting values: how each is read from a file or a client, checked, written back and described.

`read` takes what a file or `--set` gives, units allowed; `read_kafka` takes a client's text, as strict as Kafka.
Both raise ValueError with a reason in Kafka's words (recorded in produce-cases.jsonl where they name a rule).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tierd.config.units import parse_bytes, parse_ms, show_bytes, show_ms

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = int | float | bool | str | frozenset[str] | None


class Kind(Protocol):
    @property
    def allowed(self) -> str:
        """What may be written, in words."""

    def read(self, raw: object) -> Value: ...

    def read_kafka(self, text: str) -> Value: ...

    def text(self, value: Value) -> str:
        """As Kafka writes it; `read_kafka` gives the same value again."""

    def show(self, value: Value) -> str:
        """As people read it; `read` gives the same value again."""


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    example: str
    parse: Callable[[str], int]
    show: Callable[[int], str]


COUNT = Unit("whole number", "", int, str)
BYTES = Unit("size", "64MiB", parse_bytes, show_bytes)
MILLIS = Unit("duration", "7d", parse_ms, show_ms)


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number in [least, most], with a unit; the value *none* stands for no limit and is read as None."""

    least: int
    most: int = LONG_MAX
    unit: Unit = COUNT
    none: int | None = None

    @property
    def allowed(self) -> str:
        what = self.unit.name + (f" such as {self.unit.example}" if self.unit.example else "")
        top = f" to {self._show_bound(self.most)}" if self.most not in (INT_MAX, LONG_MAX) else " or more"
        none = "" if self.none is None else "; -1 = none" if self.none == -1 else "; none"
        return f"{what}, {self._show_bound(self.least)}{top}{none}"

    def read(self, raw: object) -> Value:
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            raise ValueError("not a number")
        if raw == "none" and self.none is not None:
            return None
        return self._checked(self.unit.parse(raw) if isinstance(raw, str) else raw)

    def read_kafka(self, text: str) -> Value:
        kind = "INT" if self.most <= INT_MAX else "LONG"
        try:
            number = int(text.strip())
        except ValueError:
            raise ValueError(f"Not a number of type {kind}") from None
        if not -LONG_MAX - 1 <= number <= (INT_MAX if kind == "INT" else LONG_MAX):
            raise ValueError(f"Not a number of type {kind}")
        return self._checked(number)

    def text(self, value: Value) -> str:
        return str(self.none if value is None else value)

    def show(self, value: Value) -> str:
        if value is None and self.none == LONG_MAX:
            return "none"
        if not isinstance(value, int) or value < 0:
            return self.text(value)
        return self.unit.show(value)

    def _checked(self, number: int) -> int | None:
        if number < self.least:
            raise ValueError(f"Value must be at least {self.least}")
        if number > self.most:
            raise ValueError(f"Value must be no more than {self.most}")
        return None if number == self.none else number

    def _show_bound(self, bound: int) -> str:
        return str(bound) if bound <= 0 else self.unit.show(bound)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A fraction in [0, 1]."""

    @property
    def allowed(self) -> str:
        return "number, 0 to 1"

    def read(self, raw: object) -> Value:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ValueError("not a number")
        return self.read_kafka(str(raw))

    def read_kafka(self, text: str) -> Value:
        try:
            ratio = float(text)
        except ValueError:
            raise ValueError("Not a number of type DOUBLE") from None
        if not ratio >= 0:  # also not-a-number
            raise ValueError("Value must be at least 0")
        if ratio > 1:
            raise ValueError("Value must be no more than 1")
        return ratio

    def text(self, value: Value) -> str:
        return str(value)

    show = text


@dataclass(frozen=True, slots=True)
class Price:
    """An amount of money, in whatever currency: a number of 0 or more."""

    @property
    def allowed(self) -> str:
        return "number, 0 or more"

    def read(self, raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ValueError("not a number")
        try:
            price = float(raw)
        except ValueError:
            raise ValueError("not a number") from None
        if not 0 <= price < math.inf:
            raise ValueError("must be 0 or more")
        return price

    def show(self, value: Value) -> str:
        """Without an exponent: prices are small."""
        return f"{value:.12f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Switch:
    """true or false."""

    @property
    def allowed(self) -> str:
        return "true or false"

    def read(self, raw: object) -> Value:
        if isinstance(raw, bool):
            return raw
        return self.read_kafka(str(raw))

    def read_kafka(self, text: str) -> Value:
        lowered = text.strip().lower()
        if lowered not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return lowered == "true"

    def text(self, value: Value) -> str:
        return "true" if value else "false"

    show = text


@dataclass(frozen=True, slots=True)
class Choice:
    """One word out of several."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.words)

    def read(self, raw: object) -> Value:
        return self.read_kafka(str(raw))

    def read_kafka(self, text: str) -> Value:
        if text not in self.words:
            raise ValueError(f"String must be one of: {', '.join(self.words)}")
        return text

    def text(self, value: Value) -> str:
        return str(value)

    show = text


@dataclass(frozen=True, slots=True)
class Words:
    """A set of words, written with commas, shown in the order of *words*; a TOML list is fine too."""

    words: tuple[str, ...]
    none: bool = False
    """Whether it may be empty."""

    @property
    def allowed(self) -> str:
        return "any of " + ", ".join(self.words) + ", with commas" + (", or nothing" if self.none else "")

    def read(self, raw: object) -> Value:
        return self.read_kafka(",".join(map(str, raw)) if isinstance(raw, list | frozenset) else str(raw))

    def read_kafka(self, text: str) -> Value:
        found = frozenset(word.strip() for word in text.split(",") if word.strip())
        if not found <= set(self.words) or not (found or self.none):
            raise ValueError(f"String must be one of: {', '.join(sorted(self.words))}")
        return found

    def text(self, value: Value) -> str:
        return ",".join(word for word in self.words if isinstance(value, frozenset) and word in value)

    show = text


@dataclass(frozen=True, slots=True)
class Text:
    """Anything; kept as it is."""

    @property
    def allowed(self) -> str:
        return "text"

    def read(self, raw: object) -> Value:
        if not isinstance(raw, str):
            raise ValueError("not a text: put it in quotes")
        return raw

    def read_kafka(self, text: str) -> Value:
        return text

    def text(self, value: Value) -> str:
        return str(value)

    show = text
