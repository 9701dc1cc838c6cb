"""`tierd gaps`: offsets that the bucket has lost, and that somebody accepts that they are."""

import getpass
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tierd.cli.arguments import Offsets, Partition
from tierd.cli.client import Reply, ask
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.screen import print_json


@click.group("gaps")
def gaps() -> None:
    """Offsets that the bucket has lost: which they are, and that somebody accepts it."""


@gaps.command("list")
@place_options
@json_option
def list_(config: Path | None, data: tuple[Path, ...], state: Path | None, as_json: bool) -> int:
    """Show what is lost, accepted or not."""
    reply = ask(settings_at(config, data, state).control_socket, "gaps")
    _show(reply, as_json=as_json)
    return reply.exit


@gaps.command("accept")
@click.argument("partition", metavar="TOPIC-PARTITION", type=Partition())
@place_options
@click.option("--offsets", metavar="FIRST-LAST", type=Offsets(), help="Only these; by default all that is lost there.")
@click.option("--why", metavar="TEXT", required=True, help="What has happened; kept in the bucket.")
@click.option("--who", metavar="NAME", help="Who accepts it; by default you on this host.")
@dry_run_option
@json_option
def accept(
    partition: tuple[str, int],
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    offsets: tuple[int, int] | None,
    why: str,
    who: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Accept that offsets are lost: `tierd verify` is green there, nothing waits for them any more.

    Readers go on behind them. What the disk still has is copied again by itself and cannot be accepted. What is left of
    the objects stays in the bucket.
    """
    if not why.strip():
        raise click.UsageError("--why takes a reason")
    reply = ask(
        settings_at(config, data, state).control_socket,
        "accept_gap",
        topic=partition[0],
        partition=partition[1],
        start=offsets[0] if offsets else None,
        stop=offsets[1] if offsets else None,
        why=why,
        who=who or _me(),
        dry_run=dry_run,
    )
    _show(reply, as_json=as_json)
    return reply.exit


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, in a container say
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _show(reply: Reply, *, as_json: bool) -> None:
    """Result: [{topic, partition, start, stop, accepted, why, who, accepted_ms}]; ends are exclusive."""
    if as_json:
        print_json(reply.result)
        return
    for row in reply.result:
        what = f"{row['topic']}-{row['partition']}: offsets {row['start']} to {row['stop'] - 1}: "
        click.echo(what + (f"accepted by {row['who']}{_when(row)}: {row['why']}" if row["accepted"] else row["why"]))


def _when(row: dict[str, Any]) -> str:
    ms = row["accepted_ms"]
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime(", %Y-%m-%d %H:%M UTC")
