"""What the verbs do and say, and partitions that are held still."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import SETTINGS, Bench, drive, no_report, who
from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import Uuid
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.verbs import Outcome


def test_copy_names_what_an_open_transaction_pins(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        bench.local.views[view.id] = replace(view, last_stable=160, pinned_by="producer 7's transaction since T")
        await bench.open(who())
        result = await bench.copy()
        assert result.outcome is Outcome.PINNED
        assert "producer 7" in result.detail
        assert [row.copied_to for row in result.left] == [150]

    drive(tmp_path, work)


def test_a_dry_run_of_copy_names_what_would_be_copied(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        bench.local.views[view.id] = replace(view, last_stable=160)
        assert (await bench.tierer.verbs.plan("copy")).outcome is Outcome.UNAVAILABLE
        await bench.open(who())
        plan = await bench.tierer.verbs.plan("copy")  # before the loop has turned: no copy has begun
        (row,) = plan.planned
        assert (row.start, row.stop) == (0, 150)
        assert plan.bytes == row.bytes == sum(one.size_bytes for one in view.closed if one.next_base <= 150)
        await bench.copy()
        assert (await bench.tierer.verbs.plan("copy")).planned == ()

    drive(tmp_path, work)


def test_a_dry_run_of_evict_names_what_a_list_confirms_and_drops_nothing(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        lost = bench.catalog.segments(view.id)[2].remote
        bench.store.delete([lost.indexes_key])
        plan = await bench.tierer.verbs.plan("evict")
        (row,) = plan.planned
        assert (row.start, row.stop, row.segments) == (0, lost.base, 2)
        assert bench.local.views[view.id].closed == view.closed
        evicted = await bench.tierer.verbs.evict(no_report)
        assert (evicted.segments, evicted.bytes) == (plan.segments, plan.bytes)

    drive(tmp_path, work)


def test_copy_says_that_the_bucket_does_not_answer(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.adopt("codec-none-0")
        await bench.open(who())

        def away(operation: str, key: str) -> None:
            raise RemoteUnavailable("S3 503")

        bench.store.before = away
        result = await bench.copy()
        assert result.outcome is Outcome.UNAVAILABLE
        assert "503" in result.detail
        waiting = (await bench.tierer.status())[0].waiting
        assert waiting is not None
        assert waiting.reason in ("retrying", "copying")
        bench.store.before = lambda operation, key: None
        assert (await bench.copy()).outcome is Outcome.DONE

    drive(tmp_path, work)


def test_a_dry_run_with_roll_counts_the_active_segment_and_names_the_bucket_that_is_away(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        (row,) = (await bench.tierer.verbs.plan("copy", roll=True)).planned
        assert (row.start, row.stop, row.bytes) == (view.active_base, view.log_end, view.active_bytes)
        bench.store.before = _away
        plan = await bench.tierer.verbs.plan("copy", roll=True)
        assert (plan.outcome, plan.planned) == (Outcome.UNAVAILABLE, (row,))
        bench.store.before = lambda operation, key: None

    drive(tmp_path, work)


def test_a_copy_ends_alike_each_time_that_the_bucket_is_away(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.adopt("codec-none-0")
        await bench.open(who())
        bench.tierer.state.options = replace(bench.options, retry_ms=600_000)  # one try for each verb
        bench.store.before = _away
        for _ in range(2):
            result = await bench.tierer.verbs.copy(wait=True, timeout_ms=300, report=no_report)
            assert result.outcome is Outcome.UNAVAILABLE
            assert "503" in result.detail
        result = await bench.tierer.verbs.copy(wait=True, timeout_ms=None, report=no_report)
        assert result.outcome is Outcome.UNAVAILABLE, "the third failure in a row is enough, whoever saw the others"
        bench.store.before = lambda operation, key: None

    drive(tmp_path, work)


def _away(operation: str, key: str) -> None:
    raise RemoteUnavailable("S3 503")


def test_a_segment_that_retention_took_while_it_was_copied_holds_nothing_up(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        gone, *left = view.closed
        (view.directory / f"{gone.base:020d}.log").unlink()
        result = await bench.tierer.verbs.copy(wait=True, timeout_ms=300, report=no_report)
        assert result.outcome is Outcome.TIMEOUT, "a broken disk is not tried again at once"
        bench.local.set(view.id, closed=tuple(left), log_start=left[0].base, local_start=left[0].base)
        assert not bench.tierer.copying.error(view.id)
        result = await bench.tierer.verbs.copy(wait=True, timeout_ms=60_000, report=no_report)
        assert result.outcome is Outcome.DONE

    drive(tmp_path, work)


def test_copy_times_out_and_goes_on(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        bench.local.views[view.id] = replace(view, recovery_point=80)
        await bench.open(who())
        result = await bench.tierer.verbs.copy(wait=True, timeout_ms=300, report=no_report)
        assert (result.outcome, result.segments) == (Outcome.TIMEOUT, 1)
        assert [row.waiting.reason for row in result.left] == ["unflushed"]
        bench.local.set(view.id, recovery_point=view.active_base)
        assert (await bench.copy()).outcome is Outcome.DONE

    drive(tmp_path, work)


def test_a_held_partition_is_not_copied_and_what_was_under_way_is_known(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        bench.tierer.partition_changed(view)
        bench.tierer.partition_changed(replace(view, cleaning=True))
        await bench.tierer.copying.hold(view.id)
        row = bench.catalog.partition(view.id)
        assert row is not None
        assert row.copied_to is not None  # the first segment was on its way already
        copied_to = row.copied_to
        assert copied_to < view.closed[-1].next_base
        assert bench.tierer.copying.plan(view.id).segments == ()
        bench.tierer.partition_changed(replace(view, cleaning=False))
        await bench.copy()
        row = bench.catalog.partition(view.id)
        assert row is not None
        assert row.copied_to == view.closed[-1].next_base

    drive(tmp_path, work)


def test_a_try_with_an_unknown_outcome_is_decided_before_a_partition_is_held(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        last = bench.catalog.segments(view.id, CopyState.COPY_FINISHED)[-1]
        segment_id = Uuid(os.urandom(16))
        lost = replace(last.remote, segment_id=segment_id, stem=f"{last.remote.stem[:-22]}{segment_id}")
        bench.catalog.started(replace(last, remote=lost, state=CopyState.COPY_STARTED))
        assert bench.catalog.segments(view.id, CopyState.COPY_STARTED)
        await bench.tierer.copying.hold(view.id)
        assert bench.catalog.segments(view.id, CopyState.COPY_STARTED) == []

    drive(tmp_path, work)


def test_a_partition_that_the_bucket_says_nothing_of_cannot_be_held(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        with pytest.raises(RemoteUnavailable):
            await bench.tierer.copying.hold(view.id)

    drive(tmp_path, work)


def test_copy_does_not_wait_for_what_closes_after_it_was_asked(tmp_path: Path) -> None:
    """Else it would go on for as long as somebody produces fast enough."""

    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        now, later = view.closed[:2], view.closed[2].base
        bench.local.views[view.id] = replace(view, closed=now, active_base=later, recovery_point=later)
        loop = asyncio.get_running_loop()

        def close_more(operation: str, key: str) -> None:
            if key.endswith("manifest"):
                loop.call_soon_threadsafe(lambda: bench.local.set(view.id, closed=view.closed))

        bench.store.before = close_more
        await bench.open(who())
        result = await bench.tierer.verbs.copy(wait=True, timeout_ms=10_000, report=no_report)
        assert result.outcome is Outcome.DONE
        assert [(row.copied_to, row.waiting.reason) for row in result.left] == [(later, "unflushed")]

    drive(tmp_path, work)


def test_copy_names_what_waits_for_its_cleaning(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0", replace(SETTINGS, cleanup_policy=frozenset({"compact"})))
        bench.local.views[view.id] = replace(view, cleaned_to=view.closed[0].next_base)
        await bench.open(who())
        result = await bench.copy()
        assert result.outcome is Outcome.PINNED
        first = view.closed[0]
        assert [(row.copied_to, row.waiting.reason) for row in result.left] == [(first.next_base, "uncleaned")]

    drive(tmp_path, work)


def test_copy_waits_while_a_partition_is_cleaned(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        bench.local.views[view.id] = replace(view, cleaning=True)
        await bench.open(who())
        result = await bench.tierer.verbs.copy(wait=True, timeout_ms=300, report=no_report)
        assert result.outcome is Outcome.TIMEOUT
        bench.local.set(view.id, cleaning=False)
        result = await bench.copy()
        assert (result.outcome, result.left) == (Outcome.DONE, ())

    drive(tmp_path, work)
