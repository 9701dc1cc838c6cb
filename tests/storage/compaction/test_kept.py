"""Records that stay are found, by columns or one by one, where the thorough reader finds them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.formats import mutations
from tierd.base.errors import CorruptFile
from tierd.storage.compaction.kept import Kept, kept_at
from tierd.storage.compaction.raw import raw_records
from tierd.storage.records import Record, encode_records

T0 = 1_700_000_000_000


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    """Records in runs of one length, long and short; times stand still, go on, or back."""
    made: list[Record] = []
    for _ in range(draw(st.integers(1, 5))):
        size = draw(st.sampled_from([0, 1, 40, 60, 200, 20_000]))
        step_ms = draw(st.sampled_from([0, 1, 7, -3, 5_000, 10**9]))
        headers = draw(st.sampled_from([(), (("h", b"x"),)]))
        for number in range(draw(st.sampled_from([1, 2, 15, 16, 17, 40, 70]))):
            uneven = number % 7 if draw(st.booleans()) and size > 1 else 0
            made.append(Record(len(made), T0 + step_ms * len(made), b"key", bytes(size + uneven), headers))
    return made


@given(batches(), st.randoms(use_true_random=False), st.sampled_from([0.02, 0.3, 1.0]), st.integers(-(2**33), 2**33))
def test_they_are_found_and_copied(made: list[Record], dice: Random, share: float, shift_ms: int) -> None:
    payload = encode_records(made, 0, T0)
    numbers = [number for number in range(len(made)) if dice.random() < share]
    everything = raw_records(payload, len(made), "")
    kept = kept_at(payload, len(made), numbers, "")
    assert kept == Kept.of([everything[number] for number in numbers])
    wanted = [made[number] for number in numbers]
    assert kept.copy(payload) == encode_records(wanted, 0, T0)
    assert kept.copy(payload, shift_ms=shift_ms) == encode_records(wanted, 0, T0 - shift_ms)


@pytest.mark.parametrize("size", [0, 50, 300])
def test_damage_is_corrupt_or_does_no_harm(size: int) -> None:
    dice = Random(size)
    made = [Record(i, T0 + i, b"k", bytes(size + (i % 3 if i > 40 else 0)), ()) for i in range(60)]
    numbers = list(range(0, 60, 3))
    for broken in mutations(encode_records(made, 0, T0), 1500):
        try:
            kept = kept_at(broken, 60, numbers, "here")
        except CorruptFile:
            continue
        assert len(kept.times) == len(numbers)
        assert max(kept.ends) <= len(broken)
        assert kept.copy(broken, shift_ms=dice.randrange(100))
