"""Topics by name, and their names by id."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from tierd.base.ids import NO_ID, Uuid
from tierd.wire.primitives import TopicKey


class HasNameAndId(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> Uuid: ...


Known = TypeVar("Known", bound=HasNameAndId)


class TopicTable(dict[str, Known]):
    """By name. Topics come and go by `table[name] = topic` and `del table[name]` alone."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[bytes, str] = {}
        """By id; a topic whose id nobody knows is not in it."""

    def __setitem__(self, name: str, topic: Known) -> None:
        super().__setitem__(name, topic)
        if topic.id != NO_ID:
            self.names[topic.id.raw] = name

    def __delitem__(self, name: str) -> None:
        self.names.pop(self[name].id.raw, None)
        super().__delitem__(name)


def name_of(key: TopicKey, names: Mapping[bytes, str]) -> str | None:
    """The name that a request means, which says it or the topic's id; None for an id that *names* does not know."""
    return names.get(key) if isinstance(key, bytes) else key
