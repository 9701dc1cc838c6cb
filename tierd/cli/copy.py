"""`tierd copy`: asks a running daemon to copy to the bucket now."""

import math
from pathlib import Path

import click

from tierd.cli.client import ask
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.screen import verb_progress
from tierd.cli.verbs import report


@click.command("copy")
@place_options
@click.option("--wait", is_flag=True, help="Until it is done or only pinned segments are left.")
@click.option("--timeout", "timeout_s", metavar="S", type=click.FloatRange(min=0), help="With --wait: no longer.")
@click.option("--roll", is_flag=True, help="Close active segments first, so that they are copied too.")
@dry_run_option
@json_option
def copy(
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    wait: bool,
    timeout_s: float | None,
    roll: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Copy to the bucket all that may be copied now.

    Without --wait it is queued, and the verb ends. Exit code 3 when something stays that may not be copied yet;
    it is named, with the reason. With --dry-run nothing is rolled or copied: it says what would be.
    """
    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout goes with --wait")
    if timeout_s is not None and not math.isfinite(timeout_s):
        raise click.UsageError("--timeout takes a number of seconds")
    socket = settings_at(config, data, state).control_socket
    timeout_ms = None if timeout_s is None else int(timeout_s * 1000)
    with verb_progress("copy") as show:
        reply = ask(socket, "copy", on_progress=show, wait=wait, roll=roll, timeout_ms=timeout_ms, dry_run=dry_run)
    report("would be copied" if dry_run else "copied" if wait else "queued", reply, as_json=as_json)
    return reply.exit
