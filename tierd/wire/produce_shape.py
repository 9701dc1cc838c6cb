"""The shapes of a producer's requests: all but correlation id, records and their size repeats, so it is parsed once.

A request of the common form (flexible version, one batch for one partition, an answer wanted) is recognised by its
constant bytes, and its answer made from those that were made before. Everything else takes the usual way
(`wire.produce`). Saves a third of the work per request; tests/wire compares both ways.
"""

import struct
from typing import Final

from tierd.wire.api import ApiKey, is_flexible
from tierd.wire.header import RequestHeader
from tierd.wire.primitives import I32, compact_topic, uvarint
from tierd.wire.produce import ProduceRequest

_KEY_END: Final = 4  # api key and version
_BODY: Final = 8  # after the correlation id
_TAIL: Final = b"\0\0\0"  # no tags behind the partition, the topic and the request
_ROW: Final = struct.Struct(">ihqqq")  # index, error, base offset, log append time, log start
_ANSWER_TAIL: Final = b"\1\0\0\0" + b"\0\0\0\0\0"  # no record errors, no message, no tags; not throttled, no tags
_ONE: Final = uvarint(2)  # a compact count of one
_MOST_BITS: Final = 35
_MOST_SHAPES: Final = 64
_MOST_BYTES: Final = 8 * 1024  # of what stands before the records, in all of these: connections may be many
_LONGEST: Final = 1024  # before the records: names may be as long as a request, and are kept as long as the connection


class ProduceShape:
    """One topic, partition, acks, transactional id and version as one client asks for it."""

    __slots__ = ("_head", "_length", "acks", "partition", "topic", "topic_id", "transactional_id")

    def __init__(
        self, topic: str, topic_id: bytes | None, partition: int, acks: int, transactional_id: str | None
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        """By which it is asked for, and which its name had then; None: by its name."""
        self.partition = partition
        self.acks = acks
        self.transactional_id = transactional_id
        self._head = b"\0" + _ONE + compact_topic(topic_id or topic) + _ONE
        self._length = I32.pack(_BODY - _KEY_END + len(self._head) + _ROW.size + len(_ANSWER_TAIL))

    def answer(self, frame: memoryview, base_offset: int, log_append_time_ms: int | None, log_start: int) -> bytes:
        """The framed answer to *frame*, whose batch was accepted."""
        time_ms = -1 if log_append_time_ms is None else log_append_time_ms
        row = _ROW.pack(self.partition, 0, base_offset, time_ms, log_start)
        return b"".join((self._length, frame[_KEY_END:_BODY], self._head, row, _ANSWER_TAIL))


class ProduceShapes:
    """The shapes that one connection has used; bounded."""

    __slots__ = ("_known", "_size_at")

    def __init__(self) -> None:
        self._known: dict[bytes, ProduceShape] = {}
        self._size_at = 0  # where the records' size stands in the shapes learnt last: the same for all of a topic

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """Remember the shape of a request that was decoded the usual way, if it is of the common form."""
        if not is_flexible(ApiKey.PRODUCE, header.version) or request.acks == 0:
            return
        if len(request.topics) != 1 or len(request.topics[0][1]) != 1 or request.unknown:
            return
        topic, [(partition, records)] = request.topics[0]
        if records is None:
            return
        size_at = len(frame) - len(_TAIL) - len(records) - len(uvarint(len(records) + 1))
        if size_at > _LONGEST:
            return
        found = _records(frame, size_at)
        if found is None or len(found) != len(records):
            return
        if size_at != self._size_at or len(self._known) >= min(_MOST_SHAPES, _MOST_BYTES // size_at):
            self._known.clear()
            self._size_at = size_at
        self._known[_key(frame, size_at)] = ProduceShape(
            topic,
            None if request.ids is None else request.ids[topic],
            partition,
            request.acks,
            request.transactional_id,
        )

    def match(self, frame: memoryview) -> tuple[ProduceShape, memoryview] | None:
        """The shape of *frame* and its records, a writable view; None when the usual way must decide."""
        shape = self._known.get(_key(frame, self._size_at))
        if shape is None:
            return None
        records = _records(frame, self._size_at)
        return None if records is None else (shape, records)


def _key(frame: memoryview, size_at: int) -> bytes:
    return b"".join((frame[:_KEY_END], frame[_BODY:size_at]))


def _records(frame: memoryview, at: int) -> memoryview | None:
    """What the size at *at* announces, when exactly that and the tail follow."""
    stop = len(frame) - len(_TAIL)
    if at >= stop or bytes(frame[stop:]) != _TAIL:
        return None
    size = shift = 0
    while shift < _MOST_BITS:
        byte = frame[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return frame[at:stop] if size == stop - at + 1 else None
        shift += 7
    return None
