"""Ranges out of findings, samples, and what a partition's facts come to: nothing here needs a bucket."""

import os
from dataclasses import replace

import pytest

from kit.remote_log import PART
from tierd.base.ids import Uuid
from tierd.remote.heads import Gap, Head, HeadEntry
from tierd.remote.keys import Keys, ObjectKind, SegmentName
from tierd.remote.manifest import EpochStart
from tierd.remote.store import ObjectInfo
from tierd.tiering.choice import RunStart
from tierd.tiering.intake import named_row
from tierd.tiering.verify.facts import Judged, PartitionFacts, Seen, Unread, judge, seen_twice
from tierd.tiering.verify.spending import Budget, Cost
from tierd.tiering.verify.standing import Cursor, Standing, begin
from tierd.tiering.verify.verdicts import Finding, Range, Verdict, in_sample, ranges, worst

OK, WARNING, FAILURE = Verdict
KEYS = Keys("p/")


def uuid(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([number]))


def segment(number: int, base: int, next_base: int, *epochs: tuple[int, int], size_bytes: int = 10) -> HeadEntry:
    starts = tuple(EpochStart(*one) for one in epochs or ((0, base),))
    return HeadEntry(
        base=base, next_base=next_base, segment_id=uuid(number), size_bytes=size_bytes, index_sizes=(), epochs=starts
    )


def seen(entry: HeadEntry, *missing: ObjectKind, named: bool = True) -> Seen:
    name = SegmentName("t", PART.topic_id, 0, entry.base, entry.segment_id)
    stem = KEYS.stem(name)
    there = {
        kind: ObjectInfo(key=stem + kind, size=10, etag="e", modified_ms=0)
        for kind in ObjectKind
        if kind not in missing and entry.size_bytes
    }
    row = named_row(KEYS, name, entry)
    return Seen(name=name, stem=stem, row=row, objects=there, entry=entry if named else None)


def head(*entries: HeadEntry, log_start: int = 0, copied_to: int | None = None, gaps: tuple[Gap, ...] = ()) -> Head:
    return Head(
        topic="t", topic_id=PART.topic_id, partition=0, epoch=0, incarnation=uuid(99), updated_ms=0,
        log_start=log_start, copied_to=copied_to, gaps=gaps, entries=entries,
    )  # fmt: skip


def facts(*segments: Seen, head: Head | None = None, runs: tuple[RunStart, ...] = ()) -> PartitionFacts:
    return PartitionFacts(part=PART, topic="t", head=head, segments=segments, runs=runs)


def told(judged: Judged) -> list[tuple[Verdict, int, int]]:
    return [(one.verdict, one.start, one.stop) for one in judged.findings]


def test_ranges_are_cut_where_the_verdict_changes_and_joined_where_it_does_not() -> None:
    found = [
        Finding(FAILURE, 10, 20, "gone"),
        Finding(WARNING, 15, 30, "old"),
        Finding(WARNING, 30, 40, "old"),
        Finding(FAILURE, 90, 95, "not looked at, and yet known"),
    ]
    assert ranges([(0, 10), (10, 20), (20, 50)], found, ()) == [
        Range(OK, 0, 10),
        Range(FAILURE, 10, 15, ("gone",)),
        Range(FAILURE, 15, 20, ("gone", "old")),
        Range(WARNING, 20, 40, ("old",)),
        Range(OK, 40, 50),
        Range(FAILURE, 90, 95, ("not looked at, and yet known",)),
    ]


def test_a_failure_in_an_accepted_gap_is_none_and_one_beside_it_stays() -> None:
    gap = Gap(start=10, stop=20, reason="the disk burnt")
    found = ranges([(0, 30)], [Finding(FAILURE, 5, 25, "gone")], [gap])
    assert [(one.verdict, one.start, one.stop) for one in found] == [
        (OK, 0, 5),
        (FAILURE, 5, 10),
        (OK, 10, 20),
        (FAILURE, 20, 25),
        (OK, 25, 30),
    ]
    assert "the disk burnt" in found[2].reasons[0]


def test_nothing_looked_at_is_no_range() -> None:
    assert ranges([], [], [Gap(start=1, stop=2, reason="r")]) == []
    assert worst([]) is OK
    assert worst([OK, FAILURE, WARNING]) is FAILURE


@pytest.mark.parametrize(("percent", "turns"), [(100.0, 1), (25.0, 4), (10.0, 10), (0.5, 200)])
def test_samples_of_all_turns_together_are_everything_and_each_is_a_share(percent: float, turns: int) -> None:
    ids = [Uuid(os.urandom(16)) for _ in range(2000)]
    taken = [{one for one in ids if in_sample(one, percent, turn)} for turn in range(turns)]
    assert set().union(*taken) == set(ids)
    assert sum(map(len, taken)) == len(ids)
    assert taken[0] == {one for one in ids if in_sample(one, percent, turns)}


def test_a_whole_partition_has_no_findings() -> None:
    entries = segment(1, 0, 10), segment(2, 10, 20, size_bytes=0), segment(3, 20, 30)
    judged = judge(facts(*map(seen, entries), head=head(*entries, copied_to=30)))
    assert told(judged) == []
    assert [one.base for one in judged.counting] == [0, 10, 20]
    assert (judged.log_start, judged.copied_to) == (0, 30)


@pytest.mark.parametrize("kind", ObjectKind)
def test_an_object_that_is_missing_is_named(kind: ObjectKind) -> None:
    entries = segment(1, 0, 10), segment(2, 10, 20)
    judged = judge(facts(seen(entries[0], kind), seen(entries[1]), head=head(*entries, log_start=4, copied_to=20)))
    assert told(judged) == [(FAILURE, 4, 10)]
    assert judged.findings[0].reason.endswith(f"{kind} is not there")


def test_holes_in_front_between_and_behind() -> None:
    entries = segment(1, 5, 10), segment(2, 20, 30)
    judged = judge(facts(*map(seen, entries), head=head(*entries, log_start=2, copied_to=40)))
    assert told(judged) == [(FAILURE, 2, 5), (FAILURE, 10, 20), (FAILURE, 30, 40)]


def test_a_hole_before_what_the_head_does_not_name_yet_may_be_an_empty_range() -> None:
    """Which compaction leaves, and only the head tells of."""
    first, new = segment(1, 0, 10), segment(2, 20, 30)
    judged = judge(facts(seen(first), seen(new, named=False), head=head(first, copied_to=10)))
    assert told(judged) == [(WARNING, 10, 20)]


def test_without_a_head_the_first_segment_is_the_start() -> None:
    judged = judge(facts(seen(segment(1, 5, 10), named=False), seen(segment(2, 12, 20), named=False)))
    assert told(judged) == [(FAILURE, 10, 12)]
    assert (judged.log_start, judged.copied_to) == (5, 20)
    assert told(judge(facts())) == []


def test_what_lies_below_log_start_is_on_its_way_out() -> None:
    entries = segment(1, 0, 10), segment(2, 10, 20)
    judged = judge(facts(seen(entries[0], ObjectKind.LOG), seen(entries[1]), head=head(*entries, log_start=10)))
    assert told(judged) == []
    assert [one.base for one in judged.counting] == [10]


def test_a_copy_that_lost_against_another_run_does_not_count() -> None:
    old, new = segment(1, 10, 30, (1, 10)), segment(2, 10, 20, (2, 10))
    runs = (RunStart(1, 0), RunStart(2, 10))
    judged = judge(facts(seen(segment(3, 0, 10, (1, 0))), seen(old, named=False), seen(new, named=False), runs=runs))
    assert told(judged) == []
    assert [one.name.segment_id for one in judged.counting] == [uuid(3), uuid(2)]


def test_a_copy_made_again_takes_the_place_of_a_broken_one() -> None:
    broken, again = segment(1, 0, 10), segment(2, 0, 10)
    judged = judge(facts(seen(broken, ObjectKind.LOG), seen(again, named=False), head=head(broken)))
    assert told(judged) == []
    assert [one.name.segment_id for one in judged.counting] == [uuid(2)]


@pytest.mark.parametrize("epochs", [((3, 0), (2, 5)), ((2, 4), (3, 2)), ((2, 0), (3, 10))])
def test_epochs_in_a_segment_must_be_in_order(epochs: tuple[tuple[int, int], ...]) -> None:
    assert told(judge(facts(seen(segment(1, 0, 10, *epochs))))) == [(FAILURE, 0, 10)]


def test_epochs_go_on_from_one_segment_to_the_next() -> None:
    good = judge(facts(seen(segment(1, 0, 10, (2, 0), (4, 5))), seen(segment(2, 10, 20, (4, 10), (5, 12)))))
    assert told(good) == []
    bad = judge(facts(seen(segment(1, 0, 10, (2, 0), (4, 5))), seen(segment(2, 10, 20, (3, 10)))))
    assert told(bad) == [(FAILURE, 10, 20)]


def test_a_manifest_that_does_not_parse_is_grave_when_nothing_else_has_its_offsets() -> None:
    unread = (Unread(10, "no manifest"),)
    alone = replace(facts(seen(segment(1, 0, 10)), seen(segment(2, 20, 30))), unread=unread)
    assert told(judge(alone)) == [(FAILURE, 10, 20), (FAILURE, 10, 20)]
    covered = replace(facts(seen(segment(1, 0, 20))), unread=unread)
    assert told(judge(covered)) == [(WARNING, 10, 20)]
    last = replace(facts(seen(segment(1, 0, 10))), unread=unread)
    assert told(judge(last)) == [(FAILURE, 10, 11)]


def test_a_head_that_does_not_parse_is_a_failure_of_all() -> None:
    judged = judge(replace(facts(seen(segment(1, 0, 10))), head_problem="p/x.json: byte 0: not JSON"))
    assert told(judged) == [(FAILURE, 0, 10)]


def test_what_an_owner_changed_between_two_looks_is_no_finding() -> None:
    entries = segment(1, 0, 10), segment(2, 10, 20)
    first = judge(facts(seen(entries[0], ObjectKind.LOG), seen(entries[1]), head=head(*entries, copied_to=30)))
    assert told(first) == [(FAILURE, 0, 10), (FAILURE, 20, 30)]
    released = judge(facts(seen(entries[1]), head=head(entries[1], log_start=10, copied_to=40)))
    assert [one.reason for one in seen_twice(first, released)] == ["no segment has these offsets"]
    assert seen_twice(judge(facts(seen(entries[0]))), released) == ()


def test_a_budget() -> None:
    assert Budget().allows(Cost(10**9, 10**15))
    assert Budget(requests=5).allows(Cost(5, 10**9))
    assert not Budget(requests=5).allows(Cost(6, 0))
    assert not Budget(bytes=5).allows(Cost(0, 6))


def test_where_the_next_run_begins() -> None:
    fresh = Standing(url="u", deep=True, percent=10.0)
    cursor = Cursor(topic="t", topic_id=uuid(1), partition=0, offset=5)
    half, whole = replace(fresh, turn=3, cursor=cursor), replace(fresh, turn=3)
    assert begin(None, fresh, anew=False) == fresh
    assert begin(half, fresh, anew=False) == half
    assert begin(half, fresh, anew=True) == replace(fresh, turn=3)
    assert begin(whole, fresh, anew=False) == replace(fresh, turn=4)
    for other in (replace(fresh, url="v"), replace(fresh, deep=False), replace(fresh, percent=5.0)):
        assert begin(half, other, anew=False) == other
