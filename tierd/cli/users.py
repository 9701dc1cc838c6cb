"""`tierd users add|remove|list`: who may log in with a password, while a daemon runs and while none does.

Passwords come from a file or stdin: what stands on a command line can be read by everybody. Only what SCRAM makes of
them is kept, and goes to the daemon.
"""

import base64
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click

from tierd.base.errors import Usage
from tierd.broker.registry import Registry
from tierd.broker.sasl.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Credential, Mechanism, new_credential
from tierd.broker.sasl.users import Key, change, credentials
from tierd.cli.client import NotRunning, ask
from tierd.cli.places import json_option, place_options, settings_at
from tierd.cli.screen import print_json
from tierd.config.model import Settings
from tierd.config.state_files import REGISTRY
from tierd.storage.disk import PosixDisk
from tierd.storage.folders import make_folder

_MECHANISMS = [one.text for one in Mechanism]
_dry_run = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


@click.group("users")
def users() -> None:
    """Manage users and their passwords (SCRAM; PLAIN checks the same). Kafka's own tools do it, too."""


@users.command("add")
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(_MECHANISMS),
    multiple=True,
    help="May be repeated; by default both.",
)
@click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=LEAST_ITERATIONS,
    show_default=True,
    help="How much work each guess is.",
)
@click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Its first line is the password; by default it is asked for, or read from stdin.",
)
@place_options
@_dry_run
@json_option
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Give user NAME a password, or another one."""
    if not name or name.strip() != name:
        raise Usage("a user's name must not be empty, nor begin or end with blanks")
    settings = settings_at(config, data, state)
    wanted = [Mechanism.named(one) for one in dict.fromkeys(mechanisms or _MECHANISMS)]
    password = _password(password_file)
    kept = {(name, one): new_credential(one, password, iterations) for one in wanted}
    there = _all(settings)
    if not dry_run:
        _change(settings, kept, ())
    changed = any(key in there for key in kept)
    return _said("changed" if changed else "added", list(kept), dry_run=dry_run, as_json=as_json)


@users.command("remove")
@click.argument("name")
@click.option("--mechanism", type=click.Choice(_MECHANISMS), help="Only its password for this; by default all.")
@place_options
@_dry_run
@json_option
def remove(
    name: str,
    mechanism: str | None,
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Take user NAME's password away; who has none left is closed at once. Exit code 1 when there is none."""
    settings = settings_at(config, data, state)
    meant = [key for key in _all(settings) if key[0] == name and mechanism in (None, key[1].text)]
    if meant and not dry_run:
        _change(settings, {}, meant)
    _said("removed", meant, dry_run=dry_run, as_json=as_json)
    if not meant:
        click.echo(f"there is no user {name}{f' with {mechanism}' if mechanism else ''}", err=True)
    return 0 if meant else 1


@users.command("list")
@place_options
@json_option
def listed(config: Path | None, data: tuple[Path, ...], state: Path | None, as_json: bool) -> int:
    """Show who has a password, and for which mechanisms."""
    there = _all(settings_at(config, data, state))
    if as_json:
        print_json([{"user": user, "mechanism": one.text, "iterations": times} for (user, one), times in there.items()])
        return 0
    width = max((len(user) for user, _ in there), default=0)
    for (user, mechanism), iterations in there.items():
        click.echo(f"{user:{width}}  {mechanism.text}  {iterations} iterations")
    return 0


def _password(file: Path | None) -> str:
    if file is not None:
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"{file}: the password cannot be read: {error}") from error
    elif sys.stdin.isatty():
        lines = [str(click.prompt("password", hide_input=True, confirmation_prompt=True, err=True))]
    else:
        lines = sys.stdin.readline().splitlines()
    if not lines or not lines[0]:
        raise Usage("the password is empty: its file or stdin must begin with it")
    return lines[0]


def _said(done: str, keys: Collection[Key], *, dry_run: bool, as_json: bool) -> int:
    if as_json:
        rows = [{"user": user, "mechanism": mechanism.text} for user, mechanism in keys]
        print_json({"done": None if dry_run else done, "would": done if dry_run else None, "credentials": rows})
    else:
        for user, mechanism in keys:
            click.echo(f"{'would be ' if dry_run else ''}{done}: {user} {mechanism.text}")
    return 0


def _all(settings: Settings) -> dict[Key, int]:
    """Iterations of each password, sorted."""
    try:
        rows: list[Any] = ask(settings.control_socket, "users").result
    except NotRunning:
        if not (settings.state_dir / REGISTRY).exists():
            return {}
        registry = Registry.open(settings.state_dir / REGISTRY)
        try:
            return {key: one.iterations for key, one in sorted(credentials(registry).items())}
        finally:
            registry.close()
    return {(user, Mechanism(mechanism)): iterations for user, mechanism, iterations in rows}


def _change(settings: Settings, kept: Mapping[Key, Credential], dropped: Collection[Key]) -> None:
    rows = [
        [user, int(mechanism), one.iterations, *map(_packed, (one.salt, one.stored_key, one.server_key))]
        for (user, mechanism), one in kept.items()
    ]
    try:
        ask(settings.control_socket, "change users", kept=rows, dropped=[[user, int(one)] for user, one in dropped])
    except NotRunning:
        make_folder(PosixDisk(), settings.state_dir)
        registry = Registry.open(settings.state_dir / REGISTRY)
        try:
            change(registry, kept, dropped)
        finally:
            registry.close()


def _packed(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
