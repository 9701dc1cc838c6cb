"""`tierd status`: where each partition's data lies, from a running daemon or from its files."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tierd.cli.client import NotRunning, ask
from tierd.cli.offline import offline_status
from tierd.cli.places import json_option, place_options, settings_at
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
    table = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:7]:
        column.justify = "right"
    for row in document["partitions"]:
        table.add_row(*_cells(row))
    # a pipe has no width: no line may be cut there
    console = Console()
    console.print(table) if console.is_terminal else Console(width=500).print(table, soft_wrap=True)
    for line in _notes(document):
        click.echo(line)


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    """What no column has room for."""
    for problem in document.get("problems") or ():
        yield f"{problem['where']}: {problem['detail']}"
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
