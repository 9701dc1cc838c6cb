"""Which topics a group reads, as far as its members say so in a form that is known."""

from tierd.broker.groups.embedded import CONSUMER, NotUnderstood, read_subscription
from tierd.broker.groups.machine import Group


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
    subscriptions = (member.metadata(group.protocol) for member in group.members.values())
    try:
        return frozenset(topic for raw in subscriptions for topic in read_subscription(raw).topics)
    except NotUnderstood:
        return None
