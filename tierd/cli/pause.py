"""`tierd pause`: asks a running daemon to copy nothing until `tierd resume`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tierd.cli.client import ask
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.screen import print_json, size


@click.command("pause")
@place_options
@click.option("--why", default="", metavar="TEXT", help="Shown in status while it lasts.")
@dry_run_option
@json_option
def pause(
    config: Path | None, data: tuple[Path, ...], state: Path | None, why: str, dry_run: bool, as_json: bool
) -> int:
    """Copy nothing to the bucket until `tierd resume`, whatever is started again meanwhile.

    Copies under way are given up, and begun anew then. Reads from the bucket, retention, evictions and the small
    objects that say what is there go on. Producers go on as long as the disk has room.
    """
    socket = settings_at(config, data, state).control_socket
    reply = ask(socket, "pause", why=why, since_ms=time.time_ns() // 1_000_000, dry_run=dry_run)
    if as_json:
        print_json(reply.result)
    else:
        click.echo(_said(reply.result, dry_run=dry_run))
    return reply.exit


def _said(result: Mapping[str, Any], *, dry_run: bool) -> str:
    """What was done, and how much waits."""
    done = ("would be paused" if dry_run else "paused") if result["changed"] else "paused already"
    under_way = f", {result['under_way']} copies under way" if result["under_way"] else ""
    return f"{done}: {result['segments']} closed segments to be copied, {size(result['bytes'])}{under_way}"
