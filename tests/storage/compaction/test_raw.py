"""The quick look at records sees what the thorough one sees."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.formats import mutations
from tierd.base.errors import CorruptFile
from tierd.storage.batch import encode_batch, parse_header
from tierd.storage.compaction.kept import Kept
from tierd.storage.compaction.raw import plain_payload, raw_records
from tierd.storage.compression import Codec
from tierd.storage.header import HEADER_BYTES
from tierd.storage.records import Record, encode_records, iter_records

FIELDS = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)


@st.composite
def rows(draw: st.DrawFn) -> list[Record]:
    count = draw(st.integers(1, 12))
    offsets = sorted(draw(st.sets(st.integers(0, 100_000), min_size=count, max_size=count)))
    times = st.integers(-1, 2**45)
    return [Record(offset, draw(times), draw(FIELDS), draw(FIELDS), draw(HEADERS)) for offset in offsets]


@given(rows(), st.sampled_from(list(Codec)), st.integers(-(2**40), 2**40))
def test_records_are_found_and_copied(made: list[Record], codec: Codec, shift_ms: int) -> None:
    batch = encode_batch(made, base_offset=0, codec=codec)
    header = parse_header(batch)
    payload = plain_payload(memoryview(batch), header, "")
    found = raw_records(payload, header.count, "")
    assert [(one[0], header.base_timestamp_ms + one[1], one[2], one[3]) for one in found] == [
        (record.offset, record.timestamp_ms, record.key, record.value is not None) for record in made
    ]
    kept, wanted = Kept.of(found[::2]), made[::2]
    assert kept.copy(payload) == encode_records(wanted, 0, header.base_timestamp_ms)
    shifted = kept.copy(payload, shift_ms=shift_ms)
    assert shifted == encode_records(wanted, 0, header.base_timestamp_ms - shift_ms)
    at_once = [Record(row.offset, 7, row.key, row.value, row.headers) for row in wanted]
    assert kept.copy(payload, delta_ms=7) == encode_records(at_once, 0, 0)


def test_damaged_records_are_corrupt_or_read_alike() -> None:
    dice = Random(1)
    made = [Record(i, dice.randrange(10**12), dice.randbytes(i), dice.randbytes(9 * i)) for i in range(12)]
    payload = encode_records(made, 0, 0)
    header = parse_header(encode_batch(made, base_offset=0))
    for broken in mutations(payload, 3000):
        try:
            found = raw_records(broken, header.count, "here")
        except CorruptFile:
            continue
        header.size_bytes, header.base_timestamp_ms = HEADER_BYTES + len(broken), 0
        try:
            thorough = list(iter_records(bytes(HEADER_BYTES) + broken, header))
        except CorruptFile:
            continue  # in headers and the ends of values, where the quick look does not go
        assert [one[2] for one in found] == [record.key for record in thorough]


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x80" * 20, b"\x0e\x00" + b"\xff" * 12])
def test_cut_records_are_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptFile):
        raw_records(payload, 1, "here")
