"""Batches in place: headers, patching, the broker's time, markers, building what Kafka's producer builds."""

import dataclasses
from pathlib import Path

import pytest

from kit.golden import golden
from tierd.base.errors import CorruptFile
from tierd.storage.batch import (
    HEADER_BYTES,
    BatchHeader,
    ControlType,
    check_crc,
    clear_log_append_bit,
    encode_batch,
    encode_control_batch,
    encode_header,
    parse_control,
    parse_header,
    set_log_append_time,
    size_at,
    walk,
)
from tierd.storage.compression import Codec
from tierd.storage.header import CODEC_MASK, LOG_APPEND_TIME
from tierd.storage.records import Record, iter_records

CLEAN = golden("kafka") / "clean"


def _batches(partition: str) -> list[tuple[bytes, BatchHeader]]:
    found: list[tuple[bytes, BatchHeader]] = []
    for path in sorted((CLEAN / partition).glob("*.log")):
        raw = path.read_bytes()
        found += [(raw[at : at + header.size_bytes], header) for at, header in walk(raw, path.name)]
    return found


@pytest.mark.parametrize("partition", ["codec-none-0", "codec-lz4-0", "idempotent-0", "compacted-0", "txn-0"])
def test_we_build_the_very_bytes_that_kafka_stored(partition: str) -> None:
    for raw, header in _batches(partition):
        if header.delete_horizon:
            continue
        built = encode_batch(
            list(iter_records(raw, header)),
            codec=header.codec,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            attributes=header.attributes & ~CODEC_MASK,
            last_offset_delta=header.last_offset_delta,
        )
        assert built == raw


def test_markers() -> None:
    markers = [(raw, header) for raw, header in _batches("txn-0") if header.control]
    assert len(markers) == 48
    for raw, header in markers:
        [record] = iter_records(raw, header)
        kind, epoch = parse_control(record)
        built = encode_control_batch(
            header.base_offset,
            ControlType(kind),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp_ms=record.timestamp_ms,
            coordinator_epoch=epoch,
            leader_epoch=header.leader_epoch,
        )
        assert built == raw
        assert len(raw) == 78


def test_the_brokers_time_touches_nothing_else() -> None:
    """The topics `codec-zstd` and `logappend` got the same payloads, one with the broker's time."""
    for (sent, plain), (stored, header) in zip(_batches("codec-zstd-0"), _batches("logappend-0"), strict=False):
        assert sent[HEADER_BYTES:] == stored[HEADER_BYTES:]
        raw = bytearray(sent)
        set_log_append_time(raw, 0, header.max_timestamp_ms)
        ours = parse_header(raw)
        assert (ours.crc, ours.attributes, ours.base_timestamp_ms) == (
            _crc_with(stored, plain),
            header.attributes,
            plain.base_timestamp_ms,
        )


def _crc_with(stored: bytes, plain: BatchHeader) -> int:
    """The CRC of *stored* had it come from the producer of *plain* (ids lie inside the CRC)."""
    swapped = bytearray(stored)
    swapped[43:57] = _ids(plain)
    clear_log_append_bit(swapped, 0)
    set_log_append_time(swapped, 0, parse_header(swapped).max_timestamp_ms)
    return parse_header(swapped).crc


def _ids(header: BatchHeader) -> bytes:
    return (
        header.producer_id.to_bytes(8, "big", signed=True)
        + header.producer_epoch.to_bytes(2, "big", signed=True)
        + header.base_sequence.to_bytes(4, "big", signed=True)
    )


def test_the_log_append_bit_comes_and_goes() -> None:
    raw = bytearray(b"other bytes before" + encode_batch([Record(0, 5, b"k", b"v")]))
    at = len(b"other bytes before")
    before = bytes(raw)
    set_log_append_time(raw, at, 77)
    assert parse_header(raw, at).log_append_time
    assert parse_header(raw, at).max_timestamp_ms == 77
    assert check_crc(raw, at, len(raw) - at)
    clear_log_append_bit(raw, at)
    assert not parse_header(raw, at).attributes & LOG_APPEND_TIME
    assert check_crc(raw, at, len(raw) - at)
    again = bytearray(before)
    clear_log_append_bit(again, at)
    assert again == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"magic": 1}, "byte 7: batch magic 1, only 2 is known"),
        ({"magic": 0}, "byte 7: batch magic 0"),
        ({"size_bytes": 60}, "byte 7: batch of 60 bytes"),
        ({"size_bytes": -5}, "byte 7: batch of -5 bytes"),
    ],
)
def test_headers_that_cannot_be(change: dict[str, int], reason: str) -> None:
    header = dataclasses.replace(parse_header(encode_batch([Record(0, 5)])), **change)
    with pytest.raises(CorruptFile, match=f"a.log: {reason}"):
        parse_header(b"1234567" + encode_header(header), 7, "a.log")


def test_a_header_needs_its_61_bytes_only() -> None:
    raw = encode_batch([Record(0, 5, b"k" * 1000)])
    assert parse_header(raw[:HEADER_BYTES]).size_bytes == len(raw) == size_at(raw)
    with pytest.raises(CorruptFile, match="no room for a batch header"):
        parse_header(raw[: HEADER_BYTES - 1])


def test_a_crc_is_of_the_whole_batch_in_place() -> None:
    raw = encode_batch([Record(0, 5, b"key", b"value")])
    assert check_crc(b"xx" + raw + b"yy", 2, len(raw))
    assert not check_crc(raw, 0, len(raw) + 1)
    assert not check_crc(raw, 0, HEADER_BYTES - 1)
    for at in range(16, len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        assert check_crc(changed, 0, len(raw)) == (at == 16)  # the magic is not covered


def test_a_walk_ends_at_the_first_batch_that_is_not_whole() -> None:
    raw = encode_batch([Record(0, 5)]) + encode_batch([Record(1, 6)])
    batches = walk(raw[:-1], "x")
    assert next(batches)[0] == 0
    with pytest.raises(CorruptFile, match=f"x: byte {len(raw) // 2}: batch of .* only .* are there"):
        next(batches)


def test_control_records_of_unknown_types_come_as_they_are() -> None:
    assert parse_control(Record(0, 0, b"\x00\x00\x00\x03", b"\x00\x00\x00\x00\x00\x07")) == (3, 7)
    assert parse_control(Record(0, 0, b"\x00\x00\x00\x02", None)) == (2, -1)
    with pytest.raises(CorruptFile, match="too short"):
        parse_control(Record(0, 0, b"\x00"))


def test_codecs_are_numbered_as_stored() -> None:
    stored = {path.parent.name: parse_header(path.read_bytes()).codec for path in _first_logs()}
    assert stored == {f"codec-{codec.name.lower()}-0": codec for codec in Codec}


def _first_logs() -> list[Path]:
    return sorted(CLEAN.glob("codec-*/00000000000000000000.log"))
