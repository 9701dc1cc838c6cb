"""What total retention lets go before it is copied never goes to the bucket; all that stays does."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import SETTINGS, Bench, drive, who
from tierd.config.topic import DAY_MS
from tierd.storage.view import PartitionView
from tierd.tiering.passed import may_have_passed
from tierd.tiering.verbs import Outcome


def _bytes_behind(view: PartitionView, number: int) -> int:
    """In the log behind its closed segment of this *number*."""
    return sum(one.size_bytes for one in view.closed[number + 1 :]) + view.active_bytes


def test_only_what_size_lets_stay_is_copied(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        bench.local.views[view.id] = replace(view, settings=replace(SETTINGS, retention_bytes=_bytes_behind(view, 1)))
        await bench.open(who())
        assert (await bench.copy()).outcome is Outcome.DONE
        stays = [one.base for one in view.closed[2:]]
        assert bench.local.views[view.id].log_start == stays[0]
        assert [row.remote.base for row in bench.catalog.segments(view.id)] == stays
        assert len([key for key in bench.objects() if key.endswith(".log")]) == len(stays)

    drive(tmp_path, work)


def test_what_time_has_passed_is_not_copied_when_the_bucket_comes_back(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        age_ms = bench.clock.now_ms() - max(one.age_anchor_ms for one in view.closed)
        bench.local.views[view.id] = replace(view, settings=replace(SETTINGS, retention_ms=max(0, age_ms) + DAY_MS))
        bench.clock.advance(2 * DAY_MS + abs(age_ms))
        await bench.open(who())
        assert (await bench.copy()).outcome is Outcome.DONE
        assert bench.objects() == set()
        assert bench.local.views[view.id].log_start == view.active_base

    drive(tmp_path, work)


def test_while_the_clock_cannot_be_trusted_all_is_copied(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        bench.local.views[view.id] = replace(view, settings=replace(SETTINGS, retention_bytes=0))
        bench.clock.step_wall(2 * bench.options.clock_limit_ms)
        await bench.open(who())
        assert (await bench.copy()).outcome is Outcome.DONE
        assert bench.local.remotes[view.id].copied_to == view.active_base
        assert bench.local.views[view.id].log_start == 0

    drive(tmp_path, work)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_border_of_size(tmp_path: Path, more: int) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        view = replace(view, settings=replace(SETTINGS, retention_bytes=_bytes_behind(view, 0) + more))
        assert may_have_passed(view, None, 0) is (more <= 0)

    drive(tmp_path, work)


@pytest.mark.parametrize("more", [0, 1])
def test_the_border_of_time(tmp_path: Path, more: int) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0", replace(SETTINGS, retention_ms=1000))
        assert may_have_passed(view, None, view.closed[0].age_anchor_ms + 1000 + more) is (more > 0)

    drive(tmp_path, work)
