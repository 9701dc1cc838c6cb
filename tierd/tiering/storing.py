"""How a segment is to be stored: decided once, before its first byte is read (remote/LAYOUT.md, "Chunks")."""

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd.base.errors import CorruptFile
from tierd.remote.manifest import Encryption
from tierd.remote.transform import Transform
from tierd.storage import names
from tierd.storage.header import HEADER_BYTES, BatchHeader, parse_header
from tierd.storage.sparse import OffsetEntries
from tierd.storage.view import SegmentView

SAMPLES = 256
"""Batches that are looked at, spread evenly over the segment's bytes."""


@dataclass(frozen=True, slots=True)
class Storing:
    transform: Transform
    encryption: Encryption | None
    """What the manifest says of the transform's secret."""
    chunk_bytes: int


def is_worth_compressing(directory: Path, segment: SegmentView) -> bool:
    """Whether at least half of the segment's batches, by their bytes, were not compressed by whoever sent them.

    Those that were are as small as they get: compressing them again costs time and gives nothing. Raises OSError when
    the `.log` cannot be read.
    """
    fd = os.open(directory / names.log_file(segment.base), os.O_RDONLY | os.O_CLOEXEC)
    try:
        plain = [header.codec == 0 for header in _sample(fd, directory, segment)]
    finally:
        os.close(fd)
    return 2 * sum(plain) >= len(plain)


def _sample(fd: int, directory: Path, segment: SegmentView) -> Iterator[BatchHeader]:
    """Headers where the offset index says that batches begin; without one those of the first batches."""
    path = directory / names.index_file(segment.base)
    try:
        known = OffsetEntries.from_bytes(path.read_bytes(), segment.base, str(path), segment.size_bytes).positions
    except (FileNotFoundError, CorruptFile):
        known = array("I")
    for position in known[:: max(1, len(known) // SAMPLES)]:
        if (header := _header(fd, position)) is not None:
            yield header
    position = 0
    for _ in range(0 if known else SAMPLES):
        if (header := _header(fd, position)) is None:
            return
        position += header.size_bytes
        yield header


def _header(fd: int, position: int) -> BatchHeader | None:
    """None when no batch begins there: if something is wrong, the copy itself says what."""
    try:
        return parse_header(os.pread(fd, HEADER_BYTES, position))
    except CorruptFile:
        return None
