"""Fetch, versions 4-12, by hand: the answer is header bytes only, records go from file to socket beside it.

No fetch sessions (every answer says session 0, which clients take as "send everything again"); from 13 on topics go
by id. The bytes are compared with kio's and with recorded frames in tests/wire.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from tierd.wire.api import ApiKey, is_flexible
from tierd.wire.errors import BadFrame
from tierd.wire.primitives import (
    I32,
    at_end,
    compact_string,
    named,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    skip_tags,
    string,
    uvarint,
)

_START_V4: Final = struct.Struct(">iiiib")  # replica, max wait, min bytes, max bytes, isolation
_START_V7: Final = struct.Struct(">iiiibii")  # and session id, session epoch
_PARTITION_V4: Final = struct.Struct(">iqi")  # partition, offset, max bytes
_PARTITION_V5: Final = struct.Struct(">iqqi")  # partition, offset, log start, max bytes
_PARTITION_V9: Final = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_PARTITION_V12: Final = struct.Struct(">iiqiqi")  # ... last fetched epoch after the offset
_ANSWER_V4: Final = struct.Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ANSWER_V5: Final = struct.Struct(">ihqqq")  # and log start
_ABORTED: Final = struct.Struct(">qq")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
_NO_REPLICA: Final = I32.pack(-1)


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
    topics: list[tuple[str, list[FetchPartition]]]
    replica_id: int | None = None
    """A follower's node id; None for a consumer."""
    rack_id: str | None = None


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
        session_id, session_epoch = 0, -1
        if version >= 7:
            replica, wait, least, most, isolation, session_id, session_epoch = _START_V7.unpack_from(frame, position)
            position += _START_V7.size
        else:
            replica, wait, least, most, isolation = _START_V4.unpack_from(frame, position)
            position += _START_V4.size
        topics, rack, position = (_flexible if is_flexible(ApiKey.FETCH, version) else _legacy)(
            frame, position, version
        )
        at_end(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadFrame(f"Fetch v{version}: {error}") from error
    replica_id = None if replica < 0 else replica
    return FetchRequest(wait, least, most, isolation, session_id, session_epoch, topics, replica_id, rack)


_Topics = list[tuple[str, list[FetchPartition]]]


def _flexible(frame: memoryview, position: int, version: int) -> tuple[_Topics, str | None, int]:
    topic_count, position = read_compact_count(frame, position)
    topics: _Topics = []
    for _ in range(topic_count):
        name, position = read_compact_string(frame, position)
        count, position = read_compact_count(frame, position)
        partitions = []
        for _ in range(count):
            index, epoch, offset, fetched_epoch, log_start, most = _PARTITION_V12.unpack_from(frame, position)
            position += _PARTITION_V12.size
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
            partitions.append(_partition(index, offset, most, epoch, fetched_epoch, log_start))
        position = skip_tags(frame, position)
        topics.append((named(name, "topic name"), partitions))
    position = _skip_forgotten(frame, position)
    rack, position = read_compact_string(frame, position)
    return topics, rack, skip_tags(frame, position)


def _skip_forgotten(frame: memoryview, position: int) -> int:
    """Topics dropped from a session: without sessions nothing to do, but they must parse."""
    topic_count, position = read_compact_count(frame, position)
    for _ in range(topic_count):
        _, position = read_compact_string(frame, position)
        count, position = read_compact_count(frame, position)
        position = skip_tags(frame, position + 4 * count)
    return position


def _legacy(frame: memoryview, position: int, version: int) -> tuple[_Topics, str | None, int]:
    topic_count, position = read_count(frame, position)
    topics: _Topics = []
    for _ in range(topic_count):
        name, position = read_string(frame, position)
        count, position = read_count(frame, position)
        partitions = []
        for _ in range(count):
            partition, position = _legacy_partition(frame, position, version)
            partitions.append(partition)
        topics.append((named(name, "topic name"), partitions))
    rack = None
    if version >= 7:
        forgotten, position = read_count(frame, position)
        for _ in range(forgotten):
            _, position = read_string(frame, position)
            count, position = read_count(frame, position)
            position += 4 * count
    if version >= 11:
        rack, position = read_string(frame, position)
    return topics, rack, position


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
    return _partition(index, offset, most, epoch, -1, log_start), position


def _partition(
    index: int, offset: int, max_bytes: int, epoch: int, fetched_epoch: int, log_start: int
) -> FetchPartition:
    return FetchPartition(
        index,
        offset,
        max_bytes,
        None if epoch < 0 else epoch,
        None if fetched_epoch < 0 else fetched_epoch,
        None if log_start < 0 else log_start,
    )


def encode_fetch_response(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[str, Sequence[PartitionFetched]]],
    *,
    throttle_ms: int = 0,
    error: int = 0,
) -> list[bytes]:
    """Chunks between which the records go: chunk i, then the records of the i-th partition with records_length > 0.

    The last chunk is the tail, possibly empty. The length word in the first chunk counts the records too.
    """
    out = _Chunks()
    out.parts += b"", I32.pack(correlation_id)
    if is_flexible(ApiKey.FETCH, version):
        out.parts += b"\0", _THROTTLE_ERROR_SESSION.pack(throttle_ms, error, 0), uvarint(len(topics) + 1)
        for name, partitions in topics:
            out.parts += compact_string(name), uvarint(len(partitions) + 1)
            for fetched in partitions:
                out.parts += _fixed(fetched), _compact_aborted(fetched.aborted), _NO_REPLICA
                out.parts.append(uvarint(fetched.records_length + 1))
                out.records(fetched.records_length)
                out.parts.append(b"\0")
            out.parts.append(b"\0")
        out.parts.append(b"\0")
    else:
        out.parts.append(_THROTTLE_ERROR_SESSION.pack(throttle_ms, error, 0) if version >= 7 else I32.pack(throttle_ms))
        out.parts.append(I32.pack(len(topics)))
        for name, partitions in topics:
            out.parts += string(name), I32.pack(len(partitions))
            for fetched in partitions:
                out.parts += _legacy_answer(fetched, version), I32.pack(fetched.records_length)
                out.records(fetched.records_length)
    return out.framed()


class _Chunks:
    """Pieces of the answer, cut where records go in."""

    __slots__ = ("_done", "_records_bytes", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._done: list[list[bytes]] = []
        self._records_bytes = 0

    def records(self, length: int) -> None:
        if length > 0:
            self._records_bytes += length
            self._done.append(self.parts)
            self.parts = []

    def framed(self) -> list[bytes]:
        chunks = [*self._done, self.parts]
        size = sum(len(part) for chunk in chunks for part in chunk) + self._records_bytes
        chunks[0][0] = I32.pack(size)
        return [b"".join(chunk) for chunk in chunks]


def _wire(value: int | None) -> int:
    return -1 if value is None else value


def _fixed(fetched: PartitionFetched) -> bytes:
    return _ANSWER_V5.pack(
        fetched.partition,
        fetched.error,
        _wire(fetched.high_watermark),
        _wire(fetched.last_stable),
        _wire(fetched.log_start),
    )


def _compact_aborted(aborted: Sequence[Aborted] | None) -> bytes:
    if aborted is None:
        return b"\0"
    rows = [_ABORTED.pack(txn.producer_id, txn.first_offset) + b"\0" for txn in aborted]
    return uvarint(len(rows) + 1) + b"".join(rows)


def _legacy_answer(fetched: PartitionFetched, version: int) -> bytes:
    if version >= 5:
        fixed = _fixed(fetched)
    else:
        fixed = _ANSWER_V4.pack(
            fetched.partition, fetched.error, _wire(fetched.high_watermark), _wire(fetched.last_stable)
        )
    if fetched.aborted is None:
        rows = [I32.pack(-1)]
    else:
        rows = [_ABORTED.pack(txn.producer_id, txn.first_offset) for txn in fetched.aborted]
        rows.insert(0, I32.pack(len(rows)))
    if version >= 11:
        rows.append(_NO_REPLICA)
    return fixed + b"".join(rows)
