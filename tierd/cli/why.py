"""`tierd why`: the one reason that a segment is not copied, is still on the disk, or is still in the bucket."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tierd.base.errors import Usage
from tierd.base.ids import TopicPartition
from tierd.cli.arguments import Partition
from tierd.cli.client import NotRunning, ask
from tierd.cli.places import json_option, place_options, settings_at
from tierd.cli.screen import print_json, size
from tierd.config.model import Settings

QUESTIONS = {
    "copy": ("are not in the bucket", "all that is there to copy is in the bucket"),
    "local": ("are still on the disk", "nothing is on the disk"),
    "remote": ("are still in the bucket", "nothing is in the bucket"),
}
"""What is said of the segment, and what when there is none."""


@click.command("why")
@click.argument("partition", metavar="TOPIC-PARTITION", type=Partition())
@place_options
@click.option("--local", "question", flag_value="local", help="Why the oldest segment on the disk is still there.")
@click.option("--remote", "question", flag_value="remote", help="Why the oldest in the bucket is not deleted.")
@json_option
def why(
    partition: tuple[str, int],
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    question: str | None,
    as_json: bool,
) -> int:
    """Say why the next segment of a partition is not copied: the reason, the fact behind it, and what to do next.

    With --local why the oldest segment on the disk is still there, with --remote why the oldest in the bucket is.
    """
    question = question or "copy"
    settings = settings_at(config, data, state)
    topic, number = partition
    try:
        answers: Mapping[str, Any] = ask(settings.control_socket, "why", topic=topic, partition=number).result
    except NotRunning:
        if not settings.state_dir.exists() and not any(place.exists() for place in settings.data_dirs):
            raise
        answers = _offline(settings, TopicPartition(topic, number))
    if as_json:
        print_json({"topic": topic, "partition": number, "question": question, "why": answers[question]})
    else:
        _show(f"{topic}-{number}", question, answers[question])
    return 0


def _offline(settings: Settings, name: TopicPartition) -> dict[str, Any]:
    """As a daemon's answer: as far as the files tell."""
    from tierd.cli.offline_views import offline, offline_reasons  # heavy, and needless beside a daemon

    with offline(settings) as left:
        found = offline_reasons(left, name)
    if found is None:
        raise Usage(f"there is no partition {name}")
    return found


def _show(name: str, question: str, found: Mapping[str, Any] | None) -> None:
    what, nothing = QUESTIONS[question]
    if found is None:
        click.echo(f"{name}: {nothing}")
        return
    if found["start"] is not None:
        click.echo(f"{name}: offsets {found['start']} to {found['stop'] - 1} ({size(found['bytes'])}) {what}")
    click.echo(f"reason: {found['reason']}: {found['detail']}")
    click.echo(f"next: {found['next']}")
