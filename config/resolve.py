"""Which value of a topic setting wins, and which combinations conflict.

Layers, strongest first: what a client set (CreateTopics, AlterConfigs) > `[topics."x"]` > adopted > `--set` >
`[defaults]` > built in. Each layer maps Kafka's names to checked texts in Kafka's form; only what was set is in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from tierd.config.kinds import LONG_MAX
from tierd.config.topic import MIB, TopicSettings
from tierd.config.topic_rules import (
    BY_NAME,
    RULES,
    SAME_AS_TOTAL,
    TopicConfigError,
    check_overrides,
    to_fields,
    to_texts,
)

COMPACTED_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
LOCAL_ONLY_TOPICS = COMPACTED_INTERNAL_TOPICS | {"__remote_log_metadata", "__cluster_metadata"}

ADOPTED: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "local.retention.bytes": "-1",
        "local.retention.ms": "-1",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.ms": str(LONG_MAX),
        "tierd.archive.max.age.ms": "-1",
    }
)
"""A partition found in a directory that Kafka wrote, without settings: nothing goes, nothing rolls by age."""

_NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})


class Source(StrEnum):
    """Where a value in force comes from; in order of strength."""

    TOPIC = "topic"
    FILE_TOPIC = "file [topics]"
    ADOPTED = "adopted"
    SET = "--set"
    FILE_DEFAULT = "file [defaults]"
    BUILT_IN = "built in"
    FORCED = "forced"


_STRENGTH = {source: rank for rank, source in enumerate(Source)}


@dataclass(frozen=True, slots=True)
class InForce:
    """One setting of one topic: its text in Kafka's form and where it comes from."""

    name: str
    text: str
    source: Source


def is_internal(topic: str) -> bool:
    """Whether Kafka calls the topic internal; such topics stay compacted and local."""
    return topic in COMPACTED_INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """All layers that lie below a client's own settings. `Settings.topic_defaults` makes it."""

    tiering: bool
    """Whether there is a bucket; without one no topic is tiered."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    set_overrides: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def resolve(
        self, topic: str, created_overrides: Mapping[str, str] = _NO_OVERRIDES, *, adopted: bool = False
    ) -> TopicSettings:
        """The settings in force. Never fails on checked texts: what conflicts is capped at the total limit.

        *created_overrides* are what the registry stores (`check_overrides` gave them).
        """
        chosen = self._chosen(topic, created_overrides, adopted)
        values: dict[str, Any] = to_fields({name: text for name, (text, _) in chosen.items()})
        for unit in ("ms", "bytes"):
            local = f"local_retention_{unit}"
            total = values.get(f"retention_{unit}")
            values[local] = _capped(values.get(local, getattr(_BUILT_IN, local)), total)
        return TopicSettings(**values)

    def check(
        self, topic: str, created_overrides: Mapping[str, str] = _NO_OVERRIDES, *, adopted: bool = False
    ) -> dict[str, str]:
        """Check a client's settings as CreateTopics and AlterConfigs must; give them back in Kafka's form.

        Raises TopicConfigError for unknown names, values out of range, and explicit values that conflict.
        """
        overrides = check_overrides(created_overrides)
        for reason in self.conflicts(topic, overrides, adopted=adopted):
            raise TopicConfigError(reason)
        return overrides

    def conflicts(
        self, topic: str, created_overrides: Mapping[str, str] = _NO_OVERRIDES, *, adopted: bool = False
    ) -> Iterator[str]:
        """Why the layers contradict each other, in words. A limit from a layer weaker than the total's is capped."""
        wanted = {**self._asked_for(topic), **created_overrides}.get("remote.storage.enable") == "true"
        if wanted and topic in LOCAL_ONLY_TOPICS:
            yield f"Invalid value true for configuration remote.storage.enable: {topic} is never tiered"
        elif created_overrides.get("remote.storage.enable") == "true" and not self.tiering:
            yield "Invalid value true for configuration remote.storage.enable: tierd runs without a bucket (--remote)"
        chosen = self._chosen(topic, created_overrides, adopted)
        for unit in ("ms", "bytes"):
            yield from _limit_conflict(chosen, f"local.retention.{unit}", f"retention.{unit}")

    def in_force(
        self, topic: str, created_overrides: Mapping[str, str] = _NO_OVERRIDES, *, adopted: bool = False
    ) -> list[InForce]:
        """Every setting of the topic with its source, in the order of the table."""
        chosen = self._chosen(topic, created_overrides, adopted)
        texts = to_texts(self.resolve(topic, created_overrides, adopted=adopted))
        inert = {rule.name for rule in RULES if rule.field is None}
        return [
            InForce(
                name,
                chosen[name][0] if name in chosen and name in inert else text,
                chosen[name][1] if name in chosen else Source.BUILT_IN,
            )
            for name, text in texts.items()
        ]

    def _asked_for(self, topic: str) -> Mapping[str, str]:
        return self.topics.get(topic, _NO_OVERRIDES)

    def _chosen(self, topic: str, created_overrides: Mapping[str, str], adopted: bool) -> dict[str, tuple[str, Source]]:
        layers: list[tuple[Source, Mapping[str, str]]] = [
            (Source.BUILT_IN, _INTERNAL if is_internal(topic) else _NO_OVERRIDES),
            # a default for all topics is not meant for Kafka's own books
            (Source.FILE_DEFAULT, _NO_OVERRIDES if is_internal(topic) else self.defaults),
            (Source.SET, _NO_OVERRIDES if is_internal(topic) else self.set_overrides),
            (Source.ADOPTED, ADOPTED if adopted and not is_internal(topic) else _NO_OVERRIDES),
            (Source.FILE_TOPIC, self._asked_for(topic)),
            (Source.TOPIC, created_overrides),
            (Source.FORCED, self._forced(topic)),
        ]
        return {name: (text, source) for source, layer in layers for name, text in layer.items() if name in BY_NAME}

    def _forced(self, topic: str) -> Mapping[str, str]:
        return _NO_OVERRIDES if self.tiering and topic not in LOCAL_ONLY_TOPICS else {"remote.storage.enable": "false"}


_BUILT_IN = TopicSettings()
_INTERNAL: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "local.retention.ms": "-1",
        "remote.storage.enable": "false",
        "segment.bytes": str(100 * MIB),
    }
)


def _capped(local: int | None, total: int | None) -> int | None:
    """A local limit never above the total one; None is no limit, SAME_AS_TOTAL the total itself."""
    if local == SAME_AS_TOTAL:
        return total
    if local is None or total is None:
        return total if local is None else local
    return min(local, total)


def _limit_conflict(chosen: Mapping[str, tuple[str, Source]], local: str, total: str) -> Iterator[str]:
    if local not in chosen or total not in chosen:
        return
    (local_text, local_source), (total_text, total_source) = chosen[local], chosen[total]
    if _STRENGTH[local_source] > _STRENGTH[total_source]:
        return  # a weaker layer's limit is a default for this topic, and capped
    local_limit, total_limit = int(local_text), int(total_text)
    if total_limit != -1 and (local_limit == -1 or local_limit > total_limit):
        reason = f"Value must not be more than {total} ({total_text})"
        yield f"Invalid value {local_text} for configuration {local}: {reason}"
