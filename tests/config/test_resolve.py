"""Which value wins, what is capped, and what conflicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.config.resolve import InForce, Source, TopicDefaults
from tierd.config.topic import DAY_MS, TopicSettings
from tierd.config.topic_rules import TopicConfigError

PLAIN = TopicDefaults(tiering=True)
SMALL, BIGGER, BIG, LARGE, HUGE = ("1048576", "2097152", "3145728", "4194304", "5242880")


def test_the_strongest_layer_wins() -> None:
    everything = TopicDefaults(
        tiering=True,
        defaults={"segment.bytes": SMALL},
        set_overrides={"segment.bytes": BIGGER},
        topics={"t": {"segment.bytes": LARGE}},
    )
    assert PLAIN.resolve("t").segment_bytes == 1 << 30
    assert TopicDefaults(tiering=True, defaults={"segment.bytes": SMALL}).resolve("t").segment_bytes == int(SMALL)
    assert everything.resolve("u").segment_bytes == int(BIGGER)
    assert everything.resolve("t").segment_bytes == int(LARGE)
    assert everything.resolve("t", {"segment.bytes": HUGE}).segment_bytes == int(HUGE)


def test_an_adopted_partition_keeps_everything_unless_the_file_or_a_client_says_otherwise() -> None:
    layers = TopicDefaults(
        tiering=True,
        defaults={"retention.ms": "1000"},
        set_overrides={"retention.ms": "2000", "segment.ms": "5"},
        topics={"known": {"retention.ms": "3000"}},
    )
    adopted = layers.resolve("t", adopted=True)
    assert adopted.retention_ms is None
    assert adopted.retention_bytes is None
    assert adopted.local_retention_ms is None
    assert adopted.local_retention_bytes is None
    assert adopted.segment_ms is None
    assert adopted.tierd_archive_max_age_ms is None
    assert adopted.remote_storage_enable
    assert not adopted.compacted
    assert layers.resolve("known", adopted=True).retention_ms == 3000
    assert layers.resolve("t", {"retention.ms": "4000"}, adopted=True).retention_ms == 4000


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_stay_compacted_and_local(topic: str, adopted: bool) -> None:
    layers = TopicDefaults(
        tiering=True, defaults={"cleanup.policy": "delete", "retention.ms": "1"}, topics={topic: {"retention.ms": "7"}}
    )
    settings = layers.resolve(topic, {"remote.storage.enable": "true"}, adopted=adopted)
    assert settings.compacted
    assert not settings.deletes
    assert not settings.remote_storage_enable
    assert settings.retention_ms == 7
    with pytest.raises(TopicConfigError, match="never tiered"):
        layers.check(topic, {"remote.storage.enable": "true"})


def test_without_a_bucket_nothing_is_tiered_and_asking_for_it_is_refused() -> None:
    local = TopicDefaults(tiering=False)
    assert not local.resolve("t").remote_storage_enable
    with pytest.raises(TopicConfigError, match="without a bucket"):
        local.check("t", {"remote.storage.enable": "true"})
    assert local.check("t", {"remote.storage.enable": "false"}) == {"remote.storage.enable": "false"}


@pytest.mark.parametrize(
    ("defaults", "created", "local"),
    [
        ({}, {}, DAY_MS),
        ({}, {"retention.ms": "1000"}, 1000),  # built in, capped
        ({"local.retention.ms": "5000"}, {"retention.ms": "1000"}, 1000),  # a default for the topic, capped
        ({"local.retention.ms": "-1"}, {"retention.ms": "1000"}, 1000),
        ({}, {"local.retention.ms": "-2", "retention.ms": "1000"}, 1000),
        ({}, {"local.retention.ms": "-2"}, None),
        ({}, {"local.retention.ms": "-1"}, None),
        ({}, {"local.retention.ms": "500", "retention.ms": "1000"}, 500),
    ],
)
def test_a_local_limit_is_capped_at_the_total(
    defaults: dict[str, str], created: dict[str, str], local: int | None
) -> None:
    layers = TopicDefaults(tiering=True, defaults=defaults)
    assert layers.check("t", created) == created
    assert layers.resolve("t", created).local_retention_ms == local


@pytest.mark.parametrize(
    ("defaults", "created"),
    [
        ({}, {"local.retention.ms": "2000", "retention.ms": "1000"}),
        ({}, {"local.retention.bytes": "-1", "retention.bytes": "1000"}),
        ({"retention.ms": "1000"}, {"local.retention.ms": "2000"}),
    ],
)
def test_explicit_limits_that_contradict_are_refused(defaults: dict[str, str], created: dict[str, str]) -> None:
    with pytest.raises(TopicConfigError, match="must not be more than"):
        TopicDefaults(tiering=True, defaults=defaults).check("t", created)


def test_every_value_in_force_has_its_source() -> None:
    layers = TopicDefaults(tiering=False, set_overrides={"segment.bytes": SMALL})
    found = {one.name: one for one in layers.in_force("t", {"retention.ms": "1000", "compression.zstd.level": "7"})}
    assert found["segment.bytes"] == InForce("segment.bytes", SMALL, Source.SET)
    assert found["retention.ms"] == InForce("retention.ms", "1000", Source.TOPIC)
    assert found["compression.zstd.level"] == InForce("compression.zstd.level", "7", Source.TOPIC)
    assert found["preallocate"] == InForce("preallocate", "false", Source.BUILT_IN)
    assert found["remote.storage.enable"] == InForce("remote.storage.enable", "false", Source.FORCED)


LIMITS = st.sampled_from(["-2", "-1", "0", "1000", "2000"])
LAYER = st.fixed_dictionaries(
    {}, optional={"local.retention.ms": LIMITS, "retention.ms": LIMITS.filter(lambda text: text != "-2")}
)


@given(LAYER, LAYER, LAYER, LAYER, st.booleans())
def test_local_never_outlives_total_whatever_is_set(
    defaults: dict[str, str], sets: dict[str, str], topic: dict[str, str], created: dict[str, str], adopted: bool
) -> None:
    layers = TopicDefaults(tiering=True, defaults=defaults, set_overrides=sets, topics={"t": topic})
    settings: TopicSettings = layers.resolve("t", created, adopted=adopted)
    if settings.retention_ms is not None:
        assert settings.local_retention_ms is not None
        assert settings.local_retention_ms <= settings.retention_ms
    assert settings.local_retention_ms is None or settings.local_retention_ms >= 0
