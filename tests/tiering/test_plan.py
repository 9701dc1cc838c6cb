"""The planner: what it may never do, for any partition; and copying, total and local retention by example."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.remote.view import ClaimState
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.plan import (
    CopyFacts,
    local_start_target,
    log_start_target,
    plan_copy,
    thin_to,
    uncopied,
    why_waiting,
)

NOW_MS = 1_700_000_000_000
HELD = CopyFacts(claim=ClaimState.HELD, copied_to=None, loaded=True)


def view(*sizes: int, **facts: object) -> PartitionView:
    """Closed segments of ten offsets each, a day old, then an active one of one byte."""
    closed = tuple(
        SegmentView(
            base=10 * number,
            next_base=10 * (number + 1),
            size_bytes=size,
            largest_timestamp_ms=NOW_MS - 86_400_000,
            append_ms=NOW_MS - 86_400_000,
        )
        for number, size in enumerate(sizes)
    )
    end = 10 * len(sizes)
    base = PartitionView(
        name=TopicPartition("t", 0),
        id=PartitionId(Uuid(bytes(16)), 0),
        directory=Path("/nowhere"),
        settings=TopicSettings(local_retention_ms=None),
        log_start=0,
        local_start=0,
        log_end=end + 1,
        last_stable=end + 1,
        recovery_point=end,
        leader_epoch=1,
        closed=closed,
        active_base=end,
        active_bytes=1,
        active_append_ms=NOW_MS,
    )
    return replace(base, **facts)  # type: ignore[arg-type]


def settings(**facts: object) -> TopicSettings:
    return replace(TopicSettings(local_retention_ms=None), **facts)  # type: ignore[arg-type]


def ranges(partition: PartitionView, count: int) -> list[SegmentView]:
    return list(partition.closed[:count])


@st.composite
def partitions(draw: st.DrawFn) -> tuple[PartitionView, int]:
    """Any partition, and how many of its closed segments are in the bucket."""
    sizes = draw(st.lists(st.integers(0, 1000), max_size=8))
    made = view(*sizes)
    ages = st.integers(-10_000, 10_000)
    closed = tuple(
        replace(
            one,
            largest_timestamp_ms=draw(st.none() | ages.map(lambda age: NOW_MS - age)),
            append_ms=NOW_MS - draw(ages),
        )
        for one in made.closed
    )
    end = made.log_end
    limits = st.none() | st.integers(0, 4000)
    return replace(
        made,
        closed=closed,
        log_start=draw(st.integers(0, end)),
        last_stable=draw(st.integers(0, end)),
        recovery_point=draw(st.integers(0, end)),
        settings=settings(
            local_retention_ms=draw(limits),
            local_retention_bytes=draw(limits),
            retention_ms=draw(limits),
            retention_bytes=draw(limits),
        ),
    ), draw(st.integers(0, len(sizes)))


@given(partitions())
def test_copies_are_closed_stable_flushed_and_contiguous(case: tuple[PartitionView, int]) -> None:
    partition, copied = case
    copied_to = partition.closed[copied - 1].next_base if copied else None
    state = replace(HELD, copied_to=copied_to)
    plan = plan_copy(partition, state)
    pending = uncopied(partition, copied_to)
    assert plan.segments == pending[: len(plan.segments)]
    for segment in plan.segments:
        assert segment.next_base <= min(partition.last_stable, partition.recovery_point, partition.active_base)
    if len(plan.segments) < len(pending):
        assert plan.waiting is not None
    for claim in (ClaimState.PENDING, ClaimState.LOST):
        assert plan_copy(partition, replace(state, claim=claim)).segments == ()
    assert plan_copy(partition, replace(state, loaded=False)).segments == ()


@given(partitions(), st.booleans())
def test_local_segments_go_only_when_all_below_are_committed(case: tuple[PartitionView, int], everything: bool) -> None:
    partition, copied = case
    committed = [(one.base, one.next_base) for one in partition.closed[:copied]]
    target = local_start_target(partition, committed, now_ms=NOW_MS, everything=everything)
    assert target >= partition.local_start
    for segment in partition.closed:
        if partition.log_start < segment.next_base <= target:
            assert (segment.base, segment.next_base) in committed
    first = next((one.base for one in partition.closed if one.next_base > partition.log_start), None)
    hole = [one for one in committed if one[0] != first]
    if first is not None:
        assert local_start_target(partition, hole, now_ms=NOW_MS, everything=True) <= first


@given(partitions())
def test_total_retention_keeps_what_its_limits_promise(case: tuple[PartitionView, int]) -> None:
    partition, copied = case
    remote = ranges(partition, copied)
    target = log_start_target(partition, remote, now_ms=NOW_MS)
    assert partition.log_start <= target <= max(partition.log_start, partition.last_stable)
    gone = [one for one in partition.closed if partition.log_start < one.next_base <= target]
    kept = sum(one.size_bytes for one in partition.closed if one.next_base > target) + partition.active_bytes
    keep_ms, keep_bytes = partition.settings.retention_ms, partition.settings.retention_bytes
    if keep_ms is None and gone:
        assert keep_bytes is not None
        assert kept >= keep_bytes
    if keep_bytes is None:
        assert all(keep_ms is not None and one.append_ms < NOW_MS for one in gone if one.largest_timestamp_ms is None)
    assert target == log_start_target(partition, [], now_ms=NOW_MS)  # both tiers or one: no byte counts twice


def test_a_future_timestamp_pins_nothing() -> None:
    made = view(100, 100, settings=settings(local_retention_ms=1000, retention_ms=1000))
    future = tuple(replace(one, largest_timestamp_ms=4_102_444_800_000) for one in made.closed)
    made = replace(made, closed=future)
    assert local_start_target(made, [(0, 20)], now_ms=NOW_MS) == 20
    assert log_start_target(made, ranges(made, 2), now_ms=NOW_MS) == 20


def test_a_limit_longer_than_time_itself_keeps_all() -> None:
    made = view(100, settings=settings(retention_ms=2**62))
    assert log_start_target(made, [], now_ms=NOW_MS) == 0


def test_a_segment_that_log_start_lies_in_is_copied_whole() -> None:
    plan = plan_copy(view(100, 100, log_start=15), HELD)
    assert [one.base for one in plan.segments] == [10]


def test_local_retention_by_bytes_leaves_at_least_the_limit() -> None:
    made = view(100, 100, 100, settings=settings(local_retention_bytes=150))
    assert local_start_target(made, [(0, 30)], now_ms=NOW_MS) == 10


def test_the_reason_for_waiting_is_one_and_says_what() -> None:
    made = view(100)
    assert (why_waiting(made, HELD) or made).__class__.__name__ == "Waiting"
    reasons = {
        "copying": why_waiting(made, replace(HELD, copying=0)),
        "retrying": why_waiting(made, replace(HELD, retrying="S3 503")),
        "active": why_waiting(made, replace(HELD, copied_to=10)),
        "pinned": why_waiting(replace(made, last_stable=5, pinned_by="producer 7 since T"), HELD),
        "unflushed": why_waiting(replace(made, recovery_point=5), HELD),
        "claim": why_waiting(made, replace(HELD, claim=ClaimState.PENDING)),
        "unknown": why_waiting(made, replace(HELD, loaded=False)),
        "untiered": why_waiting(replace(made, settings=settings(remote_storage_enable=False)), HELD),
        "paused": why_waiting(replace(made, settings=settings(remote_log_copy_disable=True)), HELD),
    }
    assert {name: waiting.reason for name, waiting in reasons.items() if waiting} == {name: name for name in reasons}
    pinned = reasons["pinned"]
    assert pinned is not None
    assert "producer 7" in pinned.detail
    assert why_waiting(replace(made, active_bytes=0), replace(HELD, copied_to=10)) is None


def test_a_pause_stops_only_what_has_something_to_copy() -> None:
    made = replace(view(100), active_bytes=7)
    for paused, facts in (
        (made, replace(HELD, paused="tierd pause")),
        (replace(made, settings=settings(remote_log_copy_disable=True)), HELD),
    ):
        reasons = [
            waiting.reason
            for copied_to in (None, 10)
            if (waiting := why_waiting(paused, replace(facts, copied_to=copied_to)))
        ]
        assert reasons == ["paused", "active"]
        assert why_waiting(replace(paused, active_bytes=0), replace(facts, copied_to=10)) is None
        unknown = why_waiting(paused, replace(facts, copied_to=10, loaded=False))
        assert unknown is not None
        assert unknown.reason == "paused"


COMPACTED = settings(cleanup_policy=frozenset({"compact"}), tierd_archive_max_age_ms=7200_000)
HOUR_MS = 3_600_000


def test_nothing_is_copied_while_segments_are_cleaned() -> None:
    plan = plan_copy(view(100, 100, cleaning=True), HELD)
    assert plan.segments == ()
    assert plan.waiting is not None
    assert plan.waiting.reason == "cleaning"


def test_a_compacted_segment_waits_for_its_cleaning() -> None:
    made = view(100, 100, settings=COMPACTED, cleaned_to=10)
    soon = replace(HELD, now_ms=made.closed[0].append_ms + HOUR_MS)
    plan = plan_copy(made, soon)
    assert [segment.base for segment in plan.segments] == [0]
    assert plan.waiting is not None
    assert plan.waiting.reason == "uncleaned"
    assert plan_copy(replace(made, cleaned_to=20), soon).segments == made.closed


def test_an_uncleaned_segment_is_copied_after_the_smaller_of_two_limits() -> None:
    made = view(100, settings=COMPACTED)
    closed_ms = made.closed[0].append_ms
    assert plan_copy(made, replace(HELD, now_ms=closed_ms + 2 * HOUR_MS - 1)).segments == ()
    assert plan_copy(made, replace(HELD, now_ms=closed_ms + 2 * HOUR_MS)).segments == made.closed
    sooner = replace(made, settings=replace(COMPACTED, max_compaction_lag_ms=HOUR_MS))
    assert plan_copy(sooner, replace(HELD, now_ms=closed_ms + HOUR_MS)).segments == made.closed
    never = replace(made, settings=replace(COMPACTED, tierd_archive_max_age_ms=None))
    assert plan_copy(never, replace(HELD, now_ms=closed_ms + 1000 * HOUR_MS)).segments == ()


def test_a_topic_that_is_not_compacted_waits_for_no_cleaning() -> None:
    assert plan_copy(view(100), HELD).segments


def copies(*sizes: int) -> list[SegmentView]:
    """Of segments of ten offsets each."""
    return [
        SegmentView(base=10 * n, next_base=10 * n + 10, size_bytes=size, largest_timestamp_ms=None, append_ms=0)
        for n, size in enumerate(sizes)
    ]


def test_a_segment_with_fewer_bytes_than_its_copies_is_given_up() -> None:
    made = view(100, 100, 100)
    assert thin_to(made, copies(100, 100, 100)) == 0
    assert thin_to(made, copies(100, 101, 100)) == 20
    assert thin_to(made, copies(100, 99, 100)) == 0
    assert thin_to(made, [copies(100, 100, 101)[0]]) == 0
    first, _, last = made.closed
    without = replace(made, closed=(replace(first, next_base=20), last))
    assert thin_to(without, copies(100, 100, 100)) == 20
    assert thin_to(without, copies(100)) == 0
    everywhere = [(0, 30)]
    assert local_start_target(made, everywhere, now_ms=NOW_MS, given_up=20) == 20
    assert local_start_target(made, [(10, 30)], now_ms=NOW_MS, given_up=20) == 0
