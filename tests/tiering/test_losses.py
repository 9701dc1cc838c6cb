"""Objects that the bucket has lost: it is said, what the disk still has is copied again, nothing leaves meanwhile."""

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import SETTINGS, Bench, drive, no_report, who
from tierd.base.errors import RemoteUnavailable
from tierd.config.topic import DAY_MS
from tierd.remote.crc import crc32c
from tierd.storage.view import PartitionView
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.losses import Losses
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verbs import Outcome


async def _copied(bench: Bench) -> tuple[PartitionView, RemoteSegment]:
    """All closed segments are in the bucket; one of them is given."""
    view = bench.adopt("codec-none-0")
    await bench.open(who())
    await bench.copy()
    return view, bench.catalog.segments(view.id)[2].remote


def _truncate(bench: Bench, key: str) -> None:
    raw = bench.store.get(key)
    bench.store.delete([key])
    bench.store.put(key, raw[:-1], crc32c=crc32c(raw[:-1]))


@pytest.mark.parametrize("kind", [".log", ".indexes", ".rsm-manifest"])
@pytest.mark.parametrize("how", ["deleted", "truncated"])
def test_it_is_named_and_copied_again_from_the_local_segment(
    tmp_path: Path, kind: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench) -> None:
        view, lost = await _copied(bench)
        key = lost.stem + kind
        _truncate(bench, key) if how == "truncated" else bench.store.delete([key])
        result = await bench.tierer.verbs.evict(no_report)
        assert result.outcome is Outcome.PINNED
        assert key in result.detail
        assert [row.waiting.reason for row in result.left] == ["lost"]
        assert bench.local.views[view.id].local_start == lost.base
        assert key in caplog.text
        assert bench.local.remotes[view.id].lost == ((lost.base, lost.next_base),)
        await bench.local.until(lambda: not bench.local.remotes[view.id].lost)
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.DONE
        assert bench.local.views[view.id].local_start == view.active_base
        (again,) = [
            row.remote
            for row in bench.catalog.segments(view.id, CopyState.COPY_FINISHED)
            if row.remote.base == lost.base
        ]
        assert again.segment_id != lost.segment_id
        assert bench.catalog.covering(view.id, lost.base) == again
        await bench.tierer.retention.delete_tick()
        assert not [one for one in bench.objects() if one.startswith(lost.stem)], "what was left of the old one is gone"
        assert len(bench.objects()) == 3 * len(view.closed)

    with caplog.at_level(logging.ERROR):
        drive(tmp_path, work)


def test_what_is_left_of_a_copy_does_not_go_for_a_local_segment_that_has_lost_something(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view, lost = await _copied(bench)
        bench.store.delete([lost.stem + ".indexes"])
        path = Path(view.directory) / f"{lost.base:020d}.log"
        first_bytes = 12 + int.from_bytes(path.read_bytes()[8:12], "big")
        assert first_bytes < lost.size_bytes
        os.truncate(path, first_bytes)
        closed = [replace(one, size_bytes=first_bytes) if one.base == lost.base else one for one in view.closed]
        torn = replace(view, closed=tuple(closed))
        bench.local.views[view.id] = torn
        bench.tierer.partition_changed(torn)
        result = await bench.tierer.verbs.evict(no_report)
        assert result.outcome is Outcome.PINNED
        await bench.copy()
        await bench.tierer.retention.delete_tick()
        assert len(bench.store.get(lost.stem + ".log")) == lost.size_bytes
        assert "no such whole local segment" in result.left[0].waiting.detail

    drive(tmp_path, work)


def test_a_loss_of_what_the_disk_has_not_any_more_is_named_until_retention_lets_it_go(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view, lost = await _copied(bench)
        await bench.tierer.verbs.evict(no_report)
        bench.store.delete([lost.log_key])
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost == ((lost.base, lost.next_base),)
        waiting = (await bench.tierer.status())[0].waiting
        assert waiting is not None
        assert waiting.reason == "lost"
        assert lost.log_key in waiting.detail
        assert "cannot be read" in waiting.detail
        assert (await bench.copy()).outcome is Outcome.PINNED
        assert Losses(bench.catalog).ranges(view.id) == ((lost.base, lost.next_base),), "the next start knows it, too"
        bench.local.set(view.id, log_start=lost.next_base)
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost == ()

    drive(tmp_path, work)


def test_all_that_lies_there_is_looked_at_once_a_day_and_after_a_bad_read(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view, lost = await _copied(bench)
        await bench.tierer.retention.tick()
        bench.store.delete([lost.log_key])
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost == ()
        bench.tierer.retention.suspect(view.id, lost.log_key)
        await bench.tierer.retention.tick()
        await bench.local.until(lambda: bool(bench.local.remotes[view.id].lost))
        await bench.local.until(lambda: not bench.local.remotes[view.id].lost)
        bench.store.delete([bench.catalog.covering(view.id, lost.base).log_key])  # type: ignore[union-attr]
        bench.clock.advance(DAY_MS)
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost

    drive(tmp_path, work)


def test_a_second_copy_that_was_cut_off_takes_the_place_as_soon_as_it_is_known(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view, lost = await _copied(bench)
        bench.store.delete([lost.log_key])
        finished = bench.catalog.finished

        def crash(*rows: object) -> None:
            bench.catalog.finished = finished  # type: ignore[method-assign]
            raise RemoteUnavailable("committed, and not known here")

        bench.catalog.finished = crash  # type: ignore[method-assign, assignment]
        await bench.tierer.verbs.evict(no_report)
        await bench.local.until(lambda: not bench.local.remotes[view.id].lost)
        assert len(bench.catalog.segments(view.id, CopyState.COPY_FINISHED)) == len(view.closed), "not a third one"

    drive(tmp_path, work)


def test_local_retention_goes_on_once_it_is_mended(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view, lost = await _copied(bench)
        bench.store.delete([lost.log_key])
        bench.local.set(view.id, settings=replace(SETTINGS, local_retention_ms=1000))
        bench.clock.advance(2000)
        await bench.tierer.retention.tick()
        await bench.local.until(lambda: bench.local.views[view.id].local_start == view.active_base)

    drive(tmp_path, work)
