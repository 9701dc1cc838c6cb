"""Makes the producer snapshot at a segment's end when its file is missing: replay from the newest one that is there.

Rules: FORMAT.md, "Producer snapshot". A producer's last batch and its open transaction are all that a snapshot keeps.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from tierd.base.errors import CorruptFile
from tierd.storage import names
from tierd.storage.batch import parse_control
from tierd.storage.producers import Producers
from tierd.storage.records import iter_records
from tierd.storage.snapshot import encode_snapshot, parse_snapshot
from tierd.storage.view import SegmentView
from tierd.tiering.walk import BatchAt, SegmentWalker, walk_file


def snapshot_at(directory: Path, closed: Iterable[SegmentView], offset: int) -> bytes:
    """The snapshot at *offset*, the end of one of the *closed* segments: its file, or made from those before it.

    Raises CorruptFile when a segment that has to be replayed is broken.
    """
    kept = _read(directory, offset)
    if kept is not None:
        return kept
    below = [segment for segment in sorted(closed, key=lambda one: one.base) if segment.next_base <= offset]
    replayed: list[SegmentView] = []
    producers = Producers()
    while below:
        replayed.insert(0, below.pop())
        before = _read(directory, replayed[0].base)
        if before is not None:
            producers = Producers.from_entries(parse_snapshot(before), seen_ms=0)
            break
    for segment in replayed:
        replay(directory, segment, producers)
    return encode_snapshot(producers.entries())


def replay(directory: Path, segment: SegmentView, producers: Producers) -> None:
    """Bring *producers* from the segment's base to its end."""
    path = directory / names.log_file(segment.base)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        walker = SegmentWalker(
            segment.base, segment.next_base, str(path), lambda batch: _advance(producers, batch, fd, str(path))
        )
        walk_file(fd, segment.size_bytes, walker)
    finally:
        os.close(fd)


def _read(directory: Path, offset: int) -> bytes | None:
    """A snapshot file that parses; one that does not counts as missing."""
    path = directory / names.snapshot_file(offset)
    try:
        raw = path.read_bytes()
        parse_snapshot(raw, str(path))
    except (FileNotFoundError, CorruptFile):
        return None
    return raw


def _advance(producers: Producers, batch: BatchAt, fd: int, where: str) -> None:
    header = batch.header
    if not header.has_producer:
        return
    if not header.control:
        producers.update(header, header.max_timestamp_ms)
        return
    raw = os.pread(fd, header.size_bytes, batch.position)
    kind, coordinator_epoch = parse_control(next(iter_records(raw, header, where)))
    producers.end_txn(header, kind, coordinator_epoch, header.max_timestamp_ms)
