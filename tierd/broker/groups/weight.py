"""How much memory groups take, roughly and rather too much: what counts against `GroupLimits.memory_bytes`.

The fixed parts are what Python's objects were measured to cost, rounded up.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from tierd.broker.groups.codec import Commit
from tierd.broker.groups.model import Protocols

GROUP_BYTES: Final = 1024
PENDING_BYTES: Final = 256
_MEMBER_BYTES: Final = 640
_STORED_MEMBER_BYTES: Final = 24
"""Lengths and times of a member in the group's record."""
_PROTOCOL_BYTES: Final = 160
_COMMIT_BYTES: Final = 400
_LEAST_COMMIT_BYTES: Final = 41
"""Of the record of an offset, without the group's name."""


class Speaker(Protocol):
    """A member, or somebody who asks to be one."""

    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def protocols(self) -> Protocols: ...


def held_bytes(who: Speaker, member_id: str) -> int:
    """What a member takes in memory, its assignment left out."""
    said = sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in who.protocols)
    return _MEMBER_BYTES + _names(who, member_id) + said


def stored_bytes(who: Speaker, member_id: str) -> int:
    """What a member takes in the group's record, whichever of its protocols is chosen; its assignment left out."""
    return _STORED_MEMBER_BYTES + _names(who, member_id) + max((len(said) for _, said in who.protocols), default=0)


def _names(who: Speaker, member_id: str) -> int:
    return len(member_id) + len(who.instance_id or "") + len(who.client_id) + len(who.client_host)


def commits_bytes(commits: Mapping[tuple[str, int], Commit], places: Iterable[tuple[str, int]]) -> int:
    """What those of *commits* take that are at *places*."""
    return sum(commit_bytes(place[0], commits[place]) for place in places if place in commits)


def least_bytes(group_id: str, count: int) -> int:
    """What the records of so many offsets take at least."""
    return count * (_LEAST_COMMIT_BYTES + len(group_id))


def commit_bytes(topic: str, commit: Commit) -> int:
    return _COMMIT_BYTES + len(topic) + len(commit.metadata)


def offsets_bytes(group_id: str) -> int:
    """What a group takes that only keeps offsets."""
    return _COMMIT_BYTES + len(group_id)
