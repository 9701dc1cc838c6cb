"""`tierd evict`: asks a running daemon to drop local segments that the bucket has."""

from pathlib import Path

import click

from tierd.cli.client import ask
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.screen import verb_progress
from tierd.cli.verbs import report


@click.command("evict")
@place_options
@dry_run_option
@json_option
def evict(config: Path | None, data: tuple[Path, ...], state: Path | None, dry_run: bool, as_json: bool) -> int:
    """Drop every local segment whose copy is committed, whatever local retention says, and wait for it.

    Segments that are not copied stay; that is no failure. Exit code 5 while the bucket is not claimed.
    """
    socket = settings_at(config, data, state).control_socket
    with verb_progress("evict") as show:
        reply = ask(socket, "evict", on_progress=show, dry_run=dry_run)
    report("would be evicted" if dry_run else "evicted", reply, as_json=as_json)
    return reply.exit
