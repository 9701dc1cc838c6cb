"""Options by which every verb finds a daemon and its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tierd.config.load import Options, load
from tierd.config.model import Settings

Verb = Callable[..., Any]


def place_options(verb: Verb) -> Verb:
    """--data, --state and -c; the verb gets them as `data`, `state` and `config`."""
    path = click.Path(path_type=Path)
    for option in (
        click.option("--state", metavar="DIR", type=path, help="State directory; by default <data>.tierd."),
        click.option("--data", metavar="DIR", type=path, multiple=True, help="Data directory; may be repeated."),
        click.option("-c", "--config", metavar="FILE", type=path, help="tierd.toml."),
    ):
        verb = option(verb)
    return verb


json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done, with bytes.")


def settings_at(config: Path | None, data: tuple[Path, ...], state: Path | None) -> Settings:
    """Raises SettingsError when no place is named."""
    return load(Options(config=config, data=data, state=state))
