"""The bytes of one segment: every batch of its log, its indexes against them. Knows no bucket: bytes come in pieces.

Everything that does not agree is a Finding over the offsets that it concerns.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.indexes import IndexFiles
from tierd.remote.manifest import EpochStart
from tierd.storage.batch import ControlType, parse_control
from tierd.storage.epochs import parse_epochs
from tierd.storage.header import BatchHeader
from tierd.storage.records import iter_records
from tierd.storage.scan import SegmentScan
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.sparse import OffsetEntries, TimeEntries
from tierd.storage.txnindex import AbortedEntry, parse_txn_index
from tierd.tiering.verify.verdicts import Finding, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What manifest and keys say of the segment over offsets [base, next_base)."""

    log_key: str
    indexes_key: str
    segment_id: Uuid
    base: int
    next_base: int
    size_bytes: int
    """Of the log itself, uncompressed."""
    largest_timestamp_ms: int | None
    epochs: tuple[EpochStart, ...]

    def finding(self, verdict: Verdict, reason: str, start: int | None = None, stop: int | None = None) -> Finding:
        """About [start, stop), or about the whole segment."""
        first, last = self.base if start is None else start, self.next_base if stop is None else stop
        return Finding(verdict, min(first, self.next_base - 1), max(last, first + 1), reason, self.segment_id)


class Pieces:
    """Reads of a stream that only goes forward, as a SegmentScan wants them; what it has passed is let go."""

    def __init__(self, pieces: Iterator[bytes | bytearray]) -> None:
        self._pieces = pieces
        self._held = b""
        self._at = 0
        self.broken = False
        """The stream itself failed: nothing comes behind it."""

    def read(self, position: int, length: int) -> memoryview:
        """Bytes [position, position + length), fewer at the end. *position* never falls behind an earlier one's.

        Raises CorruptFile as the stream does.
        """
        while self._at + len(self._held) < position + length:
            try:
                piece = next(self._pieces, None)
            except CorruptFile:
                self.broken = True
                raise
            if piece is None:
                break
            passed = min(max(0, position - self._at), len(self._held))
            self._held, self._at = self._held[passed:] + piece, self._at + passed
        start = max(0, position - self._at)
        return memoryview(self._held)[start : start + length]

    def drain(self) -> None:
        """Have the rest come, too: whoever counts or sums pieces has seen all of them."""
        for _ in self._pieces:
            pass


@dataclass(slots=True)
class _Walk:
    """What one walk over the batches has seen."""

    positions: "array[int]" = field(default_factory=lambda: array("q"))
    bases: "array[int]" = field(default_factory=lambda: array("q"))
    largest_ms: "array[int]" = field(default_factory=lambda: array("q"))
    """The largest timestamp up to and with each batch."""
    aborts: dict[int, int] = field(default_factory=dict)
    """Offset of an abort marker -> producer, when data of the transaction lies in this segment."""
    controls: dict[int, int] = field(default_factory=dict)
    """Offset of each control batch -> producer."""
    open: set[int] = field(default_factory=set)
    """Producers with transactional data since their last marker."""
    wrong_epoch: tuple[int, int, int] | None = None
    """Offset and epoch of a batch, and the epoch that the manifest says."""
    whole: bool = True

    def take(self, position: int, header: BatchHeader) -> None:
        self.positions.append(position)
        self.bases.append(header.base_offset)
        before = self.largest_ms[-1] if self.largest_ms else -1
        self.largest_ms.append(max(before, header.max_timestamp_ms))
        if header.transactional and not header.control:
            self.open.add(header.producer_id)


def check_content(told: Told, log: Iterator[bytes | bytearray], files: IndexFiles | None) -> list[Finding]:
    """All that is wrong with a segment's log and with its index *files* (None: they could not be had; that is said
    elsewhere)."""
    findings: list[Finding] = []
    indexes = _Indexes(told, files, findings)
    walk = _walk(told, Pieces(log), indexes.offsets, findings)
    indexes.compare(walk)
    if walk.wrong_epoch is not None:
        offset, epoch, expected = walk.wrong_epoch
        reason = f"{told.log_key}: the batch at offset {offset} has epoch {epoch}, the manifest says {expected}"
        findings.append(told.finding(Verdict.FAILURE, reason, offset))
    largest_ms = walk.largest_ms[-1] if walk.largest_ms else -1
    told_ms = -1 if told.largest_timestamp_ms is None else told.largest_timestamp_ms
    if walk.whole and largest_ms != told_ms:
        reason = f"{told.log_key}: the largest timestamp is {largest_ms}, the manifest says {told_ms}"
        findings.append(told.finding(Verdict.WARNING, reason))
    return findings


def _walk(told: Told, pieces: Pieces, offsets: OffsetEntries | None, findings: list[Finding]) -> _Walk:
    """Every batch; behind one that is broken it goes on where the offset index names the next."""
    walk = _Walk()
    position, expected = 0, told.base
    while position < told.size_bytes:
        scan = SegmentScan(pieces.read, told.size_bytes, told.base, told.log_key, start=position)
        scan.next_offset = expected
        for at, header in scan:
            walk.take(at, header)
            _look_at(told, walk, header, scan, findings)
        expected = scan.next_offset
        if scan.problem is None:
            break
        walk.whole = False
        position = told.size_bytes if pieces.broken else _next_indexed(offsets, scan.good_bytes, told.size_bytes)
        reason = f"{told.log_key}: byte {scan.good_bytes}: {scan.problem.reason}"
        findings.append(told.finding(Verdict.FAILURE, reason, expected, _offset_at(pieces, position, told)))
    if expected > told.next_base:
        reason = f"{told.log_key}: offset {expected - 1} lies behind the segment's end"
        findings.append(told.finding(Verdict.FAILURE, reason))
    pieces.drain()
    return walk


def _next_indexed(offsets: OffsetEntries | None, position: int, size_bytes: int) -> int:
    """Where the first batch behind *position* begins that the index names; *size_bytes* when it names none."""
    found = None if offsets is None else offsets.first_from(position + 1)
    return size_bytes if found is None else found[1]


def _offset_at(pieces: Pieces, position: int, told: Told) -> int:
    raw = pieces.read(position, 8) if position < told.size_bytes else b""
    offset = int.from_bytes(raw, "big", signed=True) if len(raw) == 8 else told.next_base
    return offset if told.base < offset < told.next_base else told.next_base


def _look_at(told: Told, walk: _Walk, header: BatchHeader, scan: SegmentScan, findings: list[Finding]) -> None:
    """Epochs of all batches, and markers."""
    epoch = _epoch_at(told.epochs, header.base_offset)  # None: below a log start that has moved into the segment
    if walk.wrong_epoch is None and epoch is not None and -1 != header.leader_epoch != epoch:
        walk.wrong_epoch = (header.base_offset, header.leader_epoch, epoch)
    if not header.control or not header.count:
        return
    walk.controls[header.base_offset] = header.producer_id
    try:
        kind, _ = parse_control(next(iter_records(scan.batch(header), header, told.log_key)))
    except (CorruptFile, StopIteration) as error:
        reason = f"{told.log_key}: the marker at offset {header.base_offset} cannot be read: {error}"
        findings.append(told.finding(Verdict.FAILURE, reason, header.base_offset, header.next_offset))
        return
    if kind == ControlType.ABORT and header.producer_id in walk.open:
        walk.aborts[header.base_offset] = header.producer_id
    walk.open.discard(header.producer_id)


def _epoch_at(epochs: Sequence[EpochStart], offset: int) -> int | None:
    at = bisect_right([one.start for one in epochs], offset)
    return epochs[at - 1].epoch if at else None


class _Indexes:
    """The index files, parsed; what does not parse is a finding and is not compared."""

    def __init__(self, told: Told, files: IndexFiles | None, findings: list[Finding]) -> None:
        self._told = told
        self._findings = findings
        self.offsets: OffsetEntries | None = None
        self._times: TimeEntries | None = None
        self._aborted: list[AbortedEntry] | None = None
        if files is not None:
            self._parse(told, files)

    def _parse(self, told: Told, files: IndexFiles) -> None:
        where = told.indexes_key
        try:
            self.offsets = OffsetEntries.from_bytes(files.offset, told.base, where, told.size_bytes)
        except CorruptFile as error:
            self._wrong(f"offset index: {error}")
        try:
            self._times = TimeEntries.from_bytes(files.timestamp, told.base, where, told.next_base)
        except CorruptFile as error:
            self._wrong(f"time index: {error}")
        try:
            self._aborted = parse_txn_index(files.transaction or b"", where)
        except CorruptFile as error:
            self._wrong(f"transaction index: {error}")
        for name, raw, parse in (
            ("producer snapshot", files.producer_snapshot, parse_snapshot),
            ("leader epochs", files.leader_epoch, parse_epochs),
        ):
            try:
                parse(raw, where)
            except CorruptFile as error:
                verdict = Verdict.FAILURE if raw else Verdict.WARNING  # old segments have none: it is made from batches
                self._wrong(f"{name}: {error}", verdict=verdict)

    def compare(self, walk: _Walk) -> None:
        """With the batches; what was broken there has no batch, so only a whole walk is held against them."""
        if walk.whole:
            self._compare_offsets(walk)
            self._compare_times(walk)
            self._compare_aborted(walk)

    def _compare_offsets(self, walk: _Walk) -> None:
        """An entry leads to a batch that begins at or below its offset: then nothing is passed over."""
        places = dict(zip(walk.positions, walk.bases, strict=True))
        offsets = self.offsets
        for relative, position in zip(offsets.relatives, offsets.positions, strict=True) if offsets else ():
            base = places.get(position)
            if base is None or base > self._told.base + relative:
                self._wrong(f"offset index: byte {position} is not where offset {self._told.base + relative} is found")
                return

    def _compare_times(self, walk: _Walk) -> None:
        """No batch before the one that an entry names has a later timestamp than the entry."""
        times = self._times
        for timestamp_ms, offset in zip(times.timestamps, times.offsets, strict=True) if times else ():
            at = bisect_right(walk.bases, offset) - 1  # the batch with that offset
            if at > 0 and walk.largest_ms[at - 1] > timestamp_ms:
                self._wrong(f"time index: records below offset {offset} are later than its time {timestamp_ms}")
                return

    def _compare_aborted(self, walk: _Walk) -> None:
        if self._aborted is None:
            return
        named = {entry.marker_offset: entry.producer_id for entry in self._aborted}
        for marker, producer_id in walk.aborts.items():
            if named.get(marker) != producer_id:
                self._wrong(f"transaction index: the transaction that is aborted at offset {marker} is not named")
        for marker, producer_id in named.items():
            inside = self._told.base <= marker < self._told.next_base
            if not inside or walk.controls.get(marker, producer_id) != producer_id:
                self._wrong(f"transaction index: offset {marker} is no marker of producer {producer_id}")

    def _wrong(self, reason: str, *, verdict: Verdict = Verdict.FAILURE) -> None:
        where = "" if reason.find(self._told.indexes_key) >= 0 else f"{self._told.indexes_key}: "
        self._findings.append(self._told.finding(verdict, f"{where}{reason}"))
