"""What verbs show: progress and words on stderr, results on stdout."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2))


def stderr() -> Console:
    return Console(stderr=True)


@contextmanager
def byte_bars() -> Iterator[Progress]:
    """Bars over bytes, drawn only on a terminal; gone when done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    console = stderr()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bars:
        yield bars


@contextmanager
def verb_progress(verb: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A bar fed with the progress lines of `copy` and `evict`."""
    with byte_bars() as bars:
        task = bars.add_task(verb, total=None, detail="")

        def update(facts: Mapping[str, Any]) -> None:
            detail = f"{facts['segments_done']}/{facts['segments']} segments {facts['detail']}"
            bars.update(task, completed=facts["bytes_done"], total=facts["bytes"], detail=detail)

        yield update


def age(duration_ms: int | None) -> str:
    """Two largest units: 93784000 -> 1d 2h."""
    if duration_ms is None:
        return "-"
    left = max(duration_ms, 0) // 1000
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if left >= seconds or (unit == "s" and not parts):
            parts.append(f"{left // seconds}{unit}")
            left %= seconds
    return " ".join(parts[:2])


def money(amount: float) -> str:
    """Cents, and of less than a cent so much that something is seen."""
    return f"{amount:,.2f}" if amount >= 0.01 or not amount else f"{amount:.6f}"


def size(size_bytes: int | None) -> str:
    """Three digits and a unit: 1536 -> 1.5 KiB."""
    if size_bytes is None:
        return "-"
    amount, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
