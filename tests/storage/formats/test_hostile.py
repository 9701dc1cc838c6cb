"""No damage to any file gives anything but a CorruptFile that says what is wrong, or a sensible reading."""

import contextlib
from collections.abc import Callable

import pytest
from crc32c import crc32c

from kit.formats import FORMATS, Format, mutations
from kit.golden import golden
from tierd.base.errors import CorruptFile
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch, parse_header, walk
from tierd.storage.compression import Codec
from tierd.storage.header import LOG_APPEND_TIME
from tierd.storage.records import Record, iter_records
from tierd.storage.scan import scan_segment

MUTATIONS = 10_000
BASE = 15
_TXN = "clean/txn-0/00000000000000000015"
_RECORDS = [
    Record(15, 1_700_000_000_000, b"key", b"value " * 20, (("trace", b"\x01\x02"), ("none", None))),
    Record(16, 1_700_000_000_500, None, b"x" * 300),
    Record(18, 1_699_999_999_000, b"", None),
]
SAMPLES = {
    "log": encode_batch(_RECORDS, producer_id=7, producer_epoch=0, base_sequence=0)
    + encode_control_batch(
        20, ControlType.ABORT, producer_id=7, producer_epoch=1, timestamp_ms=1_700_000_001_000, coordinator_epoch=0
    ),
}
_FILES = {
    "offset index": f"{_TXN}.index",
    "time index": f"{_TXN}.timeindex",
    "producer snapshot": f"{_TXN}.snapshot",
    "transaction index": f"{_TXN}.txnindex",
    "leader epochs": "final/codec-none-0/leader-epoch-checkpoint",
    "checkpoint": "clean/cleaner-offset-checkpoint",
    "partition metadata": "clean/txn-0/partition.metadata",
    "meta.properties": "clean/meta.properties",
    "clean shutdown": "clean/.kafka_cleanshutdown",
}
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def sample(kind: Format) -> bytes:
    return SAMPLES.get(kind.name) or (golden("kafka") / _FILES[kind.name]).read_bytes()


def refusal(again: Callable[[bytes, int], bytes], raw: bytes) -> CorruptFile | None:
    """Why *raw* was not taken."""
    try:
        again(raw, BASE)
    except CorruptFile as error:
        return error
    except AssertionError:  # the log codec wrote other bytes than it read, which damage may well cause
        return None
    return None


def says_enough(error: CorruptFile | None, raw: bytes) -> bool:
    return error is None or (bool(error.reason) and 0 <= error.position <= len(raw))


@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_a_file_cut_anywhere(kind: Format) -> None:
    raw = sample(kind)
    assert kind.again(raw, BASE) == raw
    refusals = [refusal(kind.again, raw[:size]) for size in range(len(raw))]
    assert all(says_enough(error, raw) for error in refusals)
    taken = [size for size, error in enumerate(refusals) if error is None]
    whole_entries = {"offset index": 8, "time index": 12, "transaction index": 34}.get(kind.name)
    if whole_entries:
        assert taken == list(range(0, len(raw), whole_entries))
    elif kind.name == "log":
        assert taken == [0, len(SAMPLES["log"]) - 78]
    elif kind.name == "meta.properties":
        assert all(b"version=1" in raw[:size] for size in taken)
    else:
        assert taken in ([], [0])  # an empty clean-shutdown marker is what older Kafkas wrote


@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_mutations(kind: Format) -> None:
    for raw in mutations(sample(kind), MUTATIONS):
        assert says_enough(refusal(kind.again, raw), raw)


def test_mutations_of_a_snapshot_behind_its_crc() -> None:
    kind = next(kind for kind in FORMATS if kind.name == "producer snapshot")
    for raw in mutations(sample(kind), MUTATIONS, seed=1):
        sealed = raw[:2] + crc32c(raw[6:]).to_bytes(4, "big") + raw[6:]
        assert says_enough(refusal(kind.again, sealed), sealed)


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name.lower())
def test_mutations_of_compressed_records(codec: Codec) -> None:
    batch = encode_batch(_RECORDS, codec=codec)
    header = parse_header(batch)
    for raw in mutations(batch[61:], MUTATIONS, seed=codec):
        header.size_bytes = 61 + len(raw)
        with contextlib.suppress(CorruptFile):
            list(iter_records(batch[:61] + raw, header, limit_bytes=1024 * 1024))


@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name.lower())
def test_compressed_records_cut_anywhere(codec: Codec) -> None:
    batch = encode_batch(_RECORDS, codec=codec, attributes=LOG_APPEND_TIME)
    header = parse_header(batch)
    for size in range(61, len(batch)):
        header.size_bytes = size
        with pytest.raises(CorruptFile):
            list(iter_records(batch[:size], header))


def test_a_scan_gives_the_good_part_of_every_cut() -> None:
    raw = SAMPLES["log"]
    ends = [position + header.size_bytes for position, header in walk(raw)]
    for size in range(len(raw) + 1):
        cut = raw[:size]
        scan = scan_segment(lambda position, length, cut=cut: cut[position : position + length], size, BASE)  # type: ignore[misc]
        good = [position + header.size_bytes for position, header in scan]
        assert good == [end for end in ends if end <= size]
        assert scan.good_bytes == max([0, *good])
        assert (scan.problem is None) == (size in (0, *ends))


def test_a_scan_of_mutations_never_gives_a_changed_batch() -> None:
    raw = SAMPLES["log"]
    batches = {raw[position : position + header.size_bytes] for position, header in walk(raw)}
    outside_crc = (slice(0, 8), slice(12, 16))
    for damaged in mutations(raw, MUTATIONS, seed=2):
        scan = scan_segment(lambda position, length, d=damaged: d[position : position + length], len(damaged), BASE)  # type: ignore[misc]
        for position, header in scan:
            found = bytearray(damaged[position : position + header.size_bytes])
            for part in outside_crc:
                found[part] = b"\x00" * (part.stop - part.start)
            assert any(_without(batch, outside_crc) == found for batch in batches)


def _without(batch: bytes, parts: tuple[slice, ...]) -> bytearray:
    copy = bytearray(batch)
    for part in parts:
        copy[part] = b"\x00" * (part.stop - part.start)
    return copy
