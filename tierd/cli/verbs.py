"""The report that `copy`, `evict` and `keys rotate` end with."""

import click

from tierd.cli.client import Reply
from tierd.cli.screen import print_json, size


def report(done: str, reply: Reply, *, as_json: bool) -> None:
    """Result: {outcome, detail, segments, bytes, left: [{topic, partition, reason, detail}],
    planned: [{topic, partition, start, stop, segments, bytes}]}."""
    result = reply.result
    if as_json:
        print_json(result)
        return
    for row in result["planned"]:
        what = f"{row['segments']} segments, {size(row['bytes'])}"
        click.echo(f"{row['topic']}-{row['partition']}: offsets {row['start']} to {row['stop'] - 1}: {what}")
    click.echo(f"{done}: {result['segments']} segments, {size(result['bytes'])}")
    if reply.exit and result["detail"]:
        click.echo(f"{result['outcome']}: {result['detail']}", err=True)
    for row in result["left"]:
        click.echo(f"left: {row['topic']}-{row['partition']}: {row['reason']}: {row['detail']}", err=True)
