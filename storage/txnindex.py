"""The transaction index `.txnindex` (storage/FORMAT.md, "Transaction index"): aborted transactions, by marker.

It lies beside the segment that holds the marker; a segment without aborts has no such file.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tierd.base.errors import CorruptFile

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = 34
assert _ENTRY.size == ENTRY_BYTES
_VERSION = 0


@dataclass(frozen=True, slots=True)
class AbortedEntry:
    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable: int
    """First offset of the oldest transaction still open after this marker, else the offset after the marker."""


def parse_txn_index(raw: bytes | bytearray | memoryview, where: str = "") -> list[AbortedEntry]:
    """All entries in marker order. Raises CorruptFile for stray bytes, another version or markers out of order."""
    torn = len(raw) % ENTRY_BYTES
    if torn:
        raise CorruptFile(where, len(raw) - torn, f"{torn} stray bytes after the last whole entry")
    entries: list[AbortedEntry] = []
    for i, (version, producer_id, first, marker, stable) in enumerate(_ENTRY.iter_unpack(raw)):
        at = i * ENTRY_BYTES
        if version != _VERSION:
            raise CorruptFile(where, at, f"entry version {version}, only {_VERSION} is known")
        if first > marker or (entries and marker <= entries[-1].marker_offset):
            raise CorruptFile(where, at, f"transaction from {first} ended by the marker at {marker}")
        entries.append(AbortedEntry(producer_id, first, marker, stable))
    return entries


def encode_txn_entry(entry: AbortedEntry) -> bytes:
    return _ENTRY.pack(_VERSION, entry.producer_id, entry.first_offset, entry.marker_offset, entry.last_stable)


def encode_txn_index(entries: Iterable[AbortedEntry]) -> bytes:
    return b"".join(map(encode_txn_entry, entries))
