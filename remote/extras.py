"""What tierd knows of a segment beyond Aiven's manifest: user metadata of its objects, and part of the head's entries.

User metadata is a hint: copy tools lose it, and all of it can be found again by reading the segment.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.base.ids import Uuid

_PREFIX = "tierd-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentExtras:
    """Facts of one segment; None where unknown."""

    log_crc: int | None = None
    """CRC-32C of the whole `.log` object."""
    indexes_crc: int | None = None
    append_ms: int | None = None
    """Wall clock of the last append; retention uses the smaller of this and the largest timestamp."""
    largest_timestamp_offset: int | None = None
    """Offset of the first record with the largest timestamp."""
    records: int | None = None
    """Number of records, control records included."""
    epoch: int | None = None
    """Leader epoch of the owner who copied it."""
    incarnation: Uuid | None = None
    """The owner's run."""


_NUMBERS = {
    "log_crc": "log-crc32c",
    "indexes_crc": "indexes-crc32c",
    "append_ms": "append-ms",
    "largest_timestamp_offset": "largest-timestamp-offset",
    "records": "records",
    "epoch": "epoch",
}


def to_metadata(extras: SegmentExtras) -> dict[str, str]:
    """User metadata (`x-amz-meta-` comes from the backend); numbers in decimal, what is None left out."""
    values = {name: getattr(extras, field) for field, name in _NUMBERS.items()}
    metadata = {_PREFIX + name: str(value) for name, value in values.items() if value is not None}
    if extras.incarnation is not None:
        metadata[_PREFIX + "incarnation"] = str(extras.incarnation)
    return metadata


def from_metadata(metadata: Mapping[str, str] | None) -> SegmentExtras:
    """Reads what is there and makes sense; the rest stays None."""
    found = metadata or {}
    numbers = {field: _number(found.get(_PREFIX + name)) for field, name in _NUMBERS.items()}
    return SegmentExtras(**numbers, incarnation=_id(found.get(_PREFIX + "incarnation")))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def _id(text: str | None) -> Uuid | None:
    try:
        return None if text is None else Uuid.parse(text)
    except ValueError:
        return None
