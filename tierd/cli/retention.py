"""`tierd retention --dry-run`: what retention will let go, when and why; of a daemon, of its files, or of a bucket."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from tierd.base.errors import Usage
from tierd.base.ids import PartitionId, TopicPartition
from tierd.cli.arguments import Duration
from tierd.cli.client import NotRunning, ask
from tierd.cli.places import json_option, place_options
from tierd.cli.screen import print_json, size
from tierd.config.load import Options, load
from tierd.config.model import Settings
from tierd.config.state_files import ARCHIVE_DATA
from tierd.config.topic import DAY_MS
from tierd.config.units import show_ms
from tierd.tiering.outlook import Outlook


@click.command("retention")
@place_options
@click.option("--remote", metavar="URL", help="A bucket alone: s3://BUCKET/PREFIX/ or file:DIR. It is only read.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="With --remote: any setting; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Needed: retention itself is the daemon's, as often as it is set to.")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--within", metavar="DURATION", type=Duration(), default=DAY_MS, help="Also what goes later; 1d.")
@json_option
def retention(
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    remote: str | None,
    sets: tuple[str, ...],
    dry_run: bool,
    topic: str | None,
    within: int,
    as_json: bool,
) -> int:
    """Show which segments leave the disk and the bucket, when, and by which limit. Nothing is changed.

    Asks a running daemon; without one its files are looked at. With --remote, and for an archive, the bucket alone:
    what its owner's limits let go, for an archive deletes nothing. Of times to come it knows no appends.
    """
    if not dry_run:
        raise click.UsageError("say --dry-run: the daemon does it, every log.retention.check.interval.ms")
    if remote is not None:
        with TemporaryDirectory(prefix="tierd-") as nowhere:
            options = Options(config=config, state=Path(nowhere), remote=remote, sets=sets)
            document = _of_bucket(load(options), within, topic)
    else:
        document = _of_place(load(Options(config=config, data=data, state=state)), within, topic)
    if as_json:
        print_json(document)
    else:
        _show(document)
    return 0


def _of_place(settings: Settings, within_ms: int, topic: str | None) -> dict[str, Any]:
    if settings.is_archive or (settings.state_dir / ARCHIVE_DATA).is_dir():
        return _of_bucket(settings, within_ms, topic)
    try:
        found: dict[str, Any] = ask(settings.control_socket, "retention", within_ms=within_ms, topic=topic).result
        return found
    except NotRunning:
        if not settings.state_dir.exists() and not any(place.exists() for place in settings.data_dirs):
            raise  # a misspelt place is not an empty one
    from tierd.cli.offline_views import offline, offline_outlooks  # heavy, and needless beside a daemon

    now_ms = _now_ms()
    with offline(settings) as left:
        outlooks = [
            one
            for one in offline_outlooks(left, now_ms=now_ms, within_ms=within_ms)
            if not one.is_empty and topic in (None, one.topic)
        ]
        if topic is not None and not outlooks and all(view.name.topic != topic for view in left.views):
            raise Usage("; ".join([f"there is no topic {topic!r}", *left.unread]))
        trouble = None if left.is_known else "what the bucket has is not known: the state directory has no catalog"
        return _document(outlooks, now_ms, within_ms, trouble=trouble, unread=left.unread)


def _of_bucket(settings: Settings, within_ms: int, topic: str | None) -> dict[str, Any]:
    """Topic settings are those of the bucket; of one that tierd did not write nobody knows any, and nothing goes."""
    from tierd.cli.offline import stored_url
    from tierd.cli.offline_views import remote_only
    from tierd.cli.surveying import survey
    from tierd.tiering import ahead

    url = settings.remote.url or stored_url(settings)
    if url is None:
        raise Usage("say which bucket: --remote URL")
    now_ms, found = _now_ms(), []
    layers = replace(settings.topic_defaults, tiering=True)
    with survey(settings, url) as look:
        topics = look.look().values()
        if topic is not None and all(shown.name != topic for shown in topics):
            raise Usage(f"{url} has no topic {topic!r}")
        for shown in topics:
            for number, one in enumerate(shown.partitions if topic in (None, shown.name) else ()):
                part = PartitionId(shown.topic_id, number)
                limits = layers.resolve(shown.name, shown.config, adopted=not look.has_owner)
                view = remote_only(
                    part, TopicPartition(shown.name, number), limits, log_start=one.log_start, log_end=one.log_end
                )
                look.catalog.know(part, shown.name, limits.tierd_delete_delay_ms)
                found.append(ahead.look(look.catalog, view, (), now_ms=now_ms, within_ms=within_ms))
        trouble = None if look.has_owner else "no tierd wrote this bucket: it has no settings, and nothing goes"
    return _document([one for one in found if not one.is_empty], now_ms, within_ms, trouble=trouble, unread=())


def _document(
    outlooks: Sequence[Outlook], now_ms: int, within_ms: int, *, trouble: str | None, unread: Sequence[str]
) -> dict[str, Any]:
    """As a running daemon's; offsets are exclusive at the end."""
    return {
        "running": False,
        "now_ms": now_ms,
        "within_ms": within_ms,
        "trouble": trouble,
        "unread": list(unread),
        "partitions": [one.document() for one in outlooks],
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _show(document: Mapping[str, Any]) -> None:
    now_ms, partitions = document["now_ms"], document["partitions"]
    if document["trouble"]:
        click.echo(f"nothing goes now: {document['trouble']}")
    for why in document["unread"]:
        click.echo(f"not looked at: {why}", err=True)
    for one in partitions:
        for line in _lines(one, now_ms):
            click.echo(f"{one['topic']}-{one['partition']}: {line}")
    disk, bucket, log = (sum(one[f"{what}_bytes"] for one in partitions) for what in ("local", "remote", "log"))
    ahead = f"now and within {show_ms(document['within_ms'])}" if document["within_ms"] else "now"
    click.echo(
        f"would go {ahead}: from the disk {size(disk)}, from the bucket {size(bucket)};"
        f" from the logs {size(log)}, each byte counted once"
    )


def _lines(one: Mapping[str, Any], now_ms: int) -> Iterator[str]:
    for row in one["rows"]:
        where = "disk" if row["tier"] == "local" else "bucket"
        what = f"offsets {row['start']} to {row['stop'] - 1} leave the {where}, {size(row['bytes'])}"
        yield f"{what}: {row['rule']}, {_when(row['at_ms'], now_ms)}"
    if one["more"]:
        yield f"... and {one['more']} segments more"
    if one["log_start_then"] != one["log_start"]:
        yield f"log start {one['log_start']} moves to {one['log_start_then']}"
    if one["future_segments"]:
        what = f"{one['future_segments']} segments have records from the future"
        yield f"{what}, up to {_when(one['future_ms'], now_ms)}: their last append counts"
    stays = one["stays"]
    if stays is not None and not stays["copied"] and stays["due_ms"] is not None:
        name = f"{one['topic']}-{one['partition']}"
        what = f"offsets {stays['start']} to {stays['stop'] - 1} stay on the disk: they are not in the bucket"
        yield f"{what}, else {stays['rule']} would let them go, {_when(stays['due_ms'], now_ms)} (tierd why {name})"


def _when(at_ms: int | None, now_ms: int) -> str:
    if at_ms is None:
        return "when its owner says so"
    if at_ms <= now_ms:
        return "now"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
