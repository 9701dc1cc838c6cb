"""The producer snapshot `<offset>.snapshot` (storage/FORMAT.md, "Producer snapshot"): producers below that offset."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from crc32c import crc32c

from tierd.base.errors import CorruptFile

_HEAD = struct.Struct(">hIi")  # version, CRC-32C of all that follows it, count
HEAD_BYTES = 10
assert _HEAD.size == HEAD_BYTES
_ENTRY = struct.Struct(">qhiqiqiq")
ENTRY_BYTES = 46
assert _ENTRY.size == ENTRY_BYTES

_VERSION = 1
_CRC_START = 6
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """What is remembered of one producer: its last batch and its open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int | None
    """None after a transaction marker: the next batch begins anew."""
    last_offset: int | None
    offset_delta: int
    """Last offset minus base offset of the last batch."""
    timestamp_ms: int
    """Largest timestamp of the last batch."""
    coordinator_epoch: int | None
    txn_first_offset: int | None
    """First offset of the transaction that is open; None when none is."""


def parse_snapshot(raw: bytes | bytearray | memoryview, where: str = "") -> list[ProducerEntry]:
    """The producers in file order (a hash table's: it means nothing). Raises CorruptFile."""
    if len(raw) < HEAD_BYTES:
        raise CorruptFile(where, len(raw), f"a snapshot has at least {HEAD_BYTES} bytes")
    version, crc, count = _HEAD.unpack_from(raw)
    if version != _VERSION:
        raise CorruptFile(where, 0, f"snapshot version {version}, only {_VERSION} is known")
    if crc != crc32c(memoryview(raw)[_CRC_START:]):
        raise CorruptFile(where, 2, "the CRC does not match")
    if len(raw) != HEAD_BYTES + count * ENTRY_BYTES:
        raise CorruptFile(where, _CRC_START, f"{count} entries do not make {len(raw)} bytes")
    return [_entry(*fields) for fields in _ENTRY.iter_unpack(raw[HEAD_BYTES:])]


def _entry(
    producer_id: int, epoch: int, sequence: int, offset: int, delta: int, timestamp_ms: int, coordinator: int, txn: int
) -> ProducerEntry:
    return ProducerEntry(
        producer_id=producer_id,
        epoch=epoch,
        last_sequence=None if sequence == _NONE else sequence,
        last_offset=None if offset == _NONE else offset,
        offset_delta=delta,
        timestamp_ms=timestamp_ms,
        coordinator_epoch=None if coordinator == _NONE else coordinator,
        txn_first_offset=None if txn == _NONE else txn,
    )


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    body = [
        _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            _NONE if entry.last_sequence is None else entry.last_sequence,
            _NONE if entry.last_offset is None else entry.last_offset,
            entry.offset_delta,
            entry.timestamp_ms,
            _NONE if entry.coordinator_epoch is None else entry.coordinator_epoch,
            _NONE if entry.txn_first_offset is None else entry.txn_first_offset,
        )
        for entry in entries
    ]
    covered = len(body).to_bytes(4, "big") + b"".join(body)
    return _VERSION.to_bytes(2, "big") + crc32c(covered).to_bytes(4, "big") + covered
