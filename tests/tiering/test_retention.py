"""What leaves the disk and the bucket, and in which order."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

from kit.tierer_bench import KEYS, SETTINGS, Bench, drive, no_report, who
from tierd.base.errors import RemoteUnavailable
from tierd.config.topic import DAY_MS
from tierd.remote.heads import read_head
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.verbs import Outcome


def test_local_retention_drops_only_what_a_list_confirms(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        lost = bench.catalog.segments(view.id)[2].remote
        bench.store.delete([lost.indexes_key])
        bench.local.set(view.id, settings=replace(SETTINGS, local_retention_ms=1000))
        bench.clock.advance(2000)
        await bench.tierer.retention.tick()
        assert bench.local.views[view.id].local_start == lost.base
        assert bench.local.views[view.id].log_start == 0

    drive(tmp_path, work)


def test_copies_that_local_retention_waited_for_go_at_once(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0", replace(SETTINGS, local_retention_ms=0))
        bench.clock.advance(1000)
        await bench.open(who())
        await bench.copy()
        await bench.local.until(lambda: not bench.local.views[view.id].closed)
        assert bench.local.views[view.id].local_start == view.active_base

    drive(tmp_path, work)


def test_what_the_disk_has_lost_since_it_was_copied_is_left_to_the_bucket(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        first, gone, *others = view.closed
        hole = (replace(first, next_base=gone.next_base), *others)
        bench.local.set(view.id, closed=hole)
        await bench.tierer.retention.tick()
        assert bench.local.views[view.id].closed == hole  # it has not begun: it may be of another history
        bench.local.set(view.id, closed=hole, leader_epoch=bench.tierer.state.claim.epoch)
        await bench.local.until(lambda: bench.local.views[view.id].closed == tuple(others))
        assert bench.local.views[view.id].local_start == gone.next_base
        assert bench.local.views[view.id].log_start == 0

    drive(tmp_path, work)


def test_total_retention_moves_log_start_first_and_deletes_after_the_delay(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        bench.local.set(view.id, settings=replace(SETTINGS, retention_bytes=10_000))
        await bench.tierer.retention.tick()
        log_start = bench.local.views[view.id].log_start
        assert log_start > 0
        kept = [one for one in view.closed if one.next_base > log_start]
        assert sum(one.size_bytes for one in kept) + view.active_bytes >= 10_000
        remote = bench.local.remotes[view.id]
        assert (remote.start, remote.log_start) == (log_start, log_start)
        assert remote.deleting_bytes > 0
        objects = bench.objects()

        await bench.tierer.retention.delete_tick()
        assert bench.objects() == objects  # the delay has not passed
        bench.clock.advance(DAY_MS)
        await bench.tierer.retention.delete_tick()
        head = read_head(bench.store, KEYS, "codec-none", view.id.topic_id, 0)
        assert head is not None
        assert head.head.log_start == log_start
        assert len(bench.objects()) == 3 * len(kept)
        assert bench.local.remotes[view.id].deleting_bytes == 0
        assert bench.local.remotes[view.id].copied_to == view.active_base

    drive(tmp_path, work)


def test_nothing_goes_while_the_clock_is_in_doubt(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0", replace(SETTINGS, local_retention_ms=10**9))
        await bench.open(who())
        await bench.copy()
        bench.clock.step_wall(30 * DAY_MS)
        await bench.tierer.retention.tick()
        assert bench.local.views[view.id].closed == view.closed
        result = await bench.tierer.verbs.evict(no_report)
        assert result.outcome is Outcome.FAILED
        assert "jumped" in result.detail
        bench.clock.step_wall(-30 * DAY_MS)
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.DONE
        assert bench.local.views[view.id].closed == ()

    drive(tmp_path, work)


def test_deletes_that_were_begun_go_on_after_a_failure(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        bench.local.set(view.id, settings=replace(SETTINGS, retention_bytes=0))
        await bench.tierer.retention.tick()
        bench.clock.advance(DAY_MS)

        def refuse(operation: str, key: str) -> None:
            if operation == "delete" and key.endswith(".log"):
                raise RemoteUnavailable("gone for now")

        bench.store.before = refuse
        await bench.tierer.retention.delete_tick()
        assert not [key for key in bench.objects() if key.endswith("manifest")]
        assert bench.catalog.in_state(CopyState.DELETE_STARTED)
        bench.store.before = lambda operation, key: None
        await bench.tierer.retention.delete_tick()
        assert bench.objects() == set()
        assert bench.catalog.segments(view.id) == []

    drive(tmp_path, work)


def test_a_copy_that_log_start_has_passed_meanwhile_is_released(tmp_path: Path) -> None:
    """Else it would stay in the bucket until log start moves once more, perhaps for ever."""

    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        loop, first = asyncio.get_running_loop(), view.closed[0]
        moved = threading.Event()

        def move() -> None:
            bench.local.set(view.id, log_start=first.next_base)
            moved.set()

        def hold(operation: str, key: str) -> None:
            if operation == "put" and key.endswith("manifest") and not moved.is_set():
                loop.call_soon_threadsafe(move)
                assert moved.wait(60)

        bench.store.before = hold
        await bench.copy()
        released = [row.remote.base for row in bench.catalog.segments(view.id) if row.released_ms is not None]
        assert released == [first.base]

    drive(tmp_path, work)
