"""Which topics a group reads, as far as its members say so in a form that is known."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from tierd.broker.groups.machine import Group
from tierd.wire.errors import BadFrame
from tierd.wire.primitives import I32, read_string
from tierd.wire.schema import Input

CONSUMER: Final = "consumer"
"""The protocol type whose members say which topics they read; others (Connect, Streams' own) are left alone."""
_VERSION_BYTES: Final = 2


def reads(group: Group | None, topic: str) -> bool:
    """Whether a member may be reading *topic*: also when a consumer group says it in a form that nobody understands."""
    topics = topics_of(group)
    return topic in topics if topics is not None else group is not None and group.protocol_type == CONSUMER


def topics_of(group: Group | None) -> frozenset[str] | None:
    """The topics of all members together; None when that is not known."""
    if group is None or group.protocol_type != CONSUMER:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    return _union(member.metadata(group.protocol) for member in group.members.values())


def _union(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    try:
        return frozenset(topic for raw in subscriptions for topic in _topics(raw))
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame):
        return None


def _topics(raw: bytes) -> Iterator[str]:
    """ConsumerProtocolSubscription of any version: i16 version, i32 count, names; what follows differs."""
    source = Input(memoryview(raw), _VERSION_BYTES)
    (count,) = I32.unpack(source.take(I32.size))
    for _ in range(source.count(count)):
        topic, source.position = read_string(source.frame, source.position)
        if topic is not None:
            yield topic
