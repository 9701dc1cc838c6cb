"""`tierd resume`: asks a running daemon to go on copying after `tierd pause`."""

from pathlib import Path

import click

from tierd.cli.client import ask
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.screen import print_json, size


@click.command("resume")
@place_options
@dry_run_option
@json_option
def resume(config: Path | None, data: tuple[Path, ...], state: Path | None, dry_run: bool, as_json: bool) -> int:
    """Go on copying to the bucket, oldest segments first."""
    socket = settings_at(config, data, state).control_socket
    reply = ask(socket, "resume", dry_run=dry_run)
    result = reply.result
    if as_json:
        print_json(result)
    else:
        done = ("would be resumed" if dry_run else "resumed") if result["changed"] else "copying was not paused"
        click.echo(f"{done}: {result['segments']} closed segments to be copied, {size(result['bytes'])}")
    return reply.exit
