"""The dry run of retention tells what the pass then does: which segments, of which tier, by which rule and when."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.tierer_bench import SETTINGS, Bench, drive, who
from tierd.config.topic import DAY_MS, TopicSettings
from tierd.storage.retention import Rule, local_going, total_going
from tierd.storage.view import PartitionView
from tierd.tiering.outlook import LOCAL, REMOTE, Outlook, OutlookRow, outlook_of_untiered
from tierd.tiering.plan import local_start_target, log_start_target
from tiering.test_plan import NOW_MS, partitions, ranges, settings, view


def rows(found: Outlook, tier: str) -> list[OutlookRow]:
    return [row for row in found.rows if row.tier == tier]


LIMITS: dict[str, dict[str, Any]] = {
    "total size": {"retention_bytes": 10_000},
    "total time": {"retention_ms": 1_000},
    "local time": {"local_retention_ms": 1_000},
    "local size": {"local_retention_bytes": 4_000},
    "local size below total size": {"retention_bytes": 20_000, "local_retention_bytes": 4_000},
    "no limit": {},
}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("copied", [True, False])
def test_the_pass_does_what_the_dry_run_told(tmp_path: Path, name: str, copied: bool) -> None:
    async def work(bench: Bench) -> None:
        kept = SETTINGS if copied else replace(SETTINGS, remote_log_copy_disable=True)
        before = bench.adopt("codec-none-0", kept)
        await bench.open(who())
        await bench.copy()
        bench.clock.advance(DAY_MS)
        before = bench.local.set(before.id, settings=replace(kept, **LIMITS[name]))
        objects = bench.objects()
        found = {one.part: one for one in await bench.tierer.retention.outlooks(0)}.get(before.id)
        assert bench.local.views[before.id] == before, "a dry run changes nothing"
        assert bench.objects() == objects

        await bench.tierer.retention.tick()
        after = bench.local.views[before.id]
        gone = [one for one in before.closed if one not in after.closed]
        told = [] if found is None else rows(found, LOCAL)
        assert [(row.start, row.stop, row.bytes) for row in told] == [
            (one.base, one.next_base, one.size_bytes) for one in gone
        ]
        assert after.log_start == (before.log_start if found is None else found.log_start_then)
        assert found is None or all(row.at_ms == bench.clock.now_ms() for row in told)
        assert bool(gone) is (name != "no limit" and (copied or "total" in name))

        released = bench.catalog.released_before(before.id, bench.clock.now_ms())
        told = [] if found is None else rows(found, REMOTE)
        assert [(row.start, row.stop) for row in told] == [(one.remote.base, one.remote.next_base) for one in released]
        bench.clock.advance(DAY_MS)  # when their objects go, as the rows say
        assert all(row.at_ms == bench.clock.now_ms() for row in told)
        await bench.tierer.retention.delete_tick()
        assert len(bench.objects()) == len(objects) - 3 * len(told)

    drive(tmp_path, work)


def test_what_is_released_is_told_with_the_time_when_its_objects_go(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        bench.local.set(view.id, settings=replace(SETTINGS, retention_bytes=10_000))
        await bench.tierer.retention.tick()
        (found,) = await bench.tierer.retention.outlooks(0)
        assert {row.rule for row in found.rows} == {Rule.LOG_START}
        assert all(row.at_ms == bench.clock.now_ms() + DAY_MS for row in found.rows)
        assert found.remote_bytes == sum(row.bytes for row in found.rows) > 0
        assert (found.local_bytes, found.log_bytes) == (0, 0)

        assert await bench.tierer.retention.outlooks(0, "another") == ()

    drive(tmp_path, work)


@given(partitions(), st.integers(0, 20_000))
def test_a_later_look_decides_what_an_earlier_one_foretold(case: tuple[PartitionView, int], later_ms: int) -> None:
    partition, copied = case
    partition = replace(
        partition, settings=replace(partition.settings, retention_bytes=None, local_retention_bytes=None)
    )
    remote = ranges(partition, copied)
    committed = [(one.base, one.next_base) for one in remote]
    then_ms = NOW_MS + later_ms
    leaving = total_going(partition, remote, now_ms=NOW_MS, until_ms=then_ms)
    assert [one.at_ms for one in leaving] == sorted(one.at_ms for one in leaving)
    assert all(NOW_MS <= one.at_ms <= then_ms for one in leaving)
    end = leaving[-1].segment.next_base if leaving else partition.log_start
    assert end == log_start_target(partition, remote, now_ms=then_ms)
    for one in leaving:  # not a millisecond sooner
        assert log_start_target(partition, remote, now_ms=one.at_ms) >= one.segment.next_base
        if one.at_ms > NOW_MS:
            assert log_start_target(partition, remote, now_ms=one.at_ms - 1) < one.segment.next_base

    going, staying = local_going(partition, committed, now_ms=NOW_MS, until_ms=then_ms, leaving=leaving)
    moved = replace(partition, log_start=end)
    local = going[-1].segment.next_base if going else partition.local_start
    assert local == local_start_target(moved, committed, now_ms=then_ms)
    assert (staying is None) is (len(going) == len(partition.closed))


def test_a_future_timestamp_keeps_nothing_longer_than_its_append_time() -> None:
    made = view(100, settings=settings(retention_ms=1000, local_retention_ms=500))
    far = replace(made, closed=tuple(replace(one, largest_timestamp_ms=4_102_444_800_000) for one in made.closed))
    appended_ms = made.closed[0].append_ms
    for remote in ([], ranges(far, 1)):
        (going,) = total_going(far, remote, now_ms=appended_ms, until_ms=NOW_MS)
        assert (going.rule, going.at_ms) == (Rule.TIME, appended_ms + 1001)
    told = outlook_of_untiered(far, [going], now_ms=appended_ms, within_ms=0)
    assert (told.future_segments, told.future_ms) == (1, 4_102_444_800_000)
    assert not told.is_empty
    assert outlook_of_untiered(made, [], now_ms=NOW_MS, within_ms=0).is_empty
    (going,), _ = local_going(far, [(0, 10)], now_ms=appended_ms, until_ms=NOW_MS)
    assert (going.rule, going.at_ms) == (Rule.LOCAL_TIME, appended_ms + 501)


def test_what_a_limit_would_let_go_but_the_bucket_lacks_is_named() -> None:
    made = view(100, 100, settings=settings(local_retention_ms=500))
    going, staying = local_going(made, [(0, 10)], now_ms=NOW_MS)
    assert [one.segment.base for one in going] == [0]
    assert staying is not None
    assert (staying.segment.base, staying.copied, staying.rule) == (10, False, Rule.LOCAL_TIME)
    kept = TopicSettings(local_retention_ms=None)
    _, staying = local_going(replace(made, settings=kept), [(0, 20)], now_ms=NOW_MS)
    assert staying is not None
    assert (staying.copied, staying.due_ms, staying.rule) == (True, None, None)
