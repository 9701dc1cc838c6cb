"""What a partition must hold: every batch that was acknowledged, less what a power cut may have taken from the end."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from tierd.remote.manifest import parse_manifest
from tierd.storage.batch import BatchHeader, check_crc, encode_batch, walk
from tierd.storage.header import CRC_AT, LENGTH_END, MAGIC
from tierd.storage.records import Record

PRODUCER = 7
Batch = tuple[BatchHeader, bytes]


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch at offsets [first, next); everything from its CRC on never changes."""

    first: int
    next: int
    sequence: int
    epoch: int
    body: bytes

    @property
    def raw(self) -> bytes:
        """As the producer sends it."""
        return struct.pack(">qiib", 0, CRC_AT - LENGTH_END + len(self.body), -1, MAGIC) + self.body


@dataclass
class History:
    """One partition's. Records have one idempotent producer."""

    sent: list[Sent] = field(default_factory=list)
    pending: Sent | None = None
    """The batch whose answer has not come, as if it went to the end."""
    floor: int = 0
    """Offsets below must survive everything: flushed, in the bucket, or found at a start."""
    log_start: int = 0
    """The largest that a client was told."""
    end: int = 0
    """Offset of the next batch."""
    gaps: set[tuple[int, int]] = field(default_factory=set)
    """Offsets [start, stop) that a cut took from between others."""

    @property
    def sequence(self) -> int:
        """Of the next record."""
        return self.sent[-1].sequence + self.sent[-1].next - self.sent[-1].first if self.sent else 0

    def make(self, count: int, size_bytes: int, now_ms: int, epoch: int) -> bytes:
        """The next batch, remembered as under way."""
        first = self.sequence
        records = [
            Record(n, now_ms + n, b"%d" % (first + n), (b"%d|" % (first + n)) * (size_bytes // 4)) for n in range(count)
        ]
        raw = bytes(encode_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=first))
        self.pending = Sent(self.end, self.end + count, first, epoch, raw[CRC_AT:])
        return raw

    def acknowledged(self, first: int) -> None:
        assert self.pending is not None
        assert first == self.end, f"offset {first} was given out, the log ended at {self.end}"
        self.sent.append(self.pending)
        self.end, self.pending = self.pending.next, None

    def survived(self, found: list[Batch], log_start: int, log_end: int, *, holes: bool) -> None:
        """After a start: *found* is all that clients can read. It becomes the history.

        *holes*: the last cut may have taken what lies at and above the floor from between others, not from the end.
        """
        assert log_end >= self.floor, f"the log ends at {log_end}, below {self.floor}"
        assert log_start >= self.log_start, f"log start fell from {self.log_start} to {log_start}"
        known = {one.first: one for one in (*self.sent, *([self.pending] if self.pending else []))}
        kept = [one for one in self.sent if one.first < log_start]
        at = log_start
        for header, raw in found:
            self._reach(at, header.base_offset, holes=holes)
            assert header.base_offset in known, f"nobody wrote {header.base_offset}"
            check(known[header.base_offset], header, raw)
            kept.append(known[header.base_offset])
            at = header.next_offset
        self._reach(at, log_end, holes=holes)
        there = {one.first for one in kept}
        lost = [one.first for one in self.sent if one.first not in there and one.first < self.floor]
        assert not lost, f"lost below {self.floor}: {lost}"
        self.sent, self.pending = kept, None
        self.log_start, self.end = log_start, log_end

    def _reach(self, at: int, offset: int, *, holes: bool) -> None:
        """The next thing after *at* is at *offset*."""
        if at != offset and (at, offset) not in self.gaps:
            assert holes, f"offsets {at} to {offset} are missing"
            self.gaps.add((at, offset))

    def check_bucket(self, archived: "list[Archived]") -> None:
        """The bucket's committed segments are one piece of the history, each offset once."""
        known = {one.first: one for one in self.sent}
        at = archived[0].base if archived else 0
        for segment in archived:
            released = segment.base <= self.log_start  # retention does not wait for copies
            assert released or self._nothing_in(at, segment.base), f"{segment.base} comes after {at}"
            inside = [one.first for one in self.sent if segment.base <= one.first < segment.next_base]
            assert [header.base_offset for header, _ in segment.batches] == inside, "bucket and log disagree"
            for header, raw in segment.batches:
                check(known[header.base_offset], header, raw)
            at = segment.next_base

    def _nothing_in(self, start: int, stop: int) -> bool:
        """The same offset, or a range that a cut has emptied: it needs no objects."""
        return start <= stop and not any(start <= one.first < stop for one in self.sent)


def check(one: Sent, header: BatchHeader, raw: bytes) -> None:
    assert (header.base_offset, header.next_offset) == (one.first, one.next)
    assert header.leader_epoch == one.epoch, f"{one.first}: epoch {header.leader_epoch}, written in {one.epoch}"
    assert raw[CRC_AT:] == one.body, f"{one.first}: other bytes"
    assert check_crc(raw, 0, header.size_bytes)


def batches(raw: bytes) -> list[Batch]:
    return [(header, raw[at : at + header.size_bytes]) for at, header in walk(raw)]


@dataclass(frozen=True, slots=True)
class Archived:
    """A committed segment of a `file:` bucket, read without tierd's catalog."""

    base: int
    next_base: int
    batches: list[Batch]


def archived(bucket: Path, topic: str, topic_id: str, partition: int) -> list[Archived]:
    """The committed segments of a partition, by base."""
    found = []
    for path in bucket.glob(f"{topic}-{topic_id}/{partition}/*.rsm-manifest"):
        log = path.with_suffix(".log")
        if log.exists() and path.with_suffix(".indexes").exists():
            manifest = parse_manifest(path.read_bytes(), str(path))
            found.append(Archived(manifest.base, manifest.next_base, batches(log.read_bytes())))
    return sorted(found, key=lambda one: one.base)
