"""Which segments are of one history, where offsets are missing, and under which names topics are served."""

import pytest

from kit.remote_log import bare_segment
from tierd.base.ids import Uuid
from tierd.remote.manifest import EpochStart
from tierd.tiering.archive.lineage import belongs, holes, newest, without_contained
from tierd.tiering.archive.naming import Claimant, names_of
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment


def ident(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def segment(base: int, next_base: int, *epochs: tuple[int, int], number: int = 0) -> CatalogSegment:
    remote = bare_segment(base, next_base, ident(number or base + 1), *epochs)
    return CatalogSegment(remote=remote, state=CopyState.COPY_FINISHED)


def lineage(*epochs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(*one) for one in epochs]


LOG = lineage((1, 10), (3, 40), (4, 40), (6, 80))
"""Epoch 3 wrote nothing."""


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        (segment(10, 40, (1, 10)), True),
        (segment(0, 30, (0, 0), (1, 10)), True),  # begins below log start
        (segment(0, 9, (0, 0)), False),  # all of it does
        (segment(10, 41, (1, 10)), False),  # its epoch ended before
        (segment(20, 60, (1, 20), (4, 40)), True),
        (segment(20, 60, (1, 20), (4, 45)), False),  # another beginning of the epoch
        (segment(20, 60, (1, 20), (2, 30), (4, 40)), False),  # an epoch that was never
        (segment(20, 60, (1, 20), (3, 40), (4, 40)), True),  # one without records says nothing
        (segment(39, 60, (4, 39)), False),  # before it began
        (segment(80, 900, (6, 80)), True),
        (segment(80, 90, (7, 80)), False),  # later than all
        (segment(50, 90, (4, 50), (6, 80)), True),
        (segment(50, 90, (1, 50), (6, 80)), False),  # leaves an epoch out
    ],
)
def test_the_newest_segments_epochs_decide(found: CatalogSegment, counts: bool) -> None:
    assert belongs(found, LOG) is counts


def test_without_epochs_nothing_speaks_against_a_segment() -> None:
    assert belongs(segment(0, 5), LOG)
    assert belongs(segment(0, 5, (1, 0)), [])


def test_the_newest_segment_is_of_the_highest_epoch() -> None:
    late, low = segment(80, 90, (6, 80)), segment(100, 200, (4, 100))
    assert newest([low, late, segment(70, 80, (6, 70))]) is late
    assert newest([]) is None


def test_what_another_segment_holds_wholly_adds_nothing() -> None:
    first, overlaps = segment(0, 100, (1, 0)), segment(50, 150, (1, 50))
    inside, twice = segment(60, 90, (1, 60)), segment(0, 100, (1, 0), number=9)
    assert without_contained([inside, overlaps, twice, first]) == [first, overlaps]


def test_holes_are_what_no_segment_has() -> None:
    some = [segment(10, 20), segment(15, 30), segment(40, 50)]
    assert list(holes(some, 0, 60)) == [(0, 10), (30, 40), (50, 60)]
    assert list(holes(some, 12, 50)) == [(30, 40)]
    assert list(holes(some, 35, 37)) == [(35, 37)]
    assert list(holes([], 3, 3)) == []
    assert list(holes([], 3, 5)) == [(3, 5)]


def test_the_newest_topic_has_the_name_and_others_their_id_behind_it() -> None:
    old, new, other, own = (ident(n) for n in (1, 2, 3, 4))
    found = names_of(
        [
            Claimant("t", old, 100),
            Claimant("t", new, 200),
            Claimant("u", other, 5),
            Claimant("__consumer_offsets", own, 300),
        ]
    )
    assert found == {new: "t", old: f"t.{old}", other: "u", own: f"__consumer_offsets.{own}"}
