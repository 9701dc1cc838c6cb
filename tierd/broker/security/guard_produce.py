"""Guards of Produce, inside its handler: it has a short way for requests that look like earlier ones."""

from collections.abc import Mapping

from tierd.base.ids import TopicPartition
from tierd.broker.operations import Operation
from tierd.broker.security.acls import Kind
from tierd.broker.security.asking import Asking, Rights
from tierd.wire.errors import ErrorCode
from tierd.wire.produce import ProduceRequest
from tierd.wire.produce_shape import ProduceShape


def may_write(rights: Rights, shape: ProduceShape) -> bool:
    """Whether all that a request of this shape asks for is allowed."""
    if not rights.may_write(shape.topic):
        return False
    name = shape.transactional_id
    return name is None or rights.may(Operation.WRITE, Kind.TRANSACTIONAL_ID, name)


def denials(asking: Asking, request: ProduceRequest) -> Mapping[TopicPartition, ErrorCode]:
    """What its sender may not write. Who may not use the transactional id may write nothing."""
    name = request.transactional_id
    if name is not None and not asking.transaction(Operation.WRITE, name):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return {TopicPartition(topic, index): code for topic, rows in request.topics for index, _ in rows}
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied = {topic for topic, _ in request.topics if not asking.writes(topic)}
    rows = ((topic, index) for topic, rows in request.topics if topic in denied for index, _ in rows)
    return {TopicPartition(topic, index): code for topic, index in rows}


def without(request: ProduceRequest, denied: Mapping[TopicPartition, ErrorCode]) -> ProduceRequest:
    """The request without what is denied, for those who act on all that it names."""
    if not denied:
        return request
    left = [
        (topic, [row for row in rows if TopicPartition(topic, row[0]) not in denied]) for topic, rows in request.topics
    ]
    return request._replace(topics=left)
