"""`tierd status`: where each partition's data lies, from a running daemon or from its files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tierd.cli.client import NotRunning, ask
from tierd.cli.offline import offline_status
from tierd.cli.places import json_option, place_options, settings_at
from tierd.cli.refused import refused_line
from tierd.cli.screen import age, print_json, size

COLUMNS = (
    "partition",
    "log start",
    "local start",
    "copied to",
    "end",
    "local",
    "remote",
    "oldest not copied",
    "waiting",
)
_NUMBERS = 7
"""Columns below this one, but for the first, are numbers."""
_WIDEST, _MIN_WORDS = 40, 12


@click.command("status")
@place_options
@json_option
def status(config: Path | None, data: tuple[Path, ...], state: Path | None, as_json: bool) -> int:
    """Show each partition's offsets and bytes in both tiers, and why the next segment is not copied.

    Works whether tierd runs or not. Offsets are exclusive at the end; - and null mean unknown.
    """
    settings = settings_at(config, data, state)
    try:
        document = ask(settings.control_socket, "status").result
    except NotRunning:
        if not settings.state_dir.exists() and not any(place.exists() for place in settings.data_dirs):
            raise  # a misspelt place is not an empty one
        document = offline_status(settings)
    if as_json:
        print_json(document)
    else:
        _show(document)
    return 0


def _show(document: Mapping[str, Any]) -> None:
    running = "running" if document["running"] else "not running"
    click.echo(
        f"tierd {document['version']}, {running}, epoch {_or_dash(document['epoch'])}, "
        f"claim {_or_dash(document['claim'])}"
    )
    if document.get("trouble"):
        click.echo(document["trouble"])
    for place in document.get("directories") or ():
        if place["state"] == "offline":
            click.echo(f"{place['path']} is offline, with {place['partitions']} partitions: {place['reason']}")
    rows = [_cells(row) for row in document["partitions"]]
    console = Console()
    if console.is_terminal:
        console.print(table_of(rows))
    else:
        for line in _lines(rows):
            click.echo(line)
    for line in _notes(document):
        click.echo(line)


def table_of(rows: Sequence[Sequence[str]]) -> Table:
    """As wide as the terminal: the numbers whole, the words around them wrapped."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(COLUMNS):
        words = number in (0, len(COLUMNS) - 1)
        table.add_column(
            name if words else name.replace(" ", "\n"),
            justify="right" if 0 < number < _NUMBERS else "left",
            no_wrap=not words,
            overflow="fold",
            min_width=_MIN_WORDS if words else None,
        )
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """For a pipe, which has no width: nothing is cut, and one very long name does not push all other rows apart."""
    table = [COLUMNS, *rows]
    widths = [min(max(map(len, column)), _WIDEST) for column in zip(*table, strict=True)]
    for row in table:
        cells = zip(row, widths, range(len(COLUMNS)), strict=True)
        yield "  ".join(f"{text:{'>' if 0 < at < _NUMBERS else '<'}{width}}" for text, width, at in cells).rstrip()


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    """What no column has room for."""
    for problem in document.get("problems") or ():
        yield f"{problem['where']}: {problem['detail']}"
    bucket = document.get("bucket") or {"notes": (), "delete_refused": ()}
    yield from map(refused_line, bucket["delete_refused"])
    yield from (f"bucket: {note}" for note in bucket["notes"])
    yield from _cleaning(document["partitions"])
    if document.get("set_aside"):
        yield f"{document['set_aside']} damaged files or parts of them were set aside at this start"


def _cells(row: Mapping[str, Any]) -> list[str]:
    offsets = [_or_dash(row[name]) for name in ("log_start", "local_start", "copied_to", "log_end")]
    waiting = row["waiting"]
    return [
        f"{row['topic']}-{row['partition']}",
        *offsets,
        size(row["local_bytes"]),
        size(row["remote_bytes"]),
        age(row["oldest_uncopied_ms"]),
        f"{waiting['reason']}: {waiting['detail']}" if waiting else "",
    ]


def _cleaning(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """One line about all compacted partitions."""
    found = [(f"{row['topic']}-{row['partition']}", row["compaction"]) for row in rows if row.get("compaction")]
    dirty = [(facts["dirty_bytes"], name, facts["dirty_ratio"]) for name, facts in found if facts["dirty_bytes"]]
    if dirty:
        dirty_bytes, name, ratio = max(dirty)
        yield (
            f"to be cleaned: {len(dirty)} of {len(found)} compacted partitions, most of it {name}'s: "
            f"{size(dirty_bytes)}, {ratio:.0%} of what may be cleaned there"
        )


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
