"""How status and sweep say that the bucket refuses a delete."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tierd.cli.screen import size


def refused_line(one: Mapping[str, Any]) -> str:
    """*one* as in the JSON of both."""
    what = f"{one['where']}: delete refused: {one['objects']}, {size(one['bytes'])}"
    return f"{what}: {one['why']}{locked(one['until_ms'])}; tried again {_when(one['again_ms'])}"


def locked(until_ms: int | None) -> str:
    return "" if until_ms is None else f", locked until {_when(until_ms)}"


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
