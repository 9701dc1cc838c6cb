"""Copying that is paused: nothing goes to the bucket, also after a restart, until it is resumed; then all does."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.clock import FakeClock
from kit.model_disk import ModelDisk
from kit.tierer_bench import Bench, drive, who
from tierd.config.state_files import PAUSED
from tierd.remote.memory import MemoryStore
from tierd.remote.store import ObjectInfo
from tierd.storage.disk import PosixDisk
from tierd.tiering.pausing import Pause, keep_pause, read_pause
from tierd.tiering.verbs import Outcome

PAUSE = Pause(since_ms=1_700_000_000_000, why="the line is needed")


def test_a_pause_holds_all_copies_and_outlasts_a_restart(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        found = await bench.tierer.pause(PAUSE, dry=False)
        await bench.open(who("d", bytes(16)))
        assert (found.before, found.after) == (None, PAUSE)
        assert (await bench.tierer.pause(PAUSE, dry=True)).segments == len(view.closed)
        again = Bench(tmp_path, bench.store, bench.clock)
        again.local.views[view.id] = view
        await bench.close()
        await again.open(who("d", bytes(16)))
        result = await again.copy()
        assert (result.outcome, result.segments) == (Outcome.PINNED, 0)
        (left,) = result.left
        assert left.waiting.reason == "paused"
        assert left.waiting.detail == "tierd pause holds all copies since 2023-11-14 22:13:20 UTC: the line is needed"
        assert again.objects() == set()
        assert (await again.tierer.pause(None, dry=False)).after is None
        assert (await again.copy()).outcome is Outcome.DONE
        assert again.catalog.remote_partition(view.id).copied_to == view.active_base
        await again.close()
        assert not (tmp_path / "state" / PAUSED).exists()

    drive(tmp_path, work)


def test_a_dry_run_changes_nothing_and_a_second_pause_keeps_the_first(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await bench.open(who())
        for dry, before, after in ((True, None, PAUSE), (False, None, PAUSE)):
            found = await bench.tierer.pause(PAUSE, dry=dry)
            assert (found.before, found.after) == (before, after)
            assert (bench.tierer.state.paused is None) is dry
        later = Pause(since_ms=PAUSE.since_ms + 1, why="")
        assert (await bench.tierer.pause(later, dry=False)).after == PAUSE
        assert (await bench.tierer.pause(None, dry=True)).after is None
        assert read_pause(tmp_path / "state" / PAUSED) == PAUSE

    drive(tmp_path, work)


def test_pauses_and_resumes_at_once_leave_file_and_memory_agreed(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await bench.open(who())
        for last in (PAUSE, None):
            asked = [None if number % 3 else replace(PAUSE, since_ms=number) for number in range(30)]
            await asyncio.gather(*(bench.tierer.pause(one, dry=False) for one in [*asked, last]))
            assert bench.tierer.state.paused == read_pause(tmp_path / "state" / PAUSED)
            assert (bench.tierer.state.paused is None) is (last is None)

    drive(tmp_path, work)


class _Interrupted(MemoryStore):
    """Somebody pauses while a `.log` is on its way."""

    bench: Bench | None = None

    def put(self, key: str, *args: Any, **how: Any) -> ObjectInfo:
        if key.endswith(".log") and self.bench is not None:
            self.bench.tierer.state.paused, self.bench = PAUSE, None
        return super().put(key, *args, **how)


def test_a_copy_under_way_is_given_up_and_begun_anew(tmp_path: Path) -> None:
    async def work(_: Bench) -> None:
        clock = FakeClock()
        store = _Interrupted(clock)
        bench = Bench(tmp_path, store, clock, "other")
        view = bench.adopt("codec-none-0")
        store.bench = bench
        await bench.open(who())
        result = await bench.copy()
        assert (result.outcome, result.segments) == (Outcome.PINNED, 0)
        assert not any(key.endswith(".rsm-manifest") for key in bench.objects())
        await bench.tierer.pause(None, dry=False)
        assert (await bench.copy()).outcome is Outcome.DONE
        assert bench.catalog.remote_partition(view.id).copied_to == view.active_base
        manifests = [key for key in bench.objects() if key.endswith(".rsm-manifest")]
        assert len(manifests) == len(view.closed)
        await bench.close()

    drive(tmp_path, work)


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"since_ms": "x", "why": ""}', b"\xff"])
def test_a_file_that_cannot_be_read_holds_copies_too(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / PAUSED
    path.write_bytes(raw)
    found = read_pause(path)
    assert found is not None
    assert "cannot be read" in str(found)
    keep_pause(path, None, PosixDisk())
    assert read_pause(path) is None


def test_a_pause_is_durable_when_it_is_said(tmp_path: Path) -> None:
    disk = ModelDisk(tmp_path)
    keep_pause(tmp_path / PAUSED, PAUSE, disk)
    disk.cut()
    disk.lose_unsynced()
    assert read_pause(tmp_path / PAUSED) == PAUSE
