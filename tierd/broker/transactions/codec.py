"""Keys and values of `__transaction_state` as Kafka 4 writes them (value version 1); version 0 is readable.

| part | layout |
|---|---|
| key | i16 0, string transactional id |
| value | i16 1: i64 producer id, i16 epoch, i32 time-out, i8 state, partitions, i64 changed, i64 started, tags |
| partitions | compact array, null while EMPTY: compact topic, compact array of i32, tags |
| tags | 0: previous producer id (i64), 1: next producer id (i64), 2: client transaction version (i16) |

Strings of the key: i16 length and bytes. A value of null deletes. Other keys are left alone.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.broker.transactions.model import State, Transaction
from tierd.wire.errors import BadFrame
from tierd.wire.primitives import I16, I32, compact_string, named, read_compact_string, read_string, string, uvarint
from tierd.wire.schema import Input

_HEAD: Final = struct.Struct(">hqhib")  # version, producer id, epoch, time-out, state
_TIMES: Final = struct.Struct(">qq")
_I64: Final = struct.Struct(">q")
_KEY: Final = 0
_NEWEST: Final = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2


def encode_key(transactional_id: str) -> bytes:
    return I16.pack(_KEY) + string(transactional_id)


def decode_key(raw: bytes, where: str) -> str | None:
    """The transactional id; None for a kind of record that is not ours. Raises CorruptFile."""
    try:
        (version,) = I16.unpack_from(raw, 0)
        return named(read_string(memoryview(raw), 2)[0], "transactional id") if version == _KEY else None
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame) as error:
        raise CorruptFile(where, 0, f"key of a transaction: {error}") from error


def encode_transaction(found: Transaction) -> bytes:
    head = _HEAD.pack(_NEWEST, found.producer_id, found.producer_epoch, found.timeout_ms, found.state)
    started = -1 if found.started_ms is None else found.started_ms
    times = _TIMES.pack(found.changed_ms, started)
    return head + _partitions(found) + times + _tags(found)


def _partitions(found: Transaction) -> bytes:
    if found.state is State.EMPTY:
        return b"\0"
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for tp in sorted(found.partitions):
        topics[tp.topic].append(tp.partition)
    rows = [
        compact_string(topic) + uvarint(len(numbers) + 1) + b"".join(map(I32.pack, numbers)) + b"\0"
        for topic, numbers in topics.items()
    ]
    return uvarint(len(rows) + 1) + b"".join(rows)


def _tags(found: Transaction) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if found.previous_producer_id is not None:
        tags.append((_PREVIOUS_ID, _I64.pack(found.previous_producer_id)))
    if found.next_producer_id is not None:
        tags.append((_NEXT_ID, _I64.pack(found.next_producer_id)))
    if found.client_version:
        tags.append((_CLIENT_VERSION, I16.pack(found.client_version)))
    return uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in tags)


def decode_transaction(raw: bytes, where: str) -> Transaction:
    """Raises CorruptFile, also for a version that is not known: a transaction must not be lost in silence."""
    try:
        version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(raw, 0)
        if not 0 <= version <= _NEWEST:
            raise BadFrame(f"version {version}")
        source = Input(memoryview(raw), _HEAD.size)
        partitions = frozenset(_read_partitions(source, compact=version >= 1))
        changed_ms, started_ms = _TIMES.unpack(source.take(_TIMES.size))
        tags = _read_tags(source) if version >= 1 else {}
        return Transaction(
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            state=State(state),
            partitions=partitions,
            changed_ms=changed_ms,
            started_ms=None if started_ms < 0 else started_ms,
            previous_producer_id=_tagged(tags, _PREVIOUS_ID, _I64),
            client_version=_tagged(tags, _CLIENT_VERSION, I16) or 0,
            next_producer_id=_tagged(tags, _NEXT_ID, _I64),
        )
    except (struct.error, IndexError, ValueError, BadFrame) as error:
        raise CorruptFile(where, 0, f"transaction: {error}") from error


def _read_partitions(source: Input, *, compact: bool) -> Iterable[TopicPartition]:
    for _ in range(_length(source, compact=compact)):
        read = read_compact_string if compact else read_string
        topic, source.position = read(source.frame, source.position)
        for _ in range(_length(source, compact=compact)):
            yield TopicPartition(named(topic, "topic"), I32.unpack(source.take(4))[0])
        if compact:
            _read_tags(source)


def _length(source: Input, *, compact: bool) -> int:
    """Of an array that may be null."""
    raw: int = source.uvarint() - 1 if compact else I32.unpack(source.take(4))[0]
    return max(source.count(raw), 0)


def _read_tags(source: Input) -> dict[int, bytes]:
    return {source.uvarint(): bytes(source.take(source.uvarint())) for _ in range(source.uvarint())}


def _tagged(tags: Mapping[int, bytes], tag: int, kind: struct.Struct) -> int | None:
    value: int | None = kind.unpack(tags[tag])[0] if tag in tags else None
    return None if value == -1 else value
