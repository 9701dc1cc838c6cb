"""Produce, versions 0-13, by hand: records stay where the socket put them.

Versions 0-2 decode so that they can be refused; in 13 topics go by id. The bytes are compared with kio's and
with recorded frames in tests/wire.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tierd.wire.api import API, ApiKey
from tierd.wire.errors import BadFrame, ErrorCode
from tierd.wire.header import LENGTH_BYTES, response_header
from tierd.wire.primitives import (
    I32,
    TopicKey,
    as_name,
    at_end,
    compact_string,
    compact_topic,
    named,
    read_compact_count,
    read_compact_string,
    read_compact_topic,
    read_count,
    read_string,
    read_topic_id,
    read_uvarint,
    rows_left,
    skip_tags,
    string,
    uvarint,
)

_KEY: Final = int(ApiKey.PRODUCE)
_FLEXIBLE: Final = API[ApiKey.PRODUCE].flexible_from
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX_SIZE: Final = struct.Struct(">ii")
_PARTITION: Final = struct.Struct(">ihqqq")  # index, error, base offset, log append time, log start (v5+)
_PARTITION_V2: Final = struct.Struct(">ihqq")
_PARTITION_V0: Final = struct.Struct(">ihq")
_NO_ERRORS_LEGACY: Final = b"\0\0\0\0\xff\xff"  # no record errors, null message
_NO_ERRORS_COMPACT: Final = b"\1\0\0"  # the same, no tags
_TOPIC_IDS_FROM: Final = API[ApiKey.PRODUCE].topic_ids_from
_NO_NAMES: Final[Mapping[bytes, str]] = {}
_Keyed = list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]
MOST_ROWS: Final = 20_000
"""Topics and partitions in one request; more than Java's producer gets into its largest by default."""


class ProduceRequest(NamedTuple):
    """One request. Tuples instead of dataclasses: made per request on the hot path."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[tuple[int, memoryview | None]]]]
    """(topic, [(partition, records)]); records is a writable view into the frame, None when null."""
    ids: dict[str, bytes] | None = None
    """By name, in a version whose topics go by id."""
    unknown: Sequence[tuple[bytes, list[int]]] = ()
    """(topic id, partitions) that nobody knows a name for."""


class RecordError(NamedTuple):
    """What is wrong with one record of a refused batch."""

    batch_index: int
    message: str | None


class PartitionProduced(NamedTuple):
    """The answer for one partition; None offsets and times become -1."""

    partition: int
    error: int = 0
    base_offset: int | None = None
    log_append_time_ms: int | None = None
    log_start: int | None = None
    record_errors: Sequence[RecordError] = ()
    message: str | None = None


def repeats(request: ProduceRequest) -> bool:
    """Whether a partition is named twice. Kafka then keeps the last batch and drops the others without a word."""
    topics = request.topics
    if len(topics) == 1 and len(topics[0][1]) == 1:
        return False
    named_once = {(name, index) for name, rows in topics for index, _ in rows}
    return len(named_once) < sum(len(rows) for _, rows in topics)


def decode_produce(
    frame: memoryview, position: int, version: int, names: Mapping[bytes, str] = _NO_NAMES
) -> ProduceRequest:
    """Decode the body that begins at *position*; *names* are those of the topics, by id. Raises BadFrame."""
    try:
        if version >= _FLEXIBLE:
            return _decode_flexible(frame, position, names if version >= _TOPIC_IDS_FROM else None)
        return _decode_legacy(frame, position, version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadFrame(f"Produce v{version}: {error}") from error


def _decode_legacy(frame: memoryview, position: int, version: int) -> ProduceRequest:
    transactional_id = None
    if version >= 3:
        transactional_id, position = read_string(frame, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_count(frame, position + _ACKS_TIMEOUT.size)
    topics: list[tuple[str, list[tuple[int, memoryview | None]]]] = []
    left = MOST_ROWS
    for _ in range(topic_count):
        name, position = read_string(frame, position)
        count, position = read_count(frame, position)
        left = rows_left(left, count)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(frame, position)
            position += _INDEX_SIZE.size
            if size < 0:
                partitions.append((index, None))
                continue
            partitions.append((index, _records(frame, position, size)))
            position += size
        topics.append((named(name, "topic name"), partitions))
    at_end(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(frame: memoryview, position: int, names: Mapping[bytes, str] | None) -> ProduceRequest:
    unpack = I32.unpack_from
    read_topic = read_compact_topic if names is None else read_topic_id
    transactional_id, position = read_compact_string(frame, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_compact_count(frame, position + _ACKS_TIMEOUT.size)
    topics: _Keyed = []
    left = MOST_ROWS
    for _ in range(topic_count):
        topic, position = read_topic(frame, position)
        count, position = read_compact_count(frame, position)
        left = rows_left(left, count)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            (index,) = unpack(frame, position)
            size, position = read_uvarint(frame, position + 4)
            records = None
            if size:
                stop = position + size - 1
                records = frame[position:stop]
                position = stop
            # Slices are short in silence, but then this byte is not there.
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
            partitions.append((index, records))
        position = skip_tags(frame, position)
        topics.append((topic, partitions))
    at_end(frame, skip_tags(frame, position))
    if names is None:
        return ProduceRequest(transactional_id, acks, timeout_ms, topics)  # type: ignore[arg-type]
    return _named(ProduceRequest(transactional_id, acks, timeout_ms, []), topics, names)


def _named(request: ProduceRequest, topics: _Keyed, names: Mapping[bytes, str]) -> ProduceRequest:
    """*request* for *topics* by id, with the names that they have here."""
    ids: dict[str, bytes] = {}
    unknown = []
    for topic_id, rows in topics:
        assert isinstance(topic_id, bytes)
        name = names.get(topic_id)
        if name is None:
            unknown.append((topic_id, [index for index, _ in rows]))
        else:
            ids[name] = topic_id
            request.topics.append((name, rows))
    return request._replace(ids=ids, unknown=unknown)


def keyed(
    request: ProduceRequest, topics: Sequence[tuple[str, list[PartitionProduced]]]
) -> Sequence[tuple[TopicKey, list[PartitionProduced]]]:
    """The answers to a *request* by id, with those for ids that are unknown."""
    assert request.ids is not None
    found: list[tuple[TopicKey, list[PartitionProduced]]] = [(request.ids[name], rows) for name, rows in topics]
    for topic_id, indexes in request.unknown:
        found.append((topic_id, [PartitionProduced(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes]))
    return found


def _records(frame: memoryview, position: int, size: int) -> memoryview:
    records = frame[position : position + size]
    if len(records) != size:
        raise BadFrame(f"byte {position}: {size} bytes of records, only {len(records)} left")
    return records


def encode_produce_response(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[PartitionProduced]]],
    throttle_ms: int = 0,
) -> bytes:
    """The whole frame, length word included."""
    out = bytearray(LENGTH_BYTES) + response_header(_KEY, version, correlation_id)
    if version >= _FLEXIBLE:
        out += uvarint(len(topics) + 1)
        for topic, partitions in topics:
            out += compact_topic(topic) + uvarint(len(partitions) + 1)
            for partition in partitions:
                out += _encode_flexible(partition)
            out += b"\0"
        out += I32.pack(throttle_ms) + b"\0"
    else:
        out += I32.pack(len(topics))
        for topic, partitions in topics:
            out += string(as_name(topic)) + I32.pack(len(partitions))
            for partition in partitions:
                out += _encode_legacy(partition, version)
        if version >= 1:
            out += I32.pack(throttle_ms)
    I32.pack_into(out, 0, len(out) - LENGTH_BYTES)
    return bytes(out)


def _encode_flexible(done: PartitionProduced) -> bytes:
    index, error, base, time_ms, start, errors, message = done
    fixed = _PARTITION.pack(
        index, error, -1 if base is None else base, -1 if time_ms is None else time_ms, -1 if start is None else start
    )
    if not errors and message is None:
        return fixed + _NO_ERRORS_COMPACT
    rows = b"".join([I32.pack(at) + compact_string(text) + b"\0" for at, text in errors])
    return fixed + uvarint(len(errors) + 1) + rows + compact_string(message) + b"\0"


def _encode_legacy(done: PartitionProduced, version: int) -> bytes:
    index, error, base, time_ms, start, errors, message = done
    base, time_ms, start = (-1 if value is None else value for value in (base, time_ms, start))
    if version < 2:
        return _PARTITION_V0.pack(index, error, base)
    if version < 5:
        return _PARTITION_V2.pack(index, error, base, time_ms)
    fixed = _PARTITION.pack(index, error, base, time_ms, start)
    if version < 8:
        return fixed
    if not errors and message is None:
        return fixed + _NO_ERRORS_LEGACY
    rows = b"".join([I32.pack(at) + string(text) for at, text in errors])
    return fixed + I32.pack(len(errors)) + rows + string(message)
