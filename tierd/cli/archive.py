"""`tierd archive`: a bucket served as it is, read-only, to Kafka clients; no log is kept here."""

from pathlib import Path

import click

from tierd.cli.serve import run
from tierd.config.load import Options, load
from tierd.config.model import ARCHIVE


@click.command("archive")
@click.option("-c", "--config", metavar="FILE", type=click.Path(path_type=Path), help="tierd.toml.")
@click.option("--remote", metavar="URL", help="The bucket: s3://BUCKET/PREFIX/ or file:DIR.")
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="State directory: offsets of groups, what was read, the control socket.",
)
@click.option("--listen", metavar="HOST:PORT", help="Where Kafka clients connect; port 0 takes a free one.")
@click.option("--advertise", metavar="HOST:PORT", help="What clients are told to connect to, when that differs.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
def archive(
    config: Path | None,
    remote: str | None,
    state: Path | None,
    listen: str | None,
    advertise: str | None,
    sets: tuple[str, ...],
) -> int:
    """Serve a bucket that tierd or Kafka with Aiven's plugin has written, until SIGTERM.

    Nothing is ever written to the bucket, and nobody's claim on it is touched: its owner may go on writing.
    Prints `tierd ready on HOST:PORT` on stdout when it answers clients.
    """
    given = Options(
        config=config, state=state, listen=listen, advertise=advertise, remote=remote, mode=ARCHIVE, sets=sets
    )
    return run(load(given, need_data=True))
