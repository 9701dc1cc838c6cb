"""When a partition is cleaned, and which part of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.compaction import COMPACTED
from kit.logs import T0, TOPIC_ID, TP
from tierd.base.ids import PartitionId
from tierd.config.topic import TopicSettings
from tierd.storage.compaction.plan import CleanPlan, plan_clean
from tierd.storage.view import PartitionView, SegmentView

HOUR_MS = 3_600_000


def view(sizes: list[int], settings: TopicSettings = COMPACTED, **facts: Any) -> PartitionView:
    """Closed segments of ten offsets each, an hour apart, the last one an hour old."""
    closed = tuple(
        SegmentView(
            base=10 * i,
            next_base=10 * i + 10,
            size_bytes=size,
            largest_timestamp_ms=T0 - HOUR_MS * (len(sizes) - i),
            append_ms=T0 - HOUR_MS * (len(sizes) - i),
        )
        for i, size in enumerate(sizes)
    )
    end = 10 * len(sizes)
    known: dict[str, Any] = {
        "log_start": 0, "local_start": 0, "log_end": end + 5, "last_stable": end + 5, "recovery_point": end,
        "leader_epoch": 0, "active_base": end, "active_bytes": 50, "active_append_ms": T0,
    }  # fmt: skip
    return PartitionView(
        name=TP, id=PartitionId(TOPIC_ID, 0), directory=Path("/t-0"), settings=settings, closed=closed, **known | facts
    )


def planned(found: PartitionView, copied_to: int | None = None) -> CleanPlan | None:
    return plan_clean(found, copied_to, lambda segment: segment.largest_timestamp_ms, T0)


def test_all_closed_segments_at_first() -> None:
    assert planned(view([100, 100])) == CleanPlan(start=0, first_dirty=0, stop=20, dirty_bytes=200, clean_bytes=0)


def test_only_compacted_topics() -> None:
    assert planned(view([100], TopicSettings())) is None
    both = replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}))
    assert planned(view([100], both)) is not None


def test_not_below_the_ratio() -> None:
    lazy = replace(COMPACTED, min_cleanable_dirty_ratio=0.5)
    assert planned(view([100, 100], lazy, cleaned_to=10)) is None
    found = planned(view([100, 101], lazy, cleaned_to=10))
    assert found is not None
    assert (found.start, found.first_dirty, found.stop) == (0, 10, 20)


def test_nothing_at_or_above_the_last_stable_offset_or_the_recovery_point() -> None:
    for found in (planned(view([100, 100], last_stable=19)), planned(view([100, 100], recovery_point=19))):
        assert found is not None
        assert found.stop == 10
    assert planned(view([100, 100], last_stable=9)) is None


def test_nothing_younger_than_the_least_lag() -> None:
    found = planned(view([100, 100, 100], replace(COMPACTED, min_compaction_lag_ms=2 * HOUR_MS)))
    assert found is not None
    assert found.stop == 20
    assert planned(view([100], replace(COMPACTED, min_compaction_lag_ms=2 * HOUR_MS))) is None


def test_a_time_from_the_future_keeps_nothing_from_being_cleaned() -> None:
    found = view([100])
    found = replace(found, closed=(replace(found.closed[0], largest_timestamp_ms=T0 + 10 * HOUR_MS),))
    assert planned(found) is not None
    for lag_ms, is_planned in ((HOUR_MS, True), (HOUR_MS + 1, False)):  # since its last append
        least = replace(COMPACTED, min_compaction_lag_ms=lag_ms)
        assert (planned(replace(found, settings=least)) is not None) is is_planned
    for lag_ms, is_planned in ((HOUR_MS - 1, True), (HOUR_MS, False)):
        longest = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=lag_ms)
        dirty = view([100, 1], longest, cleaned_to=10)
        future = tuple(replace(one, largest_timestamp_ms=T0 + 10 * HOUR_MS) for one in dirty.closed)
        assert (planned(replace(dirty, closed=future)) is not None) is is_planned


def test_the_longest_lag_cleans_whatever_the_ratio() -> None:
    lazy = replace(COMPACTED, min_cleanable_dirty_ratio=1.0)
    assert planned(view([100, 1], replace(lazy, max_compaction_lag_ms=2 * HOUR_MS), cleaned_to=10)) is None
    assert planned(view([100, 1], replace(lazy, max_compaction_lag_ms=HOUR_MS - 1), cleaned_to=10)) is not None


def test_with_a_bucket_only_whole_segments_above_its_copied_end() -> None:
    assert planned(view([100, 100, 100]), copied_to=20) == CleanPlan(
        start=20, first_dirty=20, stop=30, dirty_bytes=100, clean_bytes=0
    )
    assert planned(view([100, 100, 100]), copied_to=25) is None
    assert planned(view([100, 100, 100], cleaned_to=30), copied_to=10) is None


def test_empty_segments_are_no_reason() -> None:
    assert planned(view([100, 0], cleaned_to=10)) is None
