"""The `.rsm-manifest` object: compact JSON, the commit point of a segment (LAYOUT.md).

Its shape and key order are those of Aiven's plugin, whose reader rejects unknown fields: tierd adds nothing here
(`extras.py` carries the rest). Unknown fields are tolerated when read. The end offset is inclusive in the JSON and
half-open (`next_base`) in the value.
"""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote import chunks
from tierd.remote.chunks import ChunkIndex, FixedChunks, VariableChunks
from tierd.remote.indexes import IndexLayout
from tierd.remote.ranges import ByteRange

VERSION = "1"


@dataclass(frozen=True, slots=True)
class EpochStart:
    """A leader epoch and its first offset."""

    epoch: int
    start: int


@dataclass(frozen=True, slots=True)
class Encryption:
    """Present when the objects are encrypted; both as the JSON has them."""

    data_key: str
    """`<key id>:<base64 of the wrapped data key>`."""
    aad: str

    @property
    def key_id(self) -> str:
        return self.data_key.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A committed segment over offsets [base, next_base)."""

    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    base: int
    next_base: int
    largest_timestamp_ms: int | None
    """None where Kafka writes -1: no record has a timestamp."""
    node_id: int
    """Who wrote it (`brokerId`)."""
    written_ms: int
    """`eventTimestampMs`."""
    epochs: tuple[EpochStart, ...]
    """Leader epochs in the segment, the first start clipped to `base`."""
    chunks: ChunkIndex
    layout: IndexLayout
    compressed: bool = False
    encryption: Encryption | None = None
    transactions_empty: bool | None = None
    """`txnIdxEmpty`; None when absent (before Kafka 4.0)."""

    @property
    def size_bytes(self) -> int:
        """Of the segment itself, not of the stored object."""
        return self.chunks.original_file_bytes

    @property
    def stored_bytes(self) -> int | None:
        """Of the `.log` object when it is not the segment byte for byte."""
        plain = not self.compressed and self.encryption is None
        return None if plain else self.chunks.stored_bytes


def encode_manifest(manifest: Manifest) -> bytes:
    """Exactly the bytes that Aiven's plugin would write."""
    document: dict[str, Any] = {
        "version": VERSION,
        "chunkIndex": _chunk_index_json(manifest.chunks),
        "segmentIndexes": _layout_json(manifest.layout),
        "compression": manifest.compressed,
    }
    if manifest.encryption is not None:
        document["encryption"] = {"dataKey": manifest.encryption.data_key, "aad": manifest.encryption.aad}
    document["remoteLogSegmentMetadata"] = _metadata_json(manifest)
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def with_data_key(raw: bytes, data_key: str) -> bytes:
    """The manifest *raw*, which `parse_manifest` takes and which is encrypted, with another `encryption.dataKey`.

    All else stays as it is, fields that tierd does not know included.
    """
    document = json.loads(raw)
    document["encryption"]["dataKey"] = data_key
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _chunk_index_json(index: ChunkIndex) -> dict[str, Any]:
    sizes = {"originalChunkSize": index.original_chunk_bytes, "originalFileSize": index.original_file_bytes}
    if isinstance(index, VariableChunks):
        return {"type": "variable", **sizes, "transformedChunks": chunks.encode_sizes(index.sizes)}
    return {
        "type": "fixed",
        **sizes,
        "transformedChunkSize": index.transformed_chunk_bytes,
        "finalTransformedChunkSize": index.final_transformed_bytes,
    }


def _layout_json(layout: IndexLayout) -> dict[str, Any]:
    return {
        "offset": _range_json(layout.offset),
        "timestamp": _range_json(layout.timestamp),
        "producerSnapshot": _range_json(layout.producer_snapshot),
        "leaderEpoch": _range_json(layout.leader_epoch),
        "transaction": None if layout.transaction is None else _range_json(layout.transaction),
    }


def _range_json(part: ByteRange) -> dict[str, int]:
    return {"position": part.start, "size": part.length}


def _metadata_json(manifest: Manifest) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": str(manifest.topic_id),
                "topicPartition": {"topic": manifest.topic, "partition": manifest.partition},
            },
            "id": str(manifest.segment_id),
        },
        "startOffset": manifest.base,
        "endOffset": manifest.next_base - 1,
        "maxTimestampMs": -1 if manifest.largest_timestamp_ms is None else manifest.largest_timestamp_ms,
        "brokerId": manifest.node_id,
        "eventTimestampMs": manifest.written_ms,
        "segmentLeaderEpochs": {str(entry.epoch): entry.start for entry in manifest.epochs},
    }
    if manifest.transactions_empty is not None:
        metadata["txnIdxEmpty"] = manifest.transactions_empty
    return metadata


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, alias_generator=to_camel)


class _RangeJson(_Part):
    position: int = Field(ge=0)
    size: int = Field(ge=0)

    def value(self) -> ByteRange:
        return ByteRange(self.position, self.position + self.size)


class _LayoutJson(_Part):
    offset: _RangeJson
    timestamp: _RangeJson
    producer_snapshot: _RangeJson
    leader_epoch: _RangeJson
    transaction: _RangeJson | None = None


class _ChunkIndexJson(_Part):
    type: str
    original_chunk_size: int = Field(gt=0)
    original_file_size: int = Field(ge=0)
    transformed_chunk_size: int | None = Field(default=None, ge=0)
    final_transformed_chunk_size: int | None = Field(default=None, ge=0)
    transformed_chunks: str | None = None


class _EncryptionJson(_Part):
    data_key: str
    aad: str


class _TopicPartitionJson(_Part):
    topic: str
    partition: int = Field(ge=0)


class _TopicIdPartitionJson(_Part):
    topic_id: str
    topic_partition: _TopicPartitionJson


class _SegmentIdJson(_Part):
    topic_id_partition: _TopicIdPartitionJson
    id: str


class _MetadataJson(_Part):
    remote_log_segment_id: _SegmentIdJson
    start_offset: int = Field(ge=0)
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_leader_epochs: dict[str, int]
    txn_idx_empty: bool | None = None


class _ManifestJson(_Part):
    version: str
    chunk_index: _ChunkIndexJson
    segment_indexes: _LayoutJson
    compression: bool
    encryption: _EncryptionJson | None = None
    remote_log_segment_metadata: _MetadataJson


def parse_manifest(raw: bytes, where: str) -> Manifest:
    """Raises CorruptFile naming the field that is missing, of the wrong type or out of range."""
    try:
        document = _ManifestJson.model_validate_json(raw)
        if document.version != VERSION:
            raise CorruptFile(where, 0, f"manifest version {document.version!r}, this tierd reads {VERSION!r}")
        return _manifest(document, where)
    except ValidationError as error:
        first = error.errors()[0]
        raise CorruptFile(where, 0, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise CorruptFile(where, 0, str(error)) from error


def _manifest(document: _ManifestJson, where: str) -> Manifest:
    metadata = document.remote_log_segment_metadata
    identity = metadata.remote_log_segment_id.topic_id_partition
    if metadata.end_offset < metadata.start_offset:
        raise CorruptFile(where, 0, f"offsets end at {metadata.end_offset}, before their start {metadata.start_offset}")
    encryption = document.encryption
    epochs = sorted((int(epoch), start) for epoch, start in metadata.segment_leader_epochs.items())
    layout = document.segment_indexes
    return Manifest(
        topic=identity.topic_partition.topic,
        topic_id=Uuid.parse(identity.topic_id),
        partition=identity.topic_partition.partition,
        segment_id=Uuid.parse(metadata.remote_log_segment_id.id),
        base=metadata.start_offset,
        next_base=metadata.end_offset + 1,
        largest_timestamp_ms=None if metadata.max_timestamp_ms < 0 else metadata.max_timestamp_ms,
        node_id=metadata.broker_id,
        written_ms=metadata.event_timestamp_ms,
        epochs=tuple(EpochStart(*entry) for entry in epochs),
        chunks=_chunk_index(document.chunk_index, where),
        layout=IndexLayout(
            offset=layout.offset.value(),
            timestamp=layout.timestamp.value(),
            producer_snapshot=layout.producer_snapshot.value(),
            leader_epoch=layout.leader_epoch.value(),
            transaction=None if layout.transaction is None else layout.transaction.value(),
        ),
        compressed=document.compression,
        encryption=None if encryption is None else Encryption(encryption.data_key, encryption.aad),
        transactions_empty=metadata.txn_idx_empty,
    )


def _chunk_index(index: _ChunkIndexJson, where: str) -> ChunkIndex:
    size, chunk = index.original_file_size, index.original_chunk_size
    if index.type == "fixed" and index.transformed_chunk_size is not None:
        if index.final_transformed_chunk_size is None:
            raise CorruptFile(where, 0, "chunkIndex.finalTransformedChunkSize is missing")
        return FixedChunks(
            original_chunk_bytes=chunk,
            original_file_bytes=size,
            transformed_chunk_bytes=index.transformed_chunk_size,
            final_transformed_bytes=index.final_transformed_chunk_size,
        )
    if index.type == "variable" and index.transformed_chunks is not None:
        sizes = chunks.decode_sizes(index.transformed_chunks, where)
        if len(sizes) != -(-size // chunk):
            raise CorruptFile(where, 0, f"chunkIndex: {len(sizes)} stored chunks for {size} bytes in chunks of {chunk}")
        return chunks.variable_chunks(size, chunk, sizes)
    raise CorruptFile(where, 0, f"chunkIndex.type is {index.type!r}, or its sizes are missing")
