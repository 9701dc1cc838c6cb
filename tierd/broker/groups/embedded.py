"""What members of the protocol type "consumer" tell each other through the broker: subscription and assignment. Pure.

| field | subscription | assignment |
|---|---|---|
| i16 version | 0 to 3 | 0 to 3 |
| i32 count of | topics (string) | topics (string, i32 count of i32 partitions) |
| user data | nullable bytes, i32 length | the same |
| from version 1 on | what the member reads still, as in an assignment | |
| later versions | more fields, which nobody here needs | |
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tierd.base.errors import TierdError
from tierd.wire.errors import BadFrame
from tierd.wire.primitives import I16, I32, string
from tierd.wire.schema import Input

CONSUMER: Final = "consumer"
"""The protocol type whose members say which topics they read; others (Connect, Streams' own) are left alone."""
_OWNED_FROM: Final = 1
_NEWEST: Final = 3
_NO_BYTES: Final = I32.pack(-1)

Reading = Mapping[str, tuple[int, ...]]
"""Partitions by topic."""


class NotUnderstood(TierdError):
    """A member speaks of its subscription in a way that nobody here knows."""


class Subscription(NamedTuple):
    version: int
    topics: frozenset[str]
    owned: Reading
    """What it reads still; empty where that is not told: before version 1 members give up everything first."""


def read_subscription(raw: bytes) -> Subscription:
    """Raises NotUnderstood."""
    try:
        source = Input(memoryview(raw), 0)
        version = source.i16()
        topics = frozenset(source.string() for _ in range(_count(source)))
        source.take(max(source.i32(), 0))
        owned = _reading(source) if version >= _OWNED_FROM else {}
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame) as error:
        raise NotUnderstood(f"subscription of {len(raw)} bytes: {error}") from error
    return Subscription(version, topics, owned)


def read_assignment(raw: bytes) -> Reading:
    """Nothing at all is an empty one. Raises NotUnderstood."""
    if not raw:
        return {}
    try:
        source = Input(memoryview(raw), I16.size)
        return _reading(source)
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame) as error:
        raise NotUnderstood(f"assignment of {len(raw)} bytes: {error}") from error


def encode_assignment(version: int, places: Iterable[tuple[str, int]]) -> bytes:
    """For a member whose subscription has that version; *places* are topics and partitions."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(topic, []).append(partition)
    rows = [
        b"".join([string(topic), I32.pack(len(partitions)), *map(I32.pack, partitions)])
        for topic, partitions in topics.items()
    ]
    return b"".join([I16.pack(max(0, min(version, _NEWEST))), I32.pack(len(rows)), *rows, _NO_BYTES])


def _reading(source: Input) -> Reading:
    return {source.string(): tuple(source.i32() for _ in range(_count(source))) for _ in range(_count(source))}


def _count(source: Input) -> int:
    return max(source.count(source.i32()), 0)
