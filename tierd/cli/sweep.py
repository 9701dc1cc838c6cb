"""`tierd sweep`: asks a running daemon to take out of the bucket what nobody needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tierd.cli.client import ask
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.refused import locked, refused_line
from tierd.cli.screen import print_json, size


@click.command("sweep")
@place_options
@click.option("--purge-versions", is_flag=True, help="In a versioned bucket: old versions go for good, too.")
@dry_run_option
@json_option
def sweep(
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    purge_versions: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete what nobody needs from the bucket: copies that were never committed, uploads that nobody goes on with,
    what is left of deleted topics.

    Only what has been there for a day, and only what can be explained; the rest is named. The daemon does the same once
    a day. Deletes that the bucket has refused before are tried again at once. Exit code 5 while the bucket is not
    claimed, 1 when the bucket refuses a delete.
    """
    socket = settings_at(config, data, state).control_socket
    reply = ask(socket, "sweep", dry_run=dry_run, purge=purge_versions)
    if as_json:
        print_json(reply.result)
    else:
        _show(reply.result, dry_run=dry_run, purge=purge_versions)
    return reply.exit


def _show(result: Mapping[str, Any], *, dry_run: bool, purge: bool) -> None:
    for row in result["leftovers"]:
        what = f"{row['kind']}: {row['keys'][0]}"
        more = f" and {len(row['keys']) - 1} more" if len(row["keys"]) > 1 else ""
        refused = (
            f"; the bucket refuses to delete it: {row['refused']}{locked(row['until_ms'])}" if row["refused"] else ""
        )
        click.echo(f"{what}{more}, {size(row['bytes'])}: {row['why']}{refused}")
    hidden = result["found"] - len(result["leftovers"])
    if hidden:
        click.echo(f"... and {hidden} more")
    done = "would be deleted" if dry_run else "deleted"
    click.echo(f"{done}: {result['deleted']} of {result['found']} leftovers, {size(result['bytes'])}")
    if result["unexplained"]:
        click.echo(f"{result['unexplained']} that nobody can explain stay", err=True)
    if result["versions"] and not purge:
        what = f"{result['versions']} old versions, {size(result['version_bytes'])}"
        click.echo(f"the bucket keeps {what}, of what was replaced or deleted: --purge-versions takes them away")
    if purge and result["versions"] is None:
        click.echo("the bucket keeps no versions, or does not say so (s3:GetBucketVersioning)")
    for one in result["delete_refused"]:
        click.echo(refused_line(one), err=True)
    if result["detail"]:
        click.echo(f"{result['outcome']}: {result['detail']}", err=True)
