"""Fetch, versions 4-18, by hand: the answer is header bytes only, records go from file to socket beside it.

From version 13 on topics go by id. The bytes are compared with kio's and with recorded frames in tests/wire.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from tierd.wire.api import API, ApiKey
from tierd.wire.errors import BadFrame
from tierd.wire.header import LENGTH_BYTES, response_header
from tierd.wire.primitives import (
    I32,
    TopicKey,
    as_name,
    at_end,
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

_KEY: Final = int(ApiKey.FETCH)
_FLEXIBLE: Final = API[ApiKey.FETCH].flexible_from
_NO_REPLICA_FROM: Final = 15
_START_V4: Final = struct.Struct(">iiiib")  # replica, max wait, min bytes, max bytes, isolation
_START_V7: Final = struct.Struct(">iiiibii")  # and session id, session epoch
_START_V15: Final = struct.Struct(">iiibii")  # the same without the replica, which is in a tag
_REPLICA_TAG: Final = 1
_PARTITION_V4: Final = struct.Struct(">iqi")  # partition, offset, max bytes
_PARTITION_V5: Final = struct.Struct(">iqqi")  # partition, offset, log start, max bytes
_PARTITION_V9: Final = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_PARTITION_V12: Final = struct.Struct(">iiqiqi")  # ... last fetched epoch after the offset
_ANSWER_V4: Final = struct.Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ANSWER_V5: Final = struct.Struct(">ihqqq")  # and log start
_ABORTED: Final = struct.Struct(">qq")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
_NO_REPLICA: Final = I32.pack(-1)
_NO_ABORTED: Final = b"\0" + _NO_REPLICA
_NONE_ABORTED: Final = b"\1" + _NO_REPLICA
MOST_ROWS: Final = 100_000
"""Topics and partitions in one request. Kafka has no such limit; a row of some 30 bytes becomes 250 in memory."""


class FetchPartition(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int | None = None
    """The leader epoch that the client knows, to be fenced when it is old; None when it does not say."""
    last_fetched_epoch: int | None = None
    log_start: int | None = None
    """Only followers say it."""


class FetchRequest(NamedTuple):
    """One request. Tuples instead of dataclasses: made per request on the hot path."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    """0 read_uncommitted, 1 read_committed."""
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    """Each partition once."""
    forgotten: list[tuple[TopicKey, list[int]]]
    """Partitions that leave the session."""
    replica_id: int | None = None
    """A follower's node id; None for a consumer."""
    rack_id: str | None = None

    @property
    def rows(self) -> int:
        """Partitions asked for."""
        return sum([len(wanted) for _, wanted in self.topics])


class Aborted(Protocol):
    """`storage.view.AbortedTxn` has this shape."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class PartitionFetched(NamedTuple):
    """The answer for one partition; None offsets become -1."""

    partition: int
    error: int = 0
    high_watermark: int | None = None
    last_stable: int | None = None
    log_start: int | None = None
    aborted: Sequence[Aborted] | None = None
    """None in read_uncommitted and with an error."""
    records_length: int = 0


def decode_fetch(frame: memoryview, position: int, version: int) -> FetchRequest:
    """Decode the body that begins at *position*. Raises BadFrame."""
    try:
        replica, session_id, session_epoch = -1, 0, -1
        if version >= _NO_REPLICA_FROM:
            wait, least, most, isolation, session_id, session_epoch = _START_V15.unpack_from(frame, position)
            position += _START_V15.size
        elif version >= 7:
            replica, wait, least, most, isolation, session_id, session_epoch = _START_V7.unpack_from(frame, position)
            position += _START_V7.size
        else:
            replica, wait, least, most, isolation = _START_V4.unpack_from(frame, position)
            position += _START_V4.size
        if version >= _FLEXIBLE:
            topics, forgotten, rack, position = _flexible(frame, position, version)
            if version >= _NO_REPLICA_FROM and position < len(frame) and frame[position]:
                replica = _replica(frame, position)
            position = skip_tags(frame, position)
        else:
            topics, forgotten, rack, position = _legacy(frame, position, version)
        at_end(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadFrame(f"Fetch v{version}: {error}") from error
    if len(topics) > 1 or (topics and len(topics[0][1]) > 1):
        topics = _once_each(topics)
    replica_id = None if replica < 0 else replica
    fields = (wait, least, most, isolation, session_id, session_epoch, topics, forgotten, replica_id, rack)
    return tuple.__new__(FetchRequest, fields)


_Topics = list[tuple[TopicKey, list[FetchPartition]]]
_Forgotten = list[tuple[TopicKey, list[int]]]
_Read = tuple[_Topics, _Forgotten, str | None, int]
"""Topics, forgotten ones, the rack, and the position behind."""


def _once_each(topics: _Topics) -> _Topics:
    """A partition that is named again is wanted as said last, and answered once: Kafka reads the rows into a map."""
    if len(dict(topics)) == len(topics) and all(len({want[0] for want in rows}) == len(rows) for _, rows in topics):
        return topics
    merged: dict[TopicKey, dict[int, FetchPartition]] = {}
    for name, rows in topics:
        merged.setdefault(name, {}).update((want[0], want) for want in rows)
    return [(name, list(by_index.values())) for name, by_index in merged.items()]


def _flexible(frame: memoryview, position: int, version: int) -> _Read:
    unpack, size, new = _PARTITION_V12.unpack_from, _PARTITION_V12.size, tuple.__new__
    read_topic = read_topic_id if version >= API[ApiKey.FETCH].topic_ids_from else read_compact_topic
    topic_count, position = read_compact_count(frame, position)
    topics: _Topics = []
    left = MOST_ROWS
    for _ in range(topic_count):
        topic, position = read_topic(frame, position)
        count, position = read_compact_count(frame, position)
        left = rows_left(left, count)
        partitions = []
        for _ in range(count):
            index, epoch, offset, fetched_epoch, log_start, most = unpack(frame, position)
            position += size
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
            known = epoch if epoch >= 0 else None
            fetched = fetched_epoch if fetched_epoch >= 0 else None
            start = log_start if log_start >= 0 else None
            # Not by keyword or call: this runs per partition and request, and is twice as fast.
            partitions.append(new(FetchPartition, (index, offset, most, known, fetched, start)))
        position = skip_tags(frame, position)
        topics.append((topic, partitions))
    topic_count, position = read_compact_count(frame, position)
    forgotten: _Forgotten = []
    for _ in range(topic_count):
        topic, position = read_topic(frame, position)
        count, position = read_compact_count(frame, position)
        left = rows_left(left, count)
        forgotten.append((topic, _numbers(frame, position, count)))
        position = skip_tags(frame, position + 4 * count)
    rack, position = read_compact_string(frame, position)
    return topics, forgotten, rack, position


def _replica(frame: memoryview, position: int) -> int:
    """The follower's node id, in one of the tags that begin at *position*; -1 when it is in none."""
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == _REPLICA_TAG:
            return int(I32.unpack_from(frame, position)[0])
        position += size
    return -1


def _numbers(frame: memoryview, position: int, count: int) -> list[int]:
    return list(struct.unpack_from(f">{count}i", frame, position))


def _legacy(frame: memoryview, position: int, version: int) -> _Read:
    topic_count, position = read_count(frame, position)
    topics: _Topics = []
    left = MOST_ROWS
    for _ in range(topic_count):
        name, position = read_string(frame, position)
        count, position = read_count(frame, position)
        left = rows_left(left, count)
        partitions = []
        for _ in range(count):
            partition, position = _legacy_partition(frame, position, version)
            partitions.append(partition)
        topics.append((named(name, "topic name"), partitions))
    forgotten: _Forgotten = []
    rack = None
    if version >= 7:
        topic_count, position = read_count(frame, position)
        for _ in range(topic_count):
            name, position = read_string(frame, position)
            count, position = read_count(frame, position)
            left = rows_left(left, count)
            forgotten.append((named(name, "topic name"), _numbers(frame, position, count)))
            position += 4 * count
    if version >= 11:
        rack, position = read_string(frame, position)
    return topics, forgotten, rack, position


def _legacy_partition(frame: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    epoch = log_start = -1
    if version >= 9:
        index, epoch, offset, log_start, most = _PARTITION_V9.unpack_from(frame, position)
        position += _PARTITION_V9.size
    elif version >= 5:
        index, offset, log_start, most = _PARTITION_V5.unpack_from(frame, position)
        position += _PARTITION_V5.size
    else:
        index, offset, most = _PARTITION_V4.unpack_from(frame, position)
        position += _PARTITION_V4.size
    known = epoch if epoch >= 0 else None
    start = log_start if log_start >= 0 else None
    return FetchPartition(index, offset, most, known, None, start), position


def encode_fetch_response(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[PartitionFetched]]],
    *,
    throttle_ms: int = 0,
    error: int = 0,
    session_id: int = 0,
) -> list[bytes]:
    """Chunks between which the records go: chunk i, then the records of the i-th partition with records_length > 0.

    The last chunk is the tail, possibly empty. The length word in the first chunk counts the records too.
    """
    out = bytearray(LENGTH_BYTES) + response_header(_KEY, version, correlation_id)
    if version >= 7:
        out += _THROTTLE_ERROR_SESSION.pack(throttle_ms, error, session_id)
    else:
        out += I32.pack(throttle_ms)
    encode = _encode_flexible if version >= _FLEXIBLE else _encode_legacy
    chunks, records_bytes = encode(out, version, topics)
    size = sum(map(len, chunks)) - LENGTH_BYTES + records_bytes
    I32.pack_into(chunks[0], 0, size)
    return [bytes(chunk) for chunk in chunks]


def _encode_flexible(
    out: bytearray, _version: int, topics: Sequence[tuple[TopicKey, Sequence[PartitionFetched]]]
) -> tuple[list[bytearray], int]:
    """Chunks that begin with *out*, and the length of all records between them."""
    chunks, records_bytes = [out], 0
    pack = _ANSWER_V5.pack
    out += uvarint(len(topics) + 1)
    for topic, partitions in topics:
        out += compact_topic(topic) + uvarint(len(partitions) + 1)
        for index, error, high, stable, start, aborted, length in partitions:
            out += pack(
                index,
                error,
                -1 if high is None else high,
                -1 if stable is None else stable,
                -1 if start is None else start,
            )
            out += aborted_rows(aborted) + uvarint(length + 1)
            if length > 0:
                records_bytes += length
                out = bytearray()
                chunks.append(out)
            out += b"\0"
        out += b"\0"
    out += b"\0"
    return chunks, records_bytes


def _encode_legacy(
    out: bytearray, version: int, topics: Sequence[tuple[TopicKey, Sequence[PartitionFetched]]]
) -> tuple[list[bytearray], int]:
    """The same below version 12."""
    chunks, records_bytes = [out], 0
    out += I32.pack(len(topics))
    for topic, partitions in topics:
        out += string(as_name(topic)) + I32.pack(len(partitions))
        for fetched in partitions:
            out += _legacy_answer(fetched, version) + I32.pack(fetched.records_length)
            if fetched.records_length > 0:
                records_bytes += fetched.records_length
                out = bytearray()
                chunks.append(out)
    return chunks, records_bytes


def aborted_rows(aborted: Sequence[Aborted] | None) -> bytes:
    """What stands between the offsets of a partition and its records, from version 12 on."""
    if not aborted:
        return _NO_ABORTED if aborted is None else _NONE_ABORTED
    rows = b"".join([_ABORTED.pack(txn.producer_id, txn.first_offset) + b"\0" for txn in aborted])
    return uvarint(len(aborted) + 1) + rows + _NO_REPLICA


def _legacy_answer(fetched: PartitionFetched, version: int) -> bytes:
    index, error, high, stable, start, aborted, _ = fetched
    high, stable, start = (-1 if offset is None else offset for offset in (high, stable, start))
    if version >= 5:
        fixed = _ANSWER_V5.pack(index, error, high, stable, start)
    else:
        fixed = _ANSWER_V4.pack(index, error, high, stable)
    if aborted is None:
        rows = [I32.pack(-1)]
    else:
        rows = [I32.pack(len(aborted)), *(_ABORTED.pack(txn.producer_id, txn.first_offset) for txn in aborted)]
    if version >= 11:
        rows.append(_NO_REPLICA)
    return fixed + b"".join(rows)
