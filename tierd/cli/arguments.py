"""What arguments of verbs mean: shares, sizes, times, partitions, offsets. A wrong one gets one helpful line."""

import re
from typing import Any

import click

from tierd.config.units import parse_bytes, parse_ms

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})")
_OFFSETS = re.compile(r"(?P<first>[0-9]{1,18})(-(?P<last>[0-9]{1,18}))?")
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


class Partition(click.ParamType[tuple[str, int]]):
    """`orders-0`."""

    name = "partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        match = _PARTITION.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not TOPIC-PARTITION, such as orders-0", param, ctx)
        return match["topic"], int(match["partition"])


class Offsets(click.ParamType[tuple[int, int]]):
    """`100-199`: both are included, as verdicts and status show them; given on half-open."""

    name = "offsets"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        match = _OFFSETS.fullmatch(str(value))
        if match is None or int(match["last"] or match["first"]) < int(match["first"]):
            self.fail(f"{value!r} is not FIRST-LAST, such as 100-199", param, ctx)
        return int(match["first"]), int(match["last"] or match["first"]) + 1


class Percent(click.ParamType[float]):
    """`12.5%` or `12.5`."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            percent = float(str(value).removesuffix("%"))
        except ValueError:
            percent = 0.0
        if not 0.01 <= percent <= 100:
            self.fail(f"{value!r} is not a share from 0.01% to 100%", param, ctx)
        return percent


class Bytes(click.ParamType[int]):
    """`10GiB` or a number of bytes, *least* or more."""

    name = "bytes"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            size = parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if size < self._least:
            self.fail(f"{value} is less than {self._least}", param, ctx)
        return size


class Duration(click.ParamType[int]):
    """`7d` or a number of milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            found = parse_ms(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found < 0:
            self.fail(f"{value} is in the past", param, ctx)
        return found


class Month(click.ParamType[str]):
    """`2026-12`."""

    name = "month"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _MONTH.fullmatch(str(value)) is None:
            self.fail(f"{value!r} is not a month, such as 2026-12", param, ctx)
        return str(value)
