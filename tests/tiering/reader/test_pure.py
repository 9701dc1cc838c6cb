"""The pure parts: which ranges, where batches lie, what to fetch ahead."""

from array import array
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.remote_log import PART, synthetic
from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.ranges import ByteRange
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record
from tierd.tiering.reader.ahead import Fetch, LoadIndex, SegmentState, Stream, Streams, plan, window_bytes
from tierd.tiering.reader.extents import Boundaries, Extent, ExtentMap, next_extent
from tierd.tiering.reader.slots import ExtentName
from tierd.tiering.reader.table import BatchTable, Walker, walk


@dataclass(frozen=True)
class Layout:
    """A segment of batches of given sizes, and which of them the index knows."""

    sizes: list[int]
    indexed: list[bool]

    @property
    def starts(self) -> list[int]:
        return [sum(self.sizes[:n]) for n in range(len(self.sizes))]

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes)

    def known(self) -> Boundaries:
        chosen = [n for n, known in enumerate(self.indexed) if known and n]
        return Boundaries(100, chosen, [self.starts[n] for n in chosen], self.size_bytes)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    sizes = draw(st.lists(st.integers(1, 50), min_size=1, max_size=30))
    indexed = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    return Layout(sizes, indexed)


@given(layouts(), st.integers(1, 60), st.data())
def test_extents_fill_a_segment_without_overlap_and_end_where_batches_do(
    layout: Layout, want: int, data: st.DataObject
) -> None:
    taken, ends = ExtentMap(), {*layout.starts, layout.size_bytes}
    while True:
        free = [start for start in layout.starts if taken.containing(start) is None]
        if not free:
            break
        position = data.draw(st.sampled_from(free))
        extent = next_extent(layout.known(), taken, position, want)
        assert extent.range.start == position
        assert 0 < extent.range.length <= 2 * want
        taken.add(extent)
        if extent.open_end:
            within = [end for end in ends if position < end <= extent.range.stop]
            stop = max(within) if within else min(end for end in ends if end > position)
            taken.settle(position, stop)
        else:
            assert extent.range.stop in ends
    assert all(taken.containing(byte) is not None for byte in range(layout.size_bytes))


@given(layouts(), st.integers(0, 40))
def test_boundaries_lead_to_a_batch_at_or_before_the_one_asked_for(layout: Layout, number: int) -> None:
    known = layout.known()
    holder = min(number, len(layout.sizes) - 1)
    assert known.at_or_below(100 + number) <= layout.starts[holder]
    for position in range(layout.size_bytes + 1):
        assert known.at_or_above(position) >= position


def test_a_segment_is_shared_out_evenly() -> None:
    known = Boundaries(0, range(1000), range(10, 10_010, 10), 10_010)
    taken, lengths, position = ExtentMap(), [], 0
    while position < known.size_bytes:
        extent = next_extent(known, taken, position, 3000)
        taken.add(extent)
        lengths.append(extent.range.length)
        position = extent.range.stop
    assert len(lengths) == 3
    assert max(lengths) - min(lengths) < 40


def test_overlaps_are_a_bug() -> None:
    taken = ExtentMap()
    taken.add(Extent(ByteRange(10, 20), open_end=False))
    for start, stop in ((5, 11), (19, 25), (12, 15), (10, 20), (30, 30)):
        with pytest.raises(ValueError, match="overlaps"):
            taken.add(Extent(ByteRange(start, stop), open_end=False))
    taken.remove(11)
    assert taken.containing(19) == 10
    assert taken.containing(20) is None


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(61, 90)), min_size=1), st.data())
def test_cut_takes_what_fits(batches: list[tuple[int, int, int]], data: st.DataObject) -> None:
    bases, nexts, stops, offset, end = [], [], [], 7, 0
    for count, gap, size in batches:
        bases.append(offset + gap)
        offset += gap + count
        end += size
        nexts.append(offset)
        stops.append(end)
    table = BatchTable(array("q", bases), array("q", nexts), array("q", stops))
    asked = data.draw(st.integers(0, offset + 2))
    number = table.find(asked)
    later = [n for n, after in enumerate(nexts) if after > asked]
    assert number == (later[0] if later else None)
    if number is None:
        return
    max_bytes, stop = data.draw(st.integers(0, end + 50)), data.draw(st.integers(0, offset + 2))
    for whole_first in (True, False):
        cut = table.cut(number, max_bytes, stop, whole_first=whole_first)
        chosen: list[int] = []
        for n in range(number, len(bases)):
            fits = stops[n] - table.position(number) <= max_bytes or (whole_first and n == number)
            if bases[n] >= stop or not fits:
                break
            chosen.append(n)
        if not chosen:
            assert cut is None
        else:
            assert cut is not None
            assert cut.position == table.position(number)
            assert cut.position + cut.length == stops[chosen[-1]]
            assert cut.next_offset == nexts[chosen[-1]]


def batch(offset: int) -> bytes:
    return encode_batch([Record(offset, 1, b"key", b"value")])


def test_walk_stops_at_every_cut_and_refuses_every_flipped_bit_that_matters() -> None:
    raw = batch(5) + batch(6) + batch(9)
    whole = len(batch(5))
    for size in range(len(raw)):
        table = walk(memoryview(raw)[:size], "x", 0, floor=5, ceiling=10)
        assert (table.length if table else 0) == size // whole * whole
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        at = bit // 8 % whole
        if at in range(12, 16):
            continue  # the leader epoch: no CRC covers it, readers do not need it
        try:
            table = walk(memoryview(changed), "x", 0, floor=5, ceiling=10)
        except CorruptFile:
            continue
        # A length that reaches beyond the data looks like a batch cut off; a base offset may move within the segment.
        assert table is None or table.length < len(raw) or at < 8


@given(st.lists(st.integers(0, 200), min_size=1, max_size=6), st.lists(st.integers(1, 150), min_size=1), st.data())
def test_pieces_say_the_same_as_the_whole(values: list[int], cuts: list[int], data: st.DataObject) -> None:
    raw = bytearray(b"".join(encode_batch([Record(n, 1, None, bytes(size))]) for n, size in enumerate(values)))
    if data.draw(st.booleans()):
        bit = data.draw(st.integers(0, 8 * len(raw) - 1))
        raw[bit // 8] ^= 1 << bit % 8
    raw = raw[: data.draw(st.integers(0, len(raw)))]

    def outcome(pieces: list[int]) -> object:
        walker, at = Walker("x", 100, floor=0, ceiling=len(values)), 0
        try:
            for size in pieces:
                walker.feed(memoryview(raw)[at : at + size])
                at += size
        except CorruptFile as error:
            return error.position, error.reason
        return walker.table()

    assert outcome([*cuts, len(raw)]) == outcome([len(raw)])


def test_walk_holds_offsets_to_the_segment() -> None:
    raw = batch(5) + batch(6)
    with pytest.raises(CorruptFile):
        walk(memoryview(raw), "x", 0, floor=6, ceiling=10)
    with pytest.raises(CorruptFile):
        walk(memoryview(raw), "x", 0, floor=5, ceiling=6)
    with pytest.raises(CorruptFile):
        walk(memoryview(batch(6) + batch(5)), "x", 0, floor=0, ceiling=10)


@given(st.binary(min_size=16, max_size=16), st.tuples(*[st.integers(1, 99)] * 4))
def test_names_round_trip(id: bytes, numbers: tuple[int, int, int, int]) -> None:
    start, size, first, count = numbers
    name = ExtentName(Uuid(id), start, start + size, first, first + count)
    assert ExtentName.parse(str(name)) == name


@pytest.mark.parametrize(
    "text",
    ["", "x", "A" * 22, "A" * 22 + ".1.2.3", "A" * 21 + "B.0.1.0.1", "A" * 22 + ".2.1.0.1", "A" * 22 + ".offset"],
)
def test_what_is_no_extent_name(text: str) -> None:
    assert ExtentName.parse(text) is None


def states(*sizes: int, known: bool = True) -> list[SegmentState]:
    segment = synthetic(1, 1).rows.segments[0]
    return [
        SegmentState(
            replace(segment, base=n, size_bytes=size),
            Boundaries(0, range(size // 10), range(10, size, 10), size) if known else None,
            ExtentMap(),
        )
        for n, size in enumerate(sizes)
    ]


def test_the_plan_fills_its_window_across_segments_and_only_once() -> None:
    chain = states(1000, 1000, 1000)
    steps = plan(chain, 500, 900, 200)
    assert all(isinstance(step, Fetch) for step in steps)
    for step in steps:
        assert isinstance(step, Fetch)
        chain[step.segment.base].taken.add(step.extent)
    assert chain[0].taken.containing(499) is None
    assert chain[0].taken.containing(500) == 500
    assert chain[1].taken.containing(399) is not None
    assert chain[1].taken.containing(700) is None
    assert plan(chain, 500, 900, 200) == []
    assert plan(chain, 700, 900, 200)


def test_the_plan_waits_for_an_index_and_for_an_open_end() -> None:
    known, unknown = states(100, 100), states(100, known=False)
    steps = plan([known[0], unknown[0]], 0, 1000, 50)
    assert [type(step) for step in steps] == [Fetch, Fetch, LoadIndex]
    blind = SegmentState(known[0].segment, Boundaries(0, (), (), 100), ExtentMap())
    (step,) = plan([blind], 0, 1000, 20)
    assert isinstance(step, Fetch)
    assert step.extent.open_end
    blind.taken.add(step.extent)
    assert plan([blind], 0, 1000, 20) == []
    blind.taken.settle(0, 17)
    (step,) = plan([blind], 0, 1000, 20)
    assert isinstance(step, Fetch)
    assert step.extent.range.start == 17


def test_all_readers_together_read_ahead_at_most_half_the_cache() -> None:
    assert window_bytes(100, 1000, 1) == 100
    assert window_bytes(100, 1000, 50) * 50 <= 500
    assert window_bytes(100, 10, 0) == 5


def test_streams_follow_their_readers_and_the_silent_ones_go() -> None:
    segment, streams = states(10)[0].segment, Streams(2)
    for offset in (1, 2, 3):
        streams.moved(PART, offset * 100, offset, Stream(segment, 0, sequential=True, used_ms=offset * 10_000))
    assert streams.at(PART, 1) is None
    kept = streams.at(PART, 2)
    assert kept is not None
    streams.moved(PART, 2, 5, kept)
    assert streams.at(PART, 2) is None
    assert streams.at(PART, 5) is kept
    assert streams.active(now_ms=25_000) == 2
    kept.used_ms = 40_000
    assert streams.active(now_ms=45_000) == 1


def test_positions_of_a_synthetic_log_ascend() -> None:
    log = synthetic(2, 5)
    assert all(a.next_base == b.base for a, b in pairwise(log.rows.segments))
