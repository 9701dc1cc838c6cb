"""The quick pass over a batch finds the keys that a thorough one finds, or leaves the batch to it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.formats import mutations
from tierd.base.errors import CorruptFile
from tierd.storage.compaction.keys import quick_keys
from tierd.storage.compaction.raw import raw_records, records_at
from tierd.storage.records import Record, encode_records

T0 = 1_700_000_000_000


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    """Runs of records of one layout, long and short, and offset deltas that count up, or nearly."""
    made: list[Record] = []
    offset = draw(st.integers(0, 1))
    for _ in range(draw(st.integers(1, 5))):
        key = draw(st.none() | st.binary(max_size=90))
        value = draw(st.none() | st.binary(max_size=20) | st.just(bytes(200)))
        step_ms = draw(st.sampled_from([0, 0, 1, 7, -3, 100_000]))
        for _ in range(draw(st.sampled_from([1, 2, 15, 16, 17, 40, 70]))):
            made.append(Record(offset, T0 + step_ms * offset, key, value, ()))
            offset += 1
        offset += draw(st.sampled_from([0, 0, 0, 0, 1, 300]))
    return made


@given(batches())
def test_keys_of_runs(made: list[Record]) -> None:
    payload = encode_records(made, 0, T0)
    keys = quick_keys(payload, len(made))
    assert (keys is None) == any(record.key is None for record in made)
    if keys is not None:
        assert keys.found == [record.key for record in made]
        assert keys.dense == (made[0].offset == 0 and made[-1].offset == len(made) - 1)
        assert keys.tombstones == any(record.value is None for record in made)


@pytest.mark.parametrize("count", [63, 64, 65, 80, 81, 8191, 8192, 8193, 8300])
def test_offset_deltas_become_wider(count: int) -> None:
    made = [Record(i, T0, b"%08d" % i, b"v", ()) for i in range(count)]
    payload = encode_records(made, 0, T0)
    keys = quick_keys(payload, count)
    if count > 8192:
        assert keys is None
    else:
        assert keys is not None
        assert keys.dense
        assert keys.found == [record.key for record in made]
    assert quick_keys(payload, count - 1) is None
    assert quick_keys(payload, count + 1) is None


def test_offset_deltas_that_do_not_count_up_by_one() -> None:
    for wrong in (5, 40, 70, 100, 139):
        made = [Record(i, T0, b"key", b"v", ()) for i in range(140)]
        made[wrong].offset = 3
        keys = quick_keys(encode_records(made, 0, T0), len(made))
        assert keys is not None
        assert not keys.dense


def test_damaged_batches_are_left_or_read_alike() -> None:
    dice = Random(2)
    made = [Record(i, T0 + dice.randrange(200), dice.randbytes(6), dice.randbytes(i // 30), ()) for i in range(90)]
    payload = encode_records(made, 0, T0)
    for broken in mutations(payload, 3000):
        keys = quick_keys(broken, len(made))
        if keys is None:
            continue
        try:
            thorough = raw_records(broken, len(made), "here")
        except CorruptFile:
            continue  # of times the quick look sees where they end, and no more
        assert keys.found == [record[2] for record in thorough]
        assert keys.dense == ([record[0] for record in thorough] == list(range(len(made))))
        assert keys.tombstones == (not all(record[3] for record in thorough))


def test_some_of_the_records() -> None:
    made = [Record(i, T0 + i, b"k" * i, bytes(i * i), ()) for i in range(100)]
    payload = encode_records(made, 0, T0)
    everything = raw_records(payload, 100, "")
    for numbers in ([], [0], [99], [1, 2, 50], list(range(100)), list(range(0, 100, 7))):
        assert records_at(payload, numbers, "") == [everything[number] for number in numbers]
    with pytest.raises(CorruptFile):
        records_at(payload, [100], "here")
