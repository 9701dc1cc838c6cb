"""Records come one by one, whatever their size, and a batch that lies about them is found out."""

import dataclasses
import tracemalloc

import pytest

from tierd.base.errors import CorruptFile
from tierd.storage.batch import encode_batch, parse_header
from tierd.storage.compression import PIECE_BYTES, Codec
from tierd.storage.header import DELETE_HORIZON
from tierd.storage.records import Record, iter_records

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1024 * 1024


def _records(count: int, size: int) -> list[Record]:
    return [Record(7 + i, 1000 + i, b"k%d" % i, bytes([i % 251]) * size) for i in range(count)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("count", "size"), [(2000, 700), (3, PIECE_BYTES), (2, 3 * PIECE_BYTES + 1), (1, 0)])
def test_records_may_span_pieces(codec: Codec, count: int, size: int) -> None:
    records = _records(count, size)
    raw = encode_batch(records, codec=codec)
    assert list(iter_records(raw, parse_header(raw))) == records


def test_a_large_batch_needs_little_memory_while_its_first_records_are_read() -> None:
    raw = encode_batch(_records(64, MIB), codec=Codec.ZSTD)
    header = parse_header(raw)
    assert len(raw) < MIB
    tracemalloc.start()
    try:
        assert next(iter_records(raw, header)).offset == 7
        assert sum(1 for _ in iter_records(raw, header)) == 64
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("change", "reason"), [(1, "broken record|records, the header says 4"), (-1, "bytes")])
def test_a_wrong_count(codec: Codec, change: int, reason: str) -> None:
    raw = encode_batch(_records(3, 10), codec=codec)
    header = parse_header(raw)
    header.count += change
    records = iter_records(raw, header)
    assert [next(records).offset for _ in range(min(3, header.count))] == [7, 8, 9][: header.count]
    with pytest.raises(CorruptFile, match=reason):
        next(records)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_record_above_the_limit(codec: Codec) -> None:
    raw = encode_batch(_records(2, 5000), codec=codec)
    with pytest.raises(CorruptFile, match=r"a record of 50\d\d bytes, the limit is 4000"):
        list(iter_records(raw, parse_header(raw), limit_bytes=4000))


def test_unknown_codecs_and_empty_batches() -> None:
    raw = encode_batch(_records(1, 1))
    header = parse_header(raw)
    with pytest.raises(CorruptFile, match="unknown compression codec 6"):
        list(iter_records(raw, dataclasses.replace(header, attributes=6)))
    nothing = dataclasses.replace(header, count=0, size_bytes=61)
    assert list(iter_records(raw[:61], nothing)) == []


def test_times_are_relative_to_a_delete_horizon_too() -> None:
    raw = encode_batch([Record(0, 2_000_000), Record(1, 10)], attributes=DELETE_HORIZON)
    assert [record.timestamp_ms for record in iter_records(raw, parse_header(raw))] == [2_000_000, 10]


def test_header_names_that_are_not_utf8_come_back() -> None:
    name = b"\xff\xfeid".decode("utf-8", "surrogateescape")
    record = Record(0, 0, None, None, ((name, b"1"), ("", None)))
    raw = encode_batch([record])
    assert b"\xff\xfeid" in raw
    assert list(iter_records(raw, parse_header(raw))) == [record]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x00\x00\x00\x01\x01\x03", "-2 headers"),
        (b"\x00\x00\x00\x01\x01\x02\x01\x01", "a header without a name"),
        (b"\x00\x00\x00\x05\x01\x00", "a field of -3 bytes"),
        (b"\x00\x00\x00\x20\x01\x00", "a field of 16 bytes"),
        (b"\x00\x00\x00\x01\x01\x00\x00", "its fields end 1 bytes before it does"),
        (b"\x00\x00" + b"\xff" * 6 + b"\x01\x01\x01\x00", "a varint of more than 5 bytes"),
        (b"", "broken record"),
    ],
)
def test_records_that_cannot_be(body: bytes, reason: str) -> None:
    raw = bytearray(encode_batch([Record(0, 0)])[:61] + bytes([2 * len(body)]) + body)
    header = dataclasses.replace(parse_header(raw), size_bytes=len(raw))
    with pytest.raises(CorruptFile, match=reason):
        list(iter_records(raw, header, "here"))
