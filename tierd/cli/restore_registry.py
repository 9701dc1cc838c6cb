"""What a tierd that is started on a restored directory has to know of its topics: their rows in its registry."""

from collections.abc import Mapping
from pathlib import Path

import click

from tierd.broker.registry import Registry, TopicRow
from tierd.config.topic_rules import TopicConfigError, check_overrides
from tierd.tiering.restore.journal import Journal
from tierd.tiering.restore.plan import Plan


def register(path: Path, plan: Plan, begun: Journal, groups: TopicRow | None) -> None:
    """Ids and settings, where a tierd looks for them; of a bucket that tierd did not write nobody knows any settings,
    and nothing goes until somebody says so. *groups*: where their offsets are, if there are any."""
    registry = Registry.open(path)
    try:
        known = {row.name for row in registry.topics()}
        for one in (one.topic for one in plan.topics if one.topic.name not in known):
            registry.add(
                TopicRow(
                    id=begun.new_id(one.topic_id),
                    name=one.name,
                    partitions=len(one.partitions),
                    created_ms=one.created_ms,
                    config=_config(one.name, one.config),
                    adopted=not plan.by_tierd,
                )
            )
        if groups is not None and groups.name not in known:
            registry.add(groups)
    finally:
        registry.close()


def _config(topic: str, config: Mapping[str, str]) -> dict[str, str]:
    """Without what a later tierd has set and this one does not know."""
    known: dict[str, str] = {}
    for name, text in config.items():
        try:
            known |= check_overrides({name: text})
        except TopicConfigError as error:
            click.echo(f"topic {topic}: a setting is not taken: {error}", err=True)
    return known
