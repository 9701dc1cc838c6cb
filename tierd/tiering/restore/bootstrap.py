"""What a freshly formatted Kafka is told at its first start: topics with their ids, in `bootstrap.checkpoint`. Pure.

`kafka-storage.sh format` writes that file: batches of records of Kafka's metadata log, between a control batch that
opens the file and one that closes it. A record is framed by three varints: frame version 1, the kind of the record, and
its version. Directories of a topic that is not named there would be set aside as strays.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.storage.batch import encode_batch, patch, walk
from tierd.storage.header import parse_header
from tierd.storage.records import Record, iter_records
from tierd.wire.primitives import I32, compact_string, uvarint

_FRAME = 1
_TOPIC = 2
_PARTITION = 3
_CONFIG = 4
_PARTITION_VERSION = 1
"""The first that says in which directory a replica lies."""
_TOPIC_CONFIG = 2
_NO_TAGS = b"\0"
_BATCH_RECORDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BootTopic:
    name: str
    topic_id: Uuid
    config: Mapping[str, str]
    leader_epochs: Sequence[int]
    """Of each partition one that is above all of its log."""


def with_topics(raw: bytes, where: str, node_id: int, directory_id: Uuid, topics: Sequence[BootTopic]) -> bytes:
    """The file *raw* with *topics* instead of those that it has; each partition has its one replica in *directory_id*
    of *node_id*. Raises CorruptFile when *raw* is no such file."""
    batches = [(header, raw[at : at + header.size_bytes]) for at, header in walk(raw, where)]
    if len(batches) < 2 or not (batches[0][0].control and batches[-1][0].control):
        raise CorruptFile(where, 0, "no control batch opens and closes it, as format writes it")
    (_, head), *middle, (_, foot) = batches
    kept = [one for header, batch in middle for one in iter_records(batch, header, where) if not _is_topical(one)]
    made = [record for topic in topics for record in _records(topic, node_id, directory_id)]
    values = [*(one.value for one in kept), *made]
    timestamp_ms = kept[0].timestamp_ms if kept else parse_header(head).max_timestamp_ms
    out, offset = bytearray(head), parse_header(head).next_offset
    for start in range(0, len(values), _BATCH_RECORDS):
        some = values[start : start + _BATCH_RECORDS]
        out += encode_batch([Record(offset + i, timestamp_ms, None, value) for i, value in enumerate(some)])
        offset += len(some)
    end = bytearray(foot)
    patch(end, 0, offset, parse_header(foot).leader_epoch)
    return bytes(out + end)


def _is_topical(record: Record) -> bool:
    """Whether an earlier run has put it there."""
    return record.value is not None and record.value[:1] == b"\x01" and record.value[1] in (_TOPIC, _PARTITION, _CONFIG)


def _records(topic: BootTopic, node_id: int, directory_id: Uuid) -> Iterator[bytes]:
    topic_id = topic.topic_id.raw
    yield _framed(_TOPIC, 0, compact_string(topic.name) + topic_id + _NO_TAGS)
    replicas = uvarint(2) + I32.pack(node_id)
    for number, epoch in enumerate(topic.leader_epochs):
        fields = [
            I32.pack(number),
            topic_id,
            replicas,
            replicas,  # in sync
            uvarint(1),  # being removed
            uvarint(1),  # being added
            I32.pack(node_id),  # leader
            I32.pack(epoch),
            I32.pack(0),  # partition epoch
            uvarint(2) + directory_id.raw,
            _NO_TAGS,
        ]
        yield _framed(_PARTITION, _PARTITION_VERSION, b"".join(fields))
    for name, value in topic.config.items():
        key = _TOPIC_CONFIG.to_bytes(1, "big") + compact_string(topic.name)
        yield _framed(_CONFIG, 0, key + compact_string(name) + compact_string(value) + _NO_TAGS)


def _framed(kind: int, version: int, fields: bytes) -> bytes:
    return uvarint(_FRAME) + uvarint(kind) + uvarint(version) + fields
