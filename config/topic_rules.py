"""Topic settings: one table of Kafka's names, with kind, range, default and meaning; and their texts for clients.

Names, ranges and words of refusal are Kafka's (4.3); defaults are those of `topic.TopicSettings`.
A rule without a field is accepted, kept and shown, but has no effect on a single node.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tierd.base.errors import Usage
from tierd.config.kinds import (
    BYTES,
    INT_MAX,
    LONG_MAX,
    MILLIS,
    Choice,
    Kind,
    Number,
    Ratio,
    Switch,
    Text,
    Value,
    Words,
)
from tierd.config.topic import MIB, TopicSettings

SAME_AS_TOTAL = -2
"""Value of a local limit: the same as the total one (Kafka)."""


class TopicConfigError(Usage):
    """A client's or a file's topic setting is unknown or out of range; INVALID_CONFIG (40) on the wire."""


@dataclass(frozen=True, slots=True)
class TopicRule:
    """One topic setting. `name` is Kafka's, `field` the attribute of TopicSettings (None: accepted without effect)."""

    name: str
    kind: Kind
    doc: str
    field: str | None
    default: Value

    @property
    def wire_type(self) -> int:
        """ConfigType of DescribeConfigs: 1 boolean, 2 string, 3 int, 5 long, 6 double, 7 list."""
        match self.kind:
            case Switch():
                return 1
            case Number(most=most):
                return 3 if most <= INT_MAX else 5
            case Ratio():
                return 6
            case Words():
                return 7
            case _:
                return 2


_DEFAULTS = TopicSettings()


def _rule(name: str, kind: Kind, doc: str) -> TopicRule:
    field = name.replace(".", "_")
    return TopicRule(name, kind, doc, field, getattr(_DEFAULTS, field))


def _inert(name: str, kind: Kind, default: Value, doc: str) -> TopicRule:
    return TopicRule(name, kind, doc + " Accepted and kept; without effect on a single node.", None, default)


_NO_LIMIT_BYTES = Number(-1, unit=BYTES, none=-1)
_NO_LIMIT_MS = Number(-1, unit=MILLIS, none=-1)
_LOCAL_BYTES = Number(SAME_AS_TOTAL, unit=BYTES, none=-1)
_LOCAL_MS = Number(SAME_AS_TOTAL, unit=MILLIS, none=-1)
_FOREVER_MS = Number(1, unit=MILLIS, none=LONG_MAX)

RULES: tuple[TopicRule, ...] = (
    _rule(
        "cleanup.policy",
        Words(("delete", "compact"), none=True),
        "What happens to old data: delete it, compact it by key, or both.",
    ),
    _rule(
        "compression.type",
        Choice(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        "Codec that batches are stored with. This release always stores what the producer chose.",
    ),
    _rule(
        "delete.retention.ms",
        Number(0, unit=MILLIS),
        "How long a tombstone of a compacted topic stays after its first cleaning, and a transaction marker that "
        "nothing refers to any more.",
    ),
    _rule(
        "file.delete.delay.ms",
        Number(0, unit=MILLIS),
        "Time between the renaming of a file to .deleted and its removal.",
    ),
    _rule(
        "flush.messages",
        Number(1, none=LONG_MAX),
        "fsync after this many records; the largest number leaves it to the system.",
    ),
    _rule(
        "flush.ms",
        Number(0, unit=MILLIS, none=LONG_MAX),
        "fsync after this time; the largest number leaves it to the system.",
    ),
    _rule("index.interval.bytes", Number(0, INT_MAX, BYTES), "Bytes of log between two entries of its offset index."),
    _rule(
        "internal.segment.bytes",
        Number(1, INT_MAX, BYTES),
        "segment.bytes without its lower bound; for tests.",
    ),
    _rule(
        "local.retention.bytes",
        _LOCAL_BYTES,
        "Bytes kept on the local disk once copied; -2 means the same as retention.bytes.",
    ),
    _rule(
        "local.retention.ms",
        _LOCAL_MS,
        "Age up to which copied data stays on the local disk; -2 means the same as retention.ms.",
    ),
    _rule(
        "max.compaction.lag.ms",
        _FOREVER_MS,
        "Longest time that a record may stay uncompacted: then its segment is closed and cleaned whatever the ratio.",
    ),
    _rule(
        "max.message.bytes", Number(0, INT_MAX, BYTES), "Largest batch that is accepted, as it comes from the producer."
    ),
    _rule(
        "message.timestamp.after.max.ms",
        Number(0, unit=MILLIS),
        "How far ahead of the clock a record's own timestamp may be.",
    ),
    _rule(
        "message.timestamp.before.max.ms",
        Number(0, unit=MILLIS, none=LONG_MAX),
        "How far behind the clock a record's own timestamp may be.",
    ),
    _rule(
        "message.timestamp.type",
        Choice(("CreateTime", "LogAppendTime")),
        "Whose clock stamps a record: the producer's or the broker's.",
    ),
    _rule(
        "min.cleanable.dirty.ratio",
        Ratio(),
        "Share of uncompacted bytes in closed segments above which a log is cleaned.",
    ),
    _rule(
        "min.compaction.lag.ms",
        Number(0, unit=MILLIS),
        "Shortest time that a record stays uncompacted.",
    ),
    _rule(
        "min.insync.replicas",
        Number(1, INT_MAX),
        "Replicas that must have a batch before acks=all is answered; there is one.",
    ),
    _rule("preallocate", Switch(), "Give a new segment its full size at once."),
    _rule("remote.log.copy.disable", Switch(), "Stop copying to the bucket; what is there stays readable."),
    _rule(
        "remote.log.delete.on.disable",
        Switch(),
        "Delete what the bucket holds when remote.storage.enable is switched off. Kept; nothing switches it yet.",
    ),
    _rule(
        "remote.storage.enable",
        Switch(),
        "Copy closed segments to the bucket. Off for internal topics, and without a bucket.",
    ),
    _rule("retention.bytes", _NO_LIMIT_BYTES, "Bytes kept in both tiers together; older segments are deleted."),
    _rule("retention.ms", _NO_LIMIT_MS, "Age up to which data is kept in any tier; older segments are deleted."),
    _rule(
        "segment.bytes",
        Number(MIB, INT_MAX, BYTES),
        "Size at which a segment is closed. Only closed segments are copied.",
    ),
    _rule("segment.index.bytes", Number(4, INT_MAX, BYTES), "Size of an index file; a full index closes the segment."),
    _rule(
        "segment.jitter.ms",
        Number(0, unit=MILLIS),
        "Random time taken off segment.ms, so that segments do not close all at once.",
    ),
    _rule("segment.ms", _FOREVER_MS, "Age, by record timestamps, at which a segment is closed."),
    _rule(
        "tierd.acks.durability",
        Choice(("cache", "disk")),
        "What acks=all waits for: cache is the page cache, as in Kafka; disk is fsync, before readers see it, too.",
    ),
    _rule(
        "tierd.archive.max.age.ms",
        _NO_LIMIT_MS,
        "Age at which the active segment of a tiered partition is closed so that it can be copied: "
        "what the loss of the host can cost.",
    ),
    _rule(
        "tierd.delete.delay.ms",
        Number(0, unit=MILLIS),
        "Time between the release of data by retention or by deletion of its topic and its removal from the bucket.",
    ),
    _rule(
        "tierd.validate.records",
        Choice(("batch", "full")),
        "batch checks each batch's header, sizes, CRC and codec; full also decodes every record.",
    ),
    _inert("compression.gzip.level", Number(-1, 9), -1, "Level for gzip."),
    _inert("compression.lz4.level", Number(1, 17), 9, "Level for lz4."),
    _inert("compression.zstd.level", Number(-131072, 22), 3, "Level for zstd."),
    _inert("follower.replication.throttled.replicas", Text(), "", "Replicas with throttled replication."),
    _inert("leader.replication.throttled.replicas", Text(), "", "Replicas with throttled replication."),
    _inert("unclean.leader.election.enable", Switch(), False, "Whether a replica that lags may lead."),
)

BY_NAME: Mapping[str, TopicRule] = {rule.name: rule for rule in RULES}


def check_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """A client's settings, checked one by one and in Kafka's own form; what CreateTopics stores.

    Raises TopicConfigError with Kafka's text at the first that is unknown or out of range.
    Conflicts between settings are found by `resolve.TopicDefaults.check`.
    """
    return {name: _checked(name, text) for name, text in overrides.items()}


def _checked(name: str, text: str) -> str:
    rule = BY_NAME.get(name)
    if rule is None:
        raise TopicConfigError(f"Unknown topic config name: {name}")
    try:
        return rule.kind.text(rule.kind.read_kafka(text))
    except ValueError as error:
        raise TopicConfigError(f"Invalid value {text} for configuration {name}: {error}") from error


def to_fields(texts: Mapping[str, str]) -> dict[str, Value]:
    """Checked texts as values for TopicSettings, by field; rules without a field are left out."""
    return {rule.field: rule.kind.read_kafka(texts[rule.name]) for rule in _known(texts) if rule.field is not None}


def to_texts(settings: TopicSettings) -> dict[str, str]:
    """All settings in force in Kafka's own form, by Kafka's name; what DescribeConfigs answers.

    `internal.segment.bytes` is left out while it is not set, as in Kafka.
    """
    return dict(_texts(settings))


def _texts(settings: TopicSettings) -> Iterator[tuple[str, str]]:
    for rule in RULES:
        value = rule.default if rule.field is None else getattr(settings, rule.field)
        if rule.field != "internal_segment_bytes" or value is not None:
            yield rule.name, rule.kind.text(value)


def _known(texts: Mapping[str, str]) -> Iterator[TopicRule]:
    return (BY_NAME[name] for name in texts)
