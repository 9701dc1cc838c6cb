"""A scan sees every batch once, holds little of the file, and says how far it is good."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.golden import golden, golden_files
from tierd.base.errors import CorruptFile
from tierd.storage import scan as scanning
from tierd.storage.batch import encode_batch, patch, walk
from tierd.storage.records import Record
from tierd.storage.scan import SegmentScan, scan_segment


def _scan(raw: bytes, base: int = 0, start: int = 0) -> SegmentScan:
    return scan_segment(lambda position, length: raw[position : position + length], len(raw), base, "s", start=start)


@pytest.mark.parametrize("window", [61, 62, 100, 1000, 1024 * 1024])
def test_every_batch_whatever_the_window(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "WINDOW_BYTES", window)
    for path in golden_files(".log", "clean"):
        raw = path.read_bytes()
        scan = _scan(raw, int(path.stem))
        assert list(scan) == list(walk(raw))
        scan.require_whole()
        assert scan.good_bytes == len(raw)
        scan = _scan(raw, int(path.stem))
        for position, header in scan:
            assert scan.batch(header) == raw[position : position + header.size_bytes]


def test_it_never_asks_for_more_than_a_window() -> None:
    raw = encode_batch([Record(0, 0, None, os.urandom(3 * scanning.WINDOW_BYTES))]) + encode_batch([Record(1, 0)])
    asked = []

    def read(position: int, length: int) -> bytes:
        asked.append(length)
        return raw[position : position + length]

    assert len(list(scan_segment(read, len(raw), 0))) == 2
    assert max(asked) <= scanning.WINDOW_BYTES
    assert sum(asked) < 1.5 * len(raw)


def test_descriptors_are_read_in_place(tmp_path: Path) -> None:
    raw = encode_batch([Record(4, 0)]) + encode_batch([Record(9, 0)])
    path = tmp_path / "a.log"
    path.write_bytes(raw)
    with path.open("rb") as file:
        scan = scan_segment(file.fileno(), len(raw), 4, path.name)
        assert [header.base_offset for _, header in scan] == [4, 9]
        assert scan.next_offset == 10
        assert file.tell() == 0


def test_it_can_begin_at_any_batch() -> None:
    raw = encode_batch([Record(4, 0)]) + encode_batch([Record(9, 0)])
    scan = _scan(raw, 4, start=len(raw) // 2)
    assert [header.base_offset for _, header in scan] == [9]


@pytest.mark.parametrize(
    ("name", "good", "reason"),
    [
        ("rd-torn-tail-0", 0, "batch of 399 bytes, only 388 are there"),
        ("rd-batch-longer-than-file-0", 0, "batch of 19962 bytes, only 399 are there"),
        ("rd-flip-last-0", 0, "the CRC does not match"),
        ("rd-zero-tail-0", 1, "batch magic 0, only 2 is known"),
        ("rd-garbage-tail-0", 1, "batch magic 55, only 2 is known"),
    ],
)
def test_damaged_tails_end_where_kafka_cuts_them(name: str, good: int, reason: str) -> None:
    path = max((golden("kafka") / "damaged" / name).glob("*.log"))
    scan = _scan(path.read_bytes(), int(path.stem))
    assert len(list(scan)) == good
    assert scan.problem is not None
    assert scan.problem.reason == reason
    assert scan.problem.position == scan.good_bytes
    kept = golden("kafka") / "repaired" / name / path.name
    assert kept.stat().st_size == scan.good_bytes
    with pytest.raises(CorruptFile, match=reason):
        scan.require_whole()


def _renumbered(*bases: int) -> Iterator[bytes]:
    for base in bases:
        raw = bytearray(encode_batch([Record(0, 0), Record(1, 0)]))
        patch(raw, 0, base, 0)
        yield bytes(raw)


@pytest.mark.parametrize(
    ("bases", "good", "reason"),
    [
        ((9,), 0, "offsets 9 to 10 where 10 or later must follow"),
        ((10, 11), 1, "offsets 11 to 12 where 12 or later must follow"),
        ((10, 12, 8), 2, "offsets 8 to 9"),
        ((10, 10 + 2**31 - 1), 1, "too far from the segment's base 10"),
        ((-5,), 0, "offsets -5 to -4"),
    ],
)
def test_offsets_must_go_on(bases: tuple[int, ...], good: int, reason: str) -> None:
    scan = _scan(b"".join(_renumbered(*bases)), 10)
    assert len(list(scan)) == good
    assert scan.problem is not None
    assert reason in scan.problem.reason


def test_holes_are_no_damage() -> None:
    scan = _scan(b"".join(_renumbered(10, 500, 10 + 2**31 - 2)), 10)
    assert len(list(scan)) == 3
    assert scan.problem is None


def test_a_file_that_shrinks_under_the_scan() -> None:
    raw = encode_batch([Record(0, 0)])
    scan = scan_segment(lambda position, length: raw[position : position + length], 10_000, 0)
    assert len(list(scan)) == 1
    assert scan.problem is not None
    assert scan.good_bytes == len(raw)
