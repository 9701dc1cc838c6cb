"""Topics by name, and their names by id."""

from typing import Protocol, TypeVar

from tierd.base.ids import NO_ID, Uuid


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
