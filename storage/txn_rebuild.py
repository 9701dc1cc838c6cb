"""A transaction index made again from the log: which aborted transactions end in a segment.

Only headers and markers are read. Where the transactions began that were open at the segment's start tells the newest
producer snapshot at or below it, and what lies between the two.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile
from tierd.storage.aborted import AbortedEntries
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.log_read import heads
from tierd.storage.names import Mark, Suffix, parse_partition_directory, parse_segment_file, segment_file
from tierd.storage.producers import Producers
from tierd.storage.remaking import RemadeAborted, write_beside
from tierd.storage.replay import aborted_entry, take_in
from tierd.storage.segment import Segment
from tierd.storage.setaside import SetAside
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.txnindex import AbortedEntry

log = logging.getLogger(__name__)


def find_aborted(directory: Path, base: int, size_bytes: int) -> list[AbortedEntry]:
    """What the `.txnindex` of the segment at *base* of *size_bytes* must hold. Any thread. Raises OSError, and
    CorruptFile when the log is broken, or when no snapshot tells of what has left the disk."""
    producers = _producers_at(directory, base)
    return list(_advance(producers, directory / segment_file(base, Suffix.LOG), size_bytes, base))


def _producers_at(directory: Path, base: int) -> Producers:
    files = [file for name in os.listdir(directory) if (file := parse_segment_file(name)) and file.mark is Mark.NONE]
    logs = sorted(file.offset for file in files if file.suffix is Suffix.LOG and file.offset < base)
    offset, producers = _newest(directory, [file.offset for file in files if file.suffix is Suffix.SNAPSHOT], base)
    if offset is None and (logs or [base])[0] > 0:
        raise CorruptFile(str(directory), 0, f"no producer snapshot tells which transactions were open at {base}")
    for at, next_base in zip(logs, [*logs, base][1:], strict=True):
        if next_base > (offset or 0):
            path = directory / segment_file(at, Suffix.LOG)
            for _ in _advance(producers, path, path.stat().st_size, offset or 0):
                pass
    return producers


def _newest(directory: Path, offsets: list[int], limit: int) -> tuple[int | None, Producers]:
    for offset in sorted((one for one in offsets if one <= limit), reverse=True):
        path = directory / segment_file(offset, Suffix.SNAPSHOT)
        try:
            return offset, Producers.from_entries(parse_snapshot(path.read_bytes(), str(path)), 0)
        except (CorruptFile, FileNotFoundError):
            continue  # the older ones tell the same with more of the log
    return None, Producers()


def _advance(producers: Producers, path: Path, size_bytes: int, start: int) -> Iterator[AbortedEntry]:
    """Take the segment's batches from offset *start* on into *producers*; the transactions that are aborted there."""
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        for position, base, _, size in heads(fd, 0, size_bytes, str(path)):
            if base < start:
                continue
            header = parse_header(os.pread(fd, HEADER_BYTES, position), 0, str(path))
            entry = aborted_entry(
                take_in(producers, header, os.pread(fd, size, position) if header.control else b"", 0)
            )
            if entry is not None:
                yield entry


def remake_aborted(disk: Disk, set_aside: SetAside, segment: Segment, why: CorruptFile) -> RemadeAborted:
    """What is to take the place of the `.txnindex` of a closed segment, which *why* is no good and is set aside. Any
    thread. Raises DiskFull, OSError, and CorruptFile as `find_aborted`: then nothing has changed."""
    log.warning("a transaction index is wrong, rebuilding it", extra={"log": segment.where, "why": why.reason})
    entries = AbortedEntries(find_aborted(segment.directory, segment.base, segment.size_bytes))
    path = segment.path(Suffix.TXN_INDEX)
    if path.exists():
        tp = parse_partition_directory(segment.directory.name)
        assert tp is not None
        set_aside.cut(tp, path, 0, path.stat().st_size)
    return RemadeAborted(
        write_beside(disk, segment, {Suffix.TXN_INDEX: entries.to_bytes()} if len(entries) else {}), entries
    )
