"""`tierd plan`: what tiering will cost, before it is switched on; for tierd's data directories, or any Kafka's."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from tierd.base.errors import Usage
from tierd.cli.arguments import Bytes
from tierd.cli.places import json_option
from tierd.cli.screen import money, print_json, size
from tierd.config.load import Options, load
from tierd.config.model import Settings
from tierd.config.resolve import LOCAL_ONLY_TOPICS
from tierd.config.state_files import REGISTRY
from tierd.config.topic import MIB
from tierd.storage import names
from tierd.tiering.forecast import Assumed, Found, forecast

_BESIDE = (names.Suffix.INDEX, names.Suffix.TIME_INDEX, names.Suffix.TXN_INDEX, names.Suffix.SNAPSHOT)


@click.command("plan")
@click.option(
    "--data", metavar="DIR", type=click.Path(path_type=Path), multiple=True, help="Data directory, of tierd or Kafka."
)
@click.option(
    "--state", metavar="DIR", type=click.Path(path_type=Path), help="State directory; by default <data>.tierd."
)
@click.option("-c", "--config", metavar="FILE", type=click.Path(path_type=Path), help="tierd.toml.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
@click.option("--rate", metavar="SIZE", type=Bytes(1), default=100 * MIB, help="Bytes uploaded a second; 100MiB.")
@click.option("--per-day", metavar="SIZE", type=Bytes(), help="Bytes appended a day; by default as it was.")
@click.option("--read-per-day", metavar="SIZE", type=Bytes(), default=0, help="Bytes read from the bucket a day; 0.")
@json_option
def plan(
    data: tuple[Path, ...],
    state: Path | None,
    config: Path | None,
    sets: tuple[str, ...],
    rate: int,
    per_day: int | None,
    read_per_day: int,
    as_json: bool,
) -> int:
    """Show what copying all closed segments to a bucket takes, and what it costs a month from then on.

    The directories are only read; no bucket is asked. Prices are those of the settings (prices.*).
    """
    settings = load(Options(config=config, data=data, state=state, sets=sets))
    found = list(_found(settings))
    if not found:
        raise Usage(f"{', '.join(map(str, settings.data_dirs)) or 'nowhere'}: there is no partition to copy")
    assumed = Assumed(rate_bytes_s=rate, bytes_per_day=per_day, read_per_day=read_per_day)
    document = forecast(settings.prices, settings.remote, found, assumed)
    if as_json:
        print_json(document)
    else:
        for line in _lines(document):
            click.echo(line)
    return 0


def _found(settings: Settings) -> Iterator[Found]:
    """Partitions that would be tiered."""
    from tierd.cli.offline import check_there, data_dirs_of, partitions_of, registered

    check_there(data_dirs_of(settings))
    topics, _ = registered(settings.state_dir / REGISTRY)
    known = {row.name: row for row in topics}
    layers = replace(settings.topic_defaults, tiering=True)
    for path in data_dirs_of(settings):
        partitions, error = partitions_of(path)
        if error is not None:
            raise error
        for tp, local in partitions.items():
            row = known.get(tp.topic)
            adopted = row is None or row.adopted
            limits = layers.resolve(tp.topic, row.config if row else {}, adopted=adopted)
            if tp.topic in LOCAL_ONLY_TOPICS or not limits.remote_storage_enable:
                continue
            *closed, active = local.segments
            yield Found(
                topic=tp.topic,
                closed=tuple((one.size_bytes, one.append_ms) for one in closed),
                index_bytes=sum(_beside(one.path, one.base) for one in closed),
                active_bytes=active.size_bytes,
                settings=limits,
                adopted=adopted,
            )


def _beside(log: Path, base: int) -> int:
    """Bytes of the files that go with a segment."""
    files = (log.with_name(names.segment_file(base, suffix)) for suffix in _BESIDE)
    return sum(file.stat().st_size for file in files if file.exists())


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    currency = document["currency"]
    yield f"money in {currency}, storage class {document['storage_class']}, nothing compressed"
    for topic in document["topics"]:
        upload = topic["upload"]
        yield (
            f"{topic['topic']}: {topic['partitions']} partitions, {topic['segments']} closed segments,"
            f" {size(topic['stored_bytes'])}: {sum(upload['requests'].values()):,} requests, {money(upload['cost'])};"
            f" {_coming(topic)}"
        )
    upload = document["upload"]
    yield (
        f"first upload: {upload['segments']} segments, {size(upload['bytes'])},"
        f" {sum(upload['requests'].values()):,} requests: {money(upload['cost'])};"
        f" {timedelta(seconds=upload['seconds'])} at {size(document['rate_bytes_s'])} a second"
    )
    for month in document["months"]:
        yield (
            f"month {month['month']}: {size(month['stored_bytes'])} stored: {money(month['storage_cost'])},"
            f" requests {money(month['requests_cost'])}, reads {money(month['egress_cost'])}:"
            f" {money(month['cost'])} {currency}"
        )


def _coming(topic: Mapping[str, Any]) -> str:
    if topic["bytes_per_day"] is None:
        return "how much comes is not known: say --per-day"
    return (
        f"{size(topic['bytes_per_day'])} a day, {topic['segments_per_month']:,} segments a month,"
        f" {sum(topic['per_month']['requests'].values()):,} requests: {money(topic['per_month']['cost'])}"
    )
