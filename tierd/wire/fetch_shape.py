"""The shape of a consumer's requests: all but correlation id, session and offset repeats, so it is parsed once.

A request of the common form (flexible version, one partition of one topic) is recognised by its constant bytes, and
its answer made from those that were made before. Everything else takes the usual way (`wire.fetch`). Saves most of the
Python per request; tests/wire and tests/broker compare both ways.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tierd.wire.api import API, ApiKey, is_flexible
from tierd.wire.fetch import Aborted, FetchRequest, aborted_rows
from tierd.wire.header import LENGTH_BYTES, RequestHeader
from tierd.wire.primitives import read_compact_topic, read_topic_id, uvarint

TAIL: Final = b"\0\0\0"
"""What follows the records: no tags of the partition, the topic and the answer."""
_SESSION_AT: Final = 17  # in the body: replica, max wait, min bytes, max bytes, isolation
_REPLICA_BYTES: Final = 4
_REPLICA_UNTIL: Final = 14
_SESSION_BYTES: Final = 8
_LONGEST: Final = 1024  # of a request: it is kept as long as its connection, and its sender chooses the names
_ONE: Final = uvarint(2)  # a compact count of one
_INDEX_AND_EPOCH: Final = 8


class Asked(NamedTuple):
    """What one request says beside its shape."""

    correlation_id: int
    session_id: int
    session_epoch: int
    offset: int


class FetchShape:
    """One partition of one topic as one client asks for it. A connection keeps the last one."""

    __slots__ = ("_answer", "_constant", "_fields", "_head", "_length", "_rest_bytes", "request", "topic", "want")

    def __init__(self, frame: memoryview, session_at: int, offset_at: int, topic: bytes, request: FetchRequest) -> None:
        between, behind = offset_at - session_at - _SESSION_BYTES, len(frame) - offset_at - 8
        self._fields = struct.Struct(f">4si{session_at - 8}sii{between}sq{behind}s")
        self._length = len(frame)
        start, _, begin, _, _, middle, _, end = self._fields.unpack(frame)
        self._constant = (start, begin, middle, end)
        self.request = request
        """The request that was decoded first; only its session and offset were its own."""
        self.topic, (self.want,) = request.topics[0]
        self._head = _ONE + topic + _ONE
        # Length, correlation id, no tags, throttle, error, session, topic; partition, error and three offsets.
        self._answer = struct.Struct(f">iiBihi{len(self._head)}sihqqq")
        self._rest_bytes = self._answer.size - LENGTH_BYTES + len(TAIL)

    def match(self, frame: memoryview) -> Asked | None:
        """What *frame* asks; None when the usual way must decide."""
        if len(frame) != self._length:
            return None
        start, correlation, begin, session, epoch, middle, offset, end = self._fields.unpack(frame)
        if (start, begin, middle, end) != self._constant:
            return None
        return tuple.__new__(Asked, (correlation, session, epoch, offset))

    def answer(
        self,
        asked: Asked,
        session_id: int,
        high_watermark: int,
        last_stable: int,
        log_start: int,
        aborted: Sequence[Aborted] | None,
        records_length: int,
    ) -> bytes:
        """What goes before the records, which `TAIL` follows."""
        rest = aborted_rows(aborted) + uvarint(records_length + 1)
        size = self._rest_bytes + len(rest) + records_length
        row = (self.want[0], 0, high_watermark, last_stable, log_start)
        return self._answer.pack(size, asked[0], 0, 0, 0, session_id, self._head, *row) + rest


def learn(frame: memoryview, header: RequestHeader, position: int, request: FetchRequest) -> FetchShape | None:
    """The shape of a request whose body begins at *position* and that was decoded the usual way; None when it is not
    of the common form."""
    if not is_flexible(ApiKey.FETCH, header.version) or len(frame) > _LONGEST:
        return None
    topics = request.topics
    if len(topics) != 1 or len(topics[0][1]) != 1 or request.forgotten:
        return None
    session_at = position + _SESSION_AT - (0 if header.version <= _REPLICA_UNTIL else _REPLICA_BYTES)
    topic_at = session_at + _SESSION_BYTES + 1
    read_topic = read_topic_id if header.version >= API[ApiKey.FETCH].topic_ids_from else read_compact_topic
    _, partitions_at = read_topic(frame, topic_at)
    if frame[topic_at - 1] != 2 or frame[partitions_at] != 2:
        return None  # Named twice, or a count in more bytes than it needs.
    topic = bytes(frame[topic_at:partitions_at])
    return FetchShape(frame, session_at, partitions_at + 1 + _INDEX_AND_EPOCH, topic, request)
