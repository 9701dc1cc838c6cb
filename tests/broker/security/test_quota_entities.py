"""Whose limit counts, in Kafka's order, and who shares one."""

import pytest

from tierd.broker.security.quota_entities import (
    Entity,
    Key,
    Limit,
    entity_of,
    entity_problem,
    limit_of,
    text_of,
    value_problem,
)

PAIR: Entity = (("client-id", "app"), ("user", "alice"))
ORDER: list[tuple[Entity, tuple[str | None, str | None]]] = [
    (PAIR, ("alice", "app")),
    ((("client-id", None), ("user", "alice")), ("alice", "app")),
    ((("user", "alice"),), ("alice", None)),
    ((("client-id", "app"), ("user", None)), ("alice", "app")),
    ((("client-id", None), ("user", None)), ("alice", "app")),
    ((("user", None),), ("alice", None)),
    ((("client-id", "app"),), (None, "app")),
    ((("client-id", None),), (None, "app")),
]


def test_the_most_special_limit_counts() -> None:
    limits = {entity: {Key.PRODUCED.value: float(number)} for number, (entity, _) in enumerate(ORDER)}
    for number, (entity, whose) in enumerate(ORDER):
        assert limit_of(limits, Key.PRODUCED, "alice", "app") == Limit(float(number), whose)
        assert limit_of(limits, Key.FETCHED, "alice", "app") is None
        del limits[entity]
    assert limit_of(limits, Key.PRODUCED, "alice", "app") is None


def test_a_limit_of_another_kind_does_not_hide_one() -> None:
    limits = {PAIR: {Key.FETCHED.value: 1.0}, ORDER[-1][0]: {Key.PRODUCED.value: 2.0}}
    assert limit_of(limits, Key.PRODUCED, "alice", "app") == Limit(2.0, (None, "app"))


@pytest.mark.parametrize("entity", [entity for entity, _ in ORDER])
def test_an_entity_survives_as_text(entity: Entity) -> None:
    assert entity_of(text_of(entity)) == entity
    assert entity_problem(entity) is None


@pytest.mark.parametrize(
    "entity", [(), (("group", "x"),), (("user", ""),), (("user", "a"), ("user", "b")), (("ip", "127.0.0.1"),)]
)
def test_what_has_no_limits(entity: Entity) -> None:
    assert entity_problem(entity) is not None


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("producer_byte_rate", 1.0, True),
        ("producer_byte_rate", 1.5, False),
        ("producer_byte_rate", 0.0, False),
        ("consumer_byte_rate", -1.0, False),
        ("consumer_byte_rate", 1e30, False),
        ("request_percentage", 0.5, True),
        ("request_percentage", float("nan"), False),
        ("controller_mutation_rate", 0.1, True),
        ("connection_creation_rate", 1.0, False),
    ],
)
def test_values(key: str, value: float, good: bool) -> None:
    assert (value_problem(key, value) is None) is good
