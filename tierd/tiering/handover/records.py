"""Records of Kafka's `__remote_log_metadata`: their values, and which partition of the topic has them. Pure.

A value is framed by three varints, frame version 1, the kind of the record (Kafka's api key) and its version 0; then
come its fields, in Kafka's flexible encoding. Records have no key.
"""

import struct
from enum import IntEnum

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.manifest import Manifest
from tierd.wire.primitives import I32, compact_string, uvarint

TOPIC = "__remote_log_metadata"
PARTITIONS = 50
"""Kafka's default for that topic."""

_FRAME = 1
_SEGMENT = 0
_SEGMENT_UPDATE = 1
_PARTITION_DELETE = 2
_VERSION = 0
_NO_TAGS = b"\0"
_NO_TRANSACTIONS = b"\1\0\1\1"
"""One tagged field, 0 (`TxnIndexEmpty`), of one byte, true; left out where it is false."""
_NO_CUSTOM_METADATA = b"\0"
"""With it the plugin finds an object under the key that its `key.prefix` and the segment's id give."""
_OFFSETS = struct.Struct(">qqiqq")
_WHO_WHEN = struct.Struct(">iq")
_EPOCH = struct.Struct(">iq")
_I64_PAIR = struct.Struct(">qq")

_M = 0x5BD1E995
_SEED = 0x9747B28C
_U32 = 0xFFFFFFFF


class SegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2


class PartitionState(IntEnum):
    """Kafka's RemotePartitionDeleteState."""

    DELETE_MARKED = 0
    DELETE_STARTED = 1
    DELETE_FINISHED = 2


def segment_copied(manifest: Manifest) -> tuple[bytes, bytes]:
    """The two records of a committed segment; Kafka takes the second one only after the first."""
    return _segment_started(manifest), segment_update(manifest, SegmentState.COPY_FINISHED, manifest.written_ms)


def _segment_started(manifest: Manifest) -> bytes:
    epochs = [_EPOCH.pack(one.epoch, one.start) + _NO_TAGS for one in manifest.epochs]
    fields = [
        _segment_id(manifest),
        _OFFSETS.pack(
            manifest.base,
            manifest.next_base - 1,
            manifest.node_id,
            -1 if manifest.largest_timestamp_ms is None else manifest.largest_timestamp_ms,
            manifest.written_ms,
        ),
        uvarint(len(epochs) + 1),
        *epochs,
        I32.pack(manifest.size_bytes),
        _NO_CUSTOM_METADATA,
        bytes([SegmentState.COPY_STARTED]),
        _NO_TRANSACTIONS if manifest.transactions_empty else _NO_TAGS,
    ]
    return _framed(_SEGMENT, *fields)


def segment_update(manifest: Manifest, state: SegmentState, at_ms: int) -> bytes:
    """What became of a segment that Kafka knows."""
    who = _WHO_WHEN.pack(manifest.node_id, at_ms)
    return _framed(_SEGMENT_UPDATE, _segment_id(manifest), who, _NO_CUSTOM_METADATA, bytes([state]), _NO_TAGS)


def partition_deleted(topic: str, part: PartitionId, state: PartitionState, node_id: int, at_ms: int) -> bytes:
    """How far the delete of a partition is, with its topic."""
    who = _WHO_WHEN.pack(node_id, at_ms)
    return _framed(_PARTITION_DELETE, _partition(topic, part), who, bytes([state]), _NO_TAGS)


def _segment_id(manifest: Manifest) -> bytes:
    part = PartitionId(manifest.topic_id, manifest.partition)
    return _partition(manifest.topic, part) + manifest.segment_id.raw + _NO_TAGS


def _partition(topic: str, part: PartitionId) -> bytes:
    return compact_string(topic) + part.topic_id.raw + I32.pack(part.partition) + _NO_TAGS


def _framed(kind: int, *fields: bytes) -> bytes:
    return uvarint(_FRAME) + uvarint(kind) + uvarint(_VERSION) + b"".join(fields)


def metadata_partition(part: PartitionId, partitions: int) -> int:
    """Which of the topic's *partitions* has the records of *part*: Kafka's RemoteLogMetadataTopicPartitioner.

    Java's hash of the id's lower and upper half and the number, hashed once more as producers hash keys.
    """
    value = 1
    for one in (*reversed(_halves(part.topic_id)), part.partition):
        value = (31 * value + one) & _U32
    return (_murmur2_of(value) & 0x7FFFFFFF) % partitions


def _halves(topic_id: Uuid) -> list[int]:
    """Java's hash of each half."""
    return [(half ^ (half >> 32)) & _U32 for half in _I64_PAIR.unpack(topic_id.raw)]


def _murmur2_of(value: int) -> int:
    """Kafka's murmur2 of four bytes, *value* big-endian."""
    k = int.from_bytes(value.to_bytes(4, "big"), "little") * _M & _U32
    k = (k ^ (k >> 24)) * _M & _U32
    h = ((_SEED ^ 4) * _M & _U32) ^ k
    h = (h ^ (h >> 13)) * _M & _U32
    return h ^ (h >> 15)
