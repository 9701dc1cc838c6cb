"""Whose limits there are: users, client ids, pairs of both, and the defaults of each; which of them counts for whom."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"


class Key(StrEnum):
    """What is limited. Kafka's names, also in the registry."""

    PRODUCED = "producer_byte_rate"
    """Bytes in a second."""
    FETCHED = "consumer_byte_rate"
    REQUESTS = "request_percentage"
    """Of the time of one thread."""
    MUTATIONS = "controller_mutation_rate"
    """Partitions made or removed in a second."""


_WHOLE_NUMBERS: Final = frozenset({Key.PRODUCED, Key.FETCHED})

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) by type; the name None stands for all who have no limit of their own."""
Limits = Mapping[Entity, Mapping[str, float]]


def text_of(entity: Entity) -> str:
    return json.dumps(dict(entity), sort_keys=True, ensure_ascii=False)


def entity_of(text: str) -> Entity:
    return tuple(sorted(json.loads(text).items()))


def entity_problem(entity: Entity) -> str | None:
    """Why there can be no limit for it, in Kafka's words."""
    types = [kind for kind, _ in entity]
    if not types:
        return "Invalid empty client quota entity"
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID):
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
        if types.count(kind) > 1:
            return f"Invalid client quota entity, duplicate entity entry {kind}"
    return None


def value_problem(key: str, value: float) -> str | None:
    if key not in list(Key):
        return f"Invalid configuration key {key}"
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    if value > 2**63 - 1:
        return f"Proposed value for {key} is too large for a LONG."
    if key in _WHOLE_NUMBERS and value % 1.0 > 1e-6:
        return f"{key} cannot be a fractional value."
    return None


@dataclass(frozen=True, slots=True)
class Limit:
    """What counts for a client. Who share *whose* share the limit."""

    per_s: float
    whose: tuple[str | None, str | None]
    """User and client id; None: whichever."""


def limit_of(limits: Limits, key: Key, user: str, client_id: str) -> Limit | None:
    """The most special one: of the pair, of the user, of the client id, each before its defaults."""
    both = user, client_id
    order: tuple[tuple[Entity, tuple[str | None, str | None]], ...] = (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), (user, None)),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), (user, None)),
        (((CLIENT_ID, client_id),), (None, client_id)),
        (((CLIENT_ID, None),), (None, client_id)),
    )
    for entity, whose in order:
        found = limits.get(entity, {}).get(key)
        if found is not None:
            return Limit(found, whose)
    return None
