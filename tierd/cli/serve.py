"""`tierd serve`: settings, log lines, then the daemon until it ends."""

import logging
from pathlib import Path

import click

from tierd.base import logs
from tierd.cli.places import place_options
from tierd.config.explain import cautions, explain
from tierd.config.load import Options, load
from tierd.config.model import ARCHIVE, OWN, Settings

log = logging.getLogger(__name__)


@click.command("serve")
@place_options
@click.option("--listen", metavar="HOST:PORT", help="Where Kafka clients connect; port 0 takes a free one.")
@click.option("--advertise", metavar="HOST:PORT", help="What clients are told to connect to, when that differs.")
@click.option("--remote", metavar="URL", help="The bucket: s3://BUCKET/PREFIX/ or file:DIR.")
@click.option(
    "--lost",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="This data directory is gone for good: its partitions begin again from what the bucket has, or empty.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Take the archive from the data directory that has claimed it. Local records outside of it are set aside.",
)
@click.option(
    "--recover",
    is_flag=True,
    help="The host that wrote the archive is lost: go on from the bucket alone, with an empty data directory.",
)
@click.option("--mode", type=click.Choice((OWN, ARCHIVE)), help="archive: as `tierd archive`.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
def serve(
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    listen: str | None,
    advertise: str | None,
    remote: str | None,
    lost: tuple[Path, ...],
    take_over: bool,
    recover: bool,
    mode: str | None,
    sets: tuple[str, ...],
) -> int:
    """Run the daemon until SIGTERM; a second SIGTERM ends it at once.

    Prints `tierd ready on HOST:PORT` on stdout when it answers clients.
    """
    given = Options(
        config=config, data=data, state=state, listen=listen, advertise=advertise, remote=remote, mode=mode, sets=sets
    )
    settings = load(given, need_data=True)
    if take_over and settings.remote.url is None:
        raise click.UsageError("--take-over goes with a bucket: --remote URL")
    if recover and settings.remote.url is None:
        raise click.UsageError("--recover goes with a bucket: --remote URL")
    if recover and lost:
        raise click.UsageError("--recover is for when all is lost, --lost DIR for one data directory of several")
    if settings.is_archive and (take_over or recover or lost):
        raise click.UsageError("an archive is only read: it takes nothing over and has lost nothing")
    return run(settings, take_over=take_over, recover=recover, lost=lost)


def run(settings: Settings, *, take_over: bool = False, recover: bool = False, lost: tuple[Path, ...] = ()) -> int:
    """Say what the settings mean, then serve until it ends; the exit code."""
    logs.to_stderr(settings.log_level)
    for line in explain(settings):
        log.info("%s", line)
    for line in cautions(settings):
        log.warning("%s", line)
    from tierd import daemon  # heavy: everything that runs

    return daemon.run(settings, take_over=take_over, recover=recover, lost=[path.absolute() for path in lost])
