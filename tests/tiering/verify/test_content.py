"""A segment's bytes: what a real Kafka wrote is found whole, and damage is found where it is."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kit.golden import golden, partitions
from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.indexes import IndexFiles
from tierd.remote.manifest import EpochStart
from tierd.storage.batch import walk
from tierd.storage.epochs import parse_epochs
from tierd.storage.header import BatchHeader
from tierd.storage.index import ENTRY_BYTES
from tierd.storage.snapshot import HEAD_BYTES
from tierd.storage.timeindex import ENTRY_BYTES as TIME_BYTES
from tierd.tiering.verify.content import Pieces, Told, check_content
from tierd.tiering.verify.verdicts import Finding, Verdict

RECORDED = partitions("kafka", "clean")
CHUNK = 5_000


class Segment:
    """The files of a closed segment, as a manifest would tell of it."""

    def __init__(self, folder: Path, base: int, next_base: int) -> None:
        def file(suffix: str, at: int = base) -> bytes:
            path = folder / f"{at:020d}{suffix}"
            return path.read_bytes() if path.exists() else b""

        self.log = file(".log")
        self.batches: list[tuple[int, BatchHeader]] = list(walk(self.log))
        epochs = parse_epochs((folder / "leader-epoch-checkpoint").read_bytes())
        before = [one for one in epochs if one.start_offset <= base]
        inside = [one for one in epochs if base < one.start_offset < next_base]
        starts = [EpochStart(before[-1].epoch, base)] if before else []
        largest = max((header.max_timestamp_ms for _, header in self.batches), default=-1)
        self.told = Told(
            log_key="x.log",
            indexes_key="x.indexes",
            segment_id=Uuid(bytes(16)),
            base=base,
            next_base=next_base,
            size_bytes=len(self.log),
            largest_timestamp_ms=None if largest < 0 else largest,
            epochs=(*starts, *(EpochStart(one.epoch, one.start_offset) for one in inside)),
        )
        self.files = IndexFiles(
            offset=file(".index"),
            timestamp=file(".timeindex"),
            producer_snapshot=file(".snapshot", next_base),
            leader_epoch=(folder / "leader-epoch-checkpoint").read_bytes(),
            transaction=file(".txnindex") or None,
        )

    def check(self, log: bytes | None = None, files: IndexFiles | None = None) -> list[Finding]:
        data = self.log if log is None else log
        return check_content(self.told, pieces(data), files or self.files)


def pieces(data: bytes, size: int = CHUNK) -> Iterator[bytes | bytearray]:
    return (data[at : at + size] for at in range(0, len(data), size))


def closed(folder: Path) -> Iterator[Segment]:
    bases = sorted(int(path.stem) for path in folder.glob("*.log"))
    for base, next_base in pairwise(bases):
        if (folder / f"{base:020d}.log").stat().st_size:
            yield Segment(folder, base, next_base)


@pytest.fixture
def segment() -> Segment:
    """Several batches with index entries."""
    return next(
        one for one in closed(golden("kafka") / "clean" / "codec-none-0") if len(one.files.offset) >= 2 * ENTRY_BYTES
    )


@pytest.mark.parametrize("folder", RECORDED, ids=lambda path: path.name)
def test_what_kafka_wrote_is_whole(folder: Path) -> None:
    for segment in closed(folder):
        assert [one for one in segment.check() if one.verdict is Verdict.FAILURE] == []


def test_pieces_go_forward_and_let_go() -> None:
    data = bytes(range(256)) * 40
    for size in (1, 7, 300, 20_000):
        stream = Pieces(pieces(data, size))
        for start, length in ((0, 10), (5, 300), (5, 10), (4000, 50), (10_230, 100), (20_000, 5)):
            assert bytes(stream.read(start, length)) == data[start : start + length]


def test_a_broken_batch_is_a_range_that_ends_where_the_index_leads(segment: Segment) -> None:
    position, header = segment.batches[1]
    log = bytearray(segment.log)
    log[position + 70] ^= 1
    (found,) = segment.check(bytes(log))
    assert (found.verdict, found.start) == (Verdict.FAILURE, header.base_offset)
    assert f"byte {position}" in found.reason
    assert header.next_offset <= found.stop < segment.told.next_base


def test_without_an_index_nothing_behind_a_broken_batch_is_found(segment: Segment) -> None:
    position, header = segment.batches[1]
    log = bytearray(segment.log)
    log[position + 70] ^= 1
    found = segment.check(bytes(log), replace(segment.files, offset=b""))
    assert [(one.start, one.stop) for one in found] == [(header.base_offset, segment.told.next_base)]


def test_a_stream_that_breaks_is_one_finding_though_the_index_names_more(segment: Segment) -> None:
    """A chunk that does not decrypt: nothing comes behind it, so nothing is said about what would."""

    def breaking() -> Iterator[bytes | bytearray]:
        yield segment.log[: segment.batches[1][0] + 20]
        raise CorruptFile("x.log", 0, "that does not decrypt")

    (found,) = check_content(segment.told, breaking(), segment.files)
    assert (found.verdict, found.start, found.stop) == (Verdict.FAILURE, segment.told.base, segment.told.next_base)
    assert found.reason == "x.log: byte 0: that does not decrypt"


def test_every_truncation_of_the_log_is_found(segment: Segment) -> None:
    for size in range(0, len(segment.log), 97):
        assert any(one.verdict is Verdict.FAILURE for one in segment.check(segment.log[:size])), size


def test_every_flipped_byte_of_a_batch_is_found_but_those_that_no_crc_covers(segment: Segment) -> None:
    """Base offset and leader epoch lie outside of it: the manifest knows the epoch, and offsets ascend."""
    position, header = segment.batches[1]
    for at in range(position, position + header.size_bytes, 3):
        log = bytearray(segment.log)
        log[at] ^= 0x40
        found = segment.check(bytes(log))
        if at - position not in range(8):
            assert any(one.verdict is Verdict.FAILURE for one in found), at - position


def test_an_offset_index_that_leads_past_a_record(segment: Segment) -> None:
    raw = bytearray(segment.files.offset)
    raw[7] ^= 1
    (found,) = segment.check(files=replace(segment.files, offset=bytes(raw)))
    assert "offset index" in found.reason
    other = bytearray(segment.files.offset)
    other[0:4] = (int.from_bytes(other[0:4], "big") - 60).to_bytes(4, "big", signed=True)
    assert segment.check(files=replace(segment.files, offset=bytes(other)))


def test_a_time_index_that_passes_over_later_records(segment: Segment) -> None:
    raw = segment.files.timestamp
    assert len(raw) >= 2 * TIME_BYTES
    raw = (int.from_bytes(raw[:8], "big") - 1).to_bytes(8, "big") + raw[
        -4:
    ]  # the last entry alone, of the first's time
    (found,) = segment.check(files=replace(segment.files, timestamp=raw))
    assert "time index" in found.reason


def test_files_that_do_not_parse(segment: Segment) -> None:
    for name in ("offset", "timestamp", "producer_snapshot", "leader_epoch"):
        (found,) = segment.check(files=replace(segment.files, **{name: b"nonsense!"}))
        assert found.verdict is Verdict.FAILURE
        assert "x.indexes" in found.reason
    (found,) = segment.check(files=replace(segment.files, transaction=b"x"))
    assert "transaction index" in found.reason
    (found,) = segment.check(files=replace(segment.files, producer_snapshot=b""))
    assert found.verdict is Verdict.WARNING
    raw = bytearray(segment.files.producer_snapshot)
    raw[HEAD_BYTES - 1] ^= 1
    assert segment.check(files=replace(segment.files, producer_snapshot=bytes(raw)))


def test_an_epoch_that_the_manifest_does_not_have(segment: Segment) -> None:
    told = segment.told
    segment.told = replace(told, epochs=(EpochStart(told.epochs[0].epoch + 1, told.base),))
    (found,) = segment.check()
    assert "has epoch" in found.reason


def test_a_largest_timestamp_that_is_another_is_a_warning(segment: Segment) -> None:
    segment.told = replace(segment.told, largest_timestamp_ms=1)
    assert [one.verdict for one in segment.check()] == [Verdict.WARNING]


def test_a_log_that_goes_on_behind_the_segment(segment: Segment) -> None:
    segment.told = replace(segment.told, next_base=segment.told.next_base - 5)
    assert any("behind the segment's end" in one.reason for one in segment.check())


def test_aborted_transactions_are_named_by_the_index_and_by_nothing_else() -> None:
    with_aborts = [
        segment for folder in RECORDED for segment in closed(folder) if segment.files.transaction is not None
    ]
    assert with_aborts
    lost = 0
    for segment in with_aborts:
        found = segment.check(files=replace(segment.files, transaction=None))
        lost += any("is not named" in one.reason for one in found)
        assert segment.files.transaction is not None
        raw = bytearray(segment.files.transaction)
        raw[2:10] = (12345).to_bytes(8, "big")  # the producer
        assert any(
            "transaction index" in one.reason
            for one in segment.check(files=replace(segment.files, transaction=bytes(raw)))
        )
    assert lost
