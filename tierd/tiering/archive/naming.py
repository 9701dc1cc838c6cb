"""Under which names the topics of an archive are served. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from tierd.base.ids import Uuid
from tierd.config.resolve import is_internal


@dataclass(frozen=True, slots=True)
class Claimant:
    """A topic that wants the name it had."""

    topic: str
    topic_id: Uuid
    newest_ms: int
    """When it was made or last written to, whichever is later."""


def names_of(topics: Iterable[Claimant]) -> dict[Uuid, str]:
    """Of several topics that had one name the newest is served under it, the others as `<topic>.<id>`.

    So is one with the name of a broker's own topic: the offsets of this broker's groups are kept there.
    """
    found: dict[Uuid, str] = {}
    taken: set[str] = set()
    for one in sorted(topics, key=lambda one: (-one.newest_ms, one.topic_id)):
        free = one.topic not in taken and not is_internal(one.topic)
        found[one.topic_id] = one.topic if free else f"{one.topic}.{one.topic_id}"
        taken.add(one.topic)
    return found
