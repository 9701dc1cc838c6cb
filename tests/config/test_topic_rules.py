"""The table of topic settings: Kafka's names and words, both ways, and the settings of every recorded topic."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.config.kinds import INT_MAX, LONG_MAX
from tierd.config.topic import TopicSettings
from tierd.config.topic_rules import BY_NAME, RULES, TopicConfigError, TopicRule, check_overrides, to_fields, to_texts


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        # the first two as Kafka 4.3.1 answered them (tests/golden, produce-cases.jsonl)
        ("bogus.key", "1", "Unknown topic config name: bogus.key"),
        ("retention.ms", "-7", "Invalid value -7 for configuration retention.ms: Value must be at least -1"),
        ("segment.bytes", "abc", "Invalid value abc for configuration segment.bytes: Not a number of type INT"),
        ("segment.bytes", "64MiB", "Invalid value 64MiB for configuration segment.bytes: Not a number of type INT"),
        (
            "segment.bytes",
            str(2**31),
            f"Invalid value {2**31} for configuration segment.bytes: Not a number of type INT",
        ),
        ("segment.bytes", "14", "Invalid value 14 for configuration segment.bytes: Value must be at least 1048576"),
        (
            "retention.ms",
            str(2**63),
            f"Invalid value {2**63} for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "cleanup.policy",
            "burn",
            "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
    ],
)
def test_a_client_is_refused_in_kafkas_words(name: str, text: str, message: str) -> None:
    with pytest.raises(TopicConfigError) as refused:
        check_overrides({name: text})
    assert str(refused.value) == message


def test_every_attribute_of_topic_settings_has_its_rule() -> None:
    assert {rule.field for rule in RULES if rule.field} == {field.name for field in fields(TopicSettings)}
    assert [rule.name for rule in RULES if rule.field] == sorted(rule.name for rule in RULES if rule.field)


def test_defaults_go_out_and_come_back() -> None:
    texts = to_texts(TopicSettings())
    assert texts["retention.ms"] == "-1"
    assert texts["segment.bytes"] == str(1 << 30)
    assert texts["flush.ms"] == texts["message.timestamp.before.max.ms"] == str(LONG_MAX)
    assert "internal.segment.bytes" not in texts
    assert TopicSettings(**to_fields(texts)) == TopicSettings()  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_text_of_a_default_is_allowed_and_means_the_default(rule: TopicRule) -> None:
    if rule.default is None and rule.name == "internal.segment.bytes":
        return
    assert rule.kind.read_kafka(rule.kind.text(rule.default)) == rule.default
    assert rule.kind.read(rule.kind.show(rule.default)) == rule.default
    assert rule.doc
    assert rule.kind.allowed


@given(st.sampled_from(RULES), st.text(max_size=30) | st.integers(-(2**70), 2**70).map(str))
def test_any_text_is_taken_or_refused_by_type(rule: TopicRule, text: str) -> None:
    try:
        (stored,) = check_overrides({rule.name: text}).values()
    except TopicConfigError:
        return
    assert check_overrides({rule.name: stored}) == {rule.name: stored}


def test_wire_types_are_kafkas() -> None:
    types = {
        name: BY_NAME[name].wire_type for name in ("preallocate", "segment.bytes", "retention.ms", "cleanup.policy")
    }
    assert types == {"preallocate": 1, "segment.bytes": 3, "retention.ms": 5, "cleanup.policy": 7}
    assert BY_NAME["min.cleanable.dirty.ratio"].wire_type == 6
    assert BY_NAME["compression.type"].wire_type == 2
    assert INT_MAX == 2147483647


def test_the_recorded_topics_settings_are_understood() -> None:
    recorded = json.loads(
        '{"internal.segment.bytes": "8192", "index.interval.bytes": "512", "retention.ms": "-1",'
        ' "segment.index.bytes": "2048", "message.timestamp.type": "LogAppendTime", "compression.type": "lz4",'
        ' "message.timestamp.after.max.ms": "9223372036854775807", "preallocate": "true", "cleanup.policy": "compact",'
        ' "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "315360000000", "file.delete.delay.ms": "100"}'
    )
    settings = TopicSettings(**to_fields(check_overrides(recorded)))  # type: ignore[arg-type]
    assert settings.roll_bytes == 8192
    assert settings.compacted
    assert not settings.deletes
    assert settings.preallocate
