"""`tierd dump PATH...`: print the files of a data directory, entry by entry."""

from collections.abc import Iterator
from pathlib import Path

import click

from tierd.storage.dump import Line, as_json, as_text, dump_file, files_under


@click.command("dump")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "json_lines", is_flag=True, help="One JSON object a line.")
@click.option("--records", is_flag=True, help="Also the records inside the batches of a .log.")
@click.pass_context
def dump(context: click.Context, paths: tuple[Path, ...], json_lines: bool, records: bool) -> None:
    """Print log, index, snapshot, checkpoint and metadata files; of a directory, all files below it.

    Works on any directory that Kafka or tierd wrote, running or not; nothing is changed. Exit code 1 when a file
    is damaged: what is good of it is printed, then a line `problem` says where it ends and why.
    """
    damaged = False
    for path in (file for start in paths for file in files_under(start)):
        if not json_lines:
            click.echo(f"# {path}")
        for line in _lines(path, records):
            damaged |= line.is_problem
            click.echo(as_json(path, line) if json_lines else as_text(line))
    context.exit(1 if damaged else 0)


def _lines(path: Path, records: bool) -> Iterator[Line]:
    try:
        yield from dump_file(path, records=records)
    except OSError as error:
        # A running broker removes files while they are listed; the rest is still worth printing.
        yield Line("problem", {"position": 0, "reason": error.strerror or str(error)})
