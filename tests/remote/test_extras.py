"""Segment facts in user metadata."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.base.ids import Uuid
from tierd.remote.extras import SegmentExtras, from_metadata, to_metadata

numbers = st.none() | st.integers(0, 2**62)


@given(numbers, numbers, numbers, st.none() | st.binary(min_size=16, max_size=16).map(Uuid))
def test_round_trip(log_crc: int | None, append_ms: int | None, records: int | None, run: Uuid | None) -> None:
    extras = SegmentExtras(log_crc=log_crc, append_ms=append_ms, records=records, incarnation=run)
    assert from_metadata(to_metadata(extras)) == extras


def test_nonsense_is_unknown() -> None:
    lost = {"tierd-records": "-3", "tierd-append-ms": "soon", "tierd-incarnation": "me", "other": "1"}
    assert from_metadata(lost) == SegmentExtras()
    assert from_metadata(None) == SegmentExtras()
