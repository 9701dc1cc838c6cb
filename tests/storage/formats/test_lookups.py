"""Look-ups in index bytes give what a search through all entries would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.base.errors import CorruptFile
from tierd.storage.index import IndexEntry, OffsetIndex, encode_entry, encode_index, parse_index
from tierd.storage.timeindex import TimeEntry, TimeIndex, encode_time_entry, encode_time_index, parse_time_index

BASE = 1000
NUMBERS = st.lists(st.integers(1, 200), max_size=30, unique=True).map(sorted)
ROOM = st.sampled_from([0, 1, 7, 1000])


@given(NUMBERS, ROOM, st.integers(0, 210))
def test_offset_index(numbers: list[int], room: int, wanted: int) -> None:
    entries = [IndexEntry(BASE + number, 3 * number) for number in numbers]
    index = OffsetIndex(encode_index(entries, BASE) + bytes(8 * room), BASE)
    assert len(index) == len(entries)
    assert index.entries == entries
    assert index.last == (entries[-1] if entries else None)
    below = [entry for entry in entries if entry.offset <= BASE + wanted]
    assert index.floor(BASE + wanted) == (below[-1] if below else None)
    before = [entry for entry in entries if entry.position <= wanted]
    assert index.floor_position(wanted) == (before[-1] if before else None)


@given(NUMBERS, ROOM, st.integers(0, 210))
def test_time_index(numbers: list[int], room: int, wanted: int) -> None:
    entries = [TimeEntry(number, BASE + 2 * number) for number in numbers]
    index = TimeIndex(encode_time_index(entries, BASE) + bytes(12 * room), BASE)
    assert index.entries == entries
    assert index.last == (entries[-1] if entries else None)
    until = [entry for entry in entries if entry.timestamp_ms <= wanted]
    assert index.floor(wanted) == (until[-1] if until else None)


def test_entries_are_counted_from_the_front() -> None:
    index = OffsetIndex(encode_entry(BASE + 5, 60, BASE), BASE)
    times = TimeIndex(encode_time_entry(9, BASE + 5, BASE), BASE)
    assert index[0] == IndexEntry(BASE + 5, 60)
    assert times[0] == TimeEntry(9, BASE + 5)
    for i in (-1, 1):
        with pytest.raises(IndexError):
            index[i]
        with pytest.raises(IndexError):
            times[i]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(5, 60), (5, 90)], "byte 8: entry .* after"),
        ([(5, 60), (9, 60)], "byte 8: entry .* after"),
        ([(9, 60), (5, 90)], "byte 8: entry .* after"),
        ([(-1, 60)], "byte 0: entry .* cannot be in a segment"),
        ([(5, 0)], "byte 0: entry .* cannot be in a segment"),
        ([(5, 60), (0, 0), (9, 90)], "byte 8: an empty entry before a used one"),
    ],
)
def test_offset_entries_out_of_order(entries: list[tuple[int, int]], reason: str) -> None:
    raw = encode_index([IndexEntry(BASE + relative, position) for relative, position in entries], BASE)
    with pytest.raises(CorruptFile, match=f"an.index: {reason}"):
        parse_index(raw, BASE, "an.index")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(10, 5), (10, 6)], "byte 12: entry .* after"),
        ([(10, 5), (11, 5)], "byte 12: entry .* after"),
        ([(10, 5), (9, 6)], "byte 12: entry .* after"),
        ([(-4, 5)], "byte 0: entry .* cannot be in a segment"),
        ([(10, -1)], "byte 0: entry .* cannot be in a segment"),
        ([(10, 5), (0, 0), (11, 6)], "byte 12: an empty entry before a used one"),
    ],
)
def test_time_entries_out_of_order(entries: list[tuple[int, int]], reason: str) -> None:
    raw = encode_time_index([TimeEntry(timestamp, BASE + relative) for timestamp, relative in entries], BASE)
    with pytest.raises(CorruptFile, match=reason):
        parse_time_index(raw, BASE)


def test_stray_bytes() -> None:
    with pytest.raises(CorruptFile, match="byte 8: 3 stray bytes"):
        parse_index(encode_entry(BASE + 5, 60, BASE) + b"abc", BASE)
    with pytest.raises(CorruptFile, match="byte 12: 1 stray bytes"):
        parse_time_index(encode_time_entry(9, BASE + 5, BASE) + b"a", BASE)
