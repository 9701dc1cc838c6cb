"""`tierd config check|show`: what is wrong with the settings, and what is in force."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from tierd.base.errors import StartRefused
from tierd.broker.sasl.mechanisms import tokens_of
from tierd.broker.tls.contexts import TlsSide
from tierd.cli.places import json_option, place_options
from tierd.cli.screen import print_json
from tierd.config.explain import cautions
from tierd.config.listeners import Endpoint
from tierd.config.load import Options, SettingsError, load
from tierd.config.model import Settings, Where, daemon_settings
from tierd.config.places import Secret
from tierd.config.problem import Problem
from tierd.config.section import Section
from tierd.config.topic_rules import BY_NAME
from tierd.remote.keyring import load_ring

_SETS = click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")


@click.group("config")
def config() -> None:
    """Check or show the settings."""


@config.command("check")
@place_options
@_SETS
@json_option
def check(config: Path | None, data: tuple[Path, ...], state: Path | None, sets: tuple[str, ...], as_json: bool) -> int:
    """Say all that is wrong with the settings, each with its path, value and allowed range. Exit code 2 then.

    What is allowed and hardly ever meant is said, too; that changes no exit code.
    """
    try:
        settings = load(Options(config=config, data=data, state=state, sets=sets), need_data=True)
        files = list(_bad_files(settings))
        if files:
            raise SettingsError(files)
    except SettingsError as error:
        if as_json:
            rows = [{"path": one.path, "value": one.given, "reason": one.reason} for one in error.problems]
            print_json({"problems": rows, "cautions": []})
            return 2
        raise
    strange = cautions(settings)
    if as_json:
        print_json({"problems": [], "cautions": strange})
        return 0
    for line in strange:
        click.echo(f"caution: {line}", err=True)
    click.echo("the settings are right")
    return 0


def _bad_files(settings: Settings) -> Iterator[Problem]:
    """What cannot be used of the files that settings name: of listeners, and keys."""
    for name, endpoint in settings.endpoints.items():
        place = f"listeners.{name}" if name in settings.listeners else "listener"
        try:
            if endpoint.speaks_tls:
                TlsSide(endpoint.tls)
            if endpoint.asks_sasl:
                tokens_of(endpoint.sasl)
        except StartRefused as error:
            yield Problem(place, None, str(error))
    try:
        load_ring(settings.remote.encryption.key_files)
    except StartRefused as error:
        yield Problem("remote.encryption.key.files", None, str(error))


@config.command("show")
@place_options
@_SETS
@click.option("--effective", is_flag=True, help="Also what is not set, with its built-in value.")
@click.option("--topic", metavar="NAME", help="The topic's settings as the file and --set make them.")
@json_option
def show(
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    sets: tuple[str, ...],
    effective: bool,
    topic: str | None,
    as_json: bool,
) -> int:
    """Show the settings: those that were set, or with --effective all. Secrets are never shown.

    What clients set when they created a topic is not in it.
    """
    settings = load(Options(config=config, data=data, state=state, sets=sets))
    rows = [*_daemon_rows(settings, effective), *_topic_rows(settings, topic or "", effective)]
    if not topic:
        rows += [row for name in sorted(settings.topics) for row in _file_rows(settings, name)]
    if as_json:
        print_json({row.path: row.value for row in rows})
        return 0
    width = max((len(row.path) for row in rows), default=0)
    for row in rows:
        click.echo(f"{row.path:{width}} = {row.shown}{f'   # {row.note}' if row.note else ''}")
    return 0


@dataclass(frozen=True, slots=True)
class Row:
    path: str
    shown: str
    """For people."""
    value: int | float | bool | str | None
    """For programs: numbers are bytes or milliseconds; null is not set, and no limit where Kafka has no -1 for it."""
    note: str


def _daemon_rows(settings: Settings, effective: bool) -> Iterator[Row]:
    for where in daemon_settings():
        yield from _daemon_row(where, settings, where.setting.path, effective)
    for name, endpoint in settings.listeners.items():
        for where in daemon_settings(Endpoint):
            path = f"listeners.{name}.{where.setting.path.removeprefix('listener.')}"
            yield from _daemon_row(where, endpoint, path, effective)


def _daemon_row(where: Where, section: Section, path: str, effective: bool) -> Iterator[Row]:
    value: object = section
    for attribute in where.attributes:
        value = getattr(value, attribute)
    is_default = not where.required and value == where.default
    if effective or not is_default:
        kind = where.setting.kind
        hidden = isinstance(kind, Secret) and value is not None
        shown = "(secret)" if hidden else "not set" if value is None else kind.show(value)
        plain = value if isinstance(value, int | float) else None if value is None else shown
        yield Row(path, shown, plain, "built in" if is_default else "")


def _topic_rows(settings: Settings, topic: str, effective: bool) -> Iterator[Row]:
    above = f'topics."{topic}"' if topic else "defaults"
    for one in settings.topic_defaults.in_force(topic):
        if effective or one.source != "built in":
            yield _topic_row(f"{above}.{one.name}", one.name, one.text, one.source.value)


def _file_rows(settings: Settings, topic: str) -> Iterator[Row]:
    for name, text in settings.topics[topic].items():
        yield _topic_row(f'topics."{topic}".{name}', name, text, "file [topics]")


def _topic_row(path: str, name: str, text: str, note: str) -> Row:
    kind = BY_NAME[name].kind
    value = kind.read_kafka(text)
    plain = -1 if value is None and text == "-1" else value
    return Row(path, kind.show(value), kind.text(value) if isinstance(plain, frozenset) else plain, note)
