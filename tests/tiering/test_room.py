"""A disk with little room: what the bucket has leaves it early; each data directory for itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import Bench, drive, who
from tierd.storage.reserve import is_scarce
from tierd.storage.view import SegmentView
from tierd.tiering.question_calls import sentences
from tierd.tiering.room import Room

LIMIT = 8000
A, B = Path("/a"), Path("/b")


@pytest.mark.parametrize(
    ("free_bytes", "before", "scarce"),
    [
        (LIMIT - 1, False, True),
        (LIMIT, False, False),
        (LIMIT - 1, True, True),
        (LIMIT, True, True),
        (LIMIT + 999, True, True),
        (LIMIT + 1000, True, False),
    ],
)
def test_the_borders(free_bytes: int, before: bool, scarce: bool) -> None:
    assert is_scarce(free_bytes, LIMIT, before=before) is scarce


@pytest.mark.parametrize("limit", [None, 0])
def test_without_a_limit_nothing_is_scarce(limit: int | None) -> None:
    assert not is_scarce(0, limit, before=True)


def test_each_directory_has_its_own_stage() -> None:
    clock, free = FakeClock(), {A: LIMIT - 1, B: LIMIT}
    room = Room(LIMIT, clock, free.__getitem__)
    assert (room.scarce(A), room.scarce(B)) == (True, False)
    free[A], free[B] = LIMIT, 0
    assert (room.scarce(A), room.scarce(B)) == (True, False), "asked once a second"
    clock.advance(1000)
    assert (room.scarce(A), room.scarce(B)) == (True, True)
    free[A] = 2 * LIMIT
    clock.advance(1000)
    assert (room.scarce(A), room.scarce(B)) == (False, True)


def test_a_disk_that_cannot_be_asked_changes_nothing() -> None:
    clock, free = FakeClock(), {A: 0}

    def ask(path: Path) -> int:
        if path not in free:
            raise OSError("gone")
        return free[path]

    room = Room(LIMIT, clock, ask)
    assert (room.scarce(A), room.scarce(B)) == (True, False)
    del free[A]
    clock.advance(5000)
    assert room.scarce(A)


def test_it_says_what_happens_and_where_the_backlog_lies() -> None:
    room = Room(LIMIT, FakeClock(), {A: 0, B: LIMIT}.__getitem__)
    assert room.note(B, []) is None
    said = f"{A}: 0.0 MiB are free, less than tierd.disk.evict.bytes: what the bucket has leaves this disk early; "
    assert room.note(A, []) == said + "no closed segment waits for its copy"
    segment = SegmentView(base=0, next_base=1, size_bytes=1024 * 1024, largest_timestamp_ms=None, append_ms=0)
    backlog = [("t-0", segment), ("u-1", segment), ("u-1", segment)]
    assert room.note(A, backlog) == (
        said + "3.0 MiB of 2 partitions wait for their copies, most of it u-1's: 2.0 MiB (tierd why u-1)"
    )


def test_what_is_copied_leaves_early_and_nothing_else(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        middle = view.closed[2].next_base
        bench.local.views[view.id] = replace(view, recovery_point=middle)
        free = {view.directory.parent: LIMIT}
        bench.tierer.room = room = Room(LIMIT, bench.clock, free.__getitem__)
        bench.tierer.retention._scarce = room.scarce
        await bench.open(who())
        await bench.local.until(
            lambda: (row := bench.local.remotes.get(view.id)) is not None and row.copied_to == middle
        )
        await bench.tierer.retention.room_tick()
        assert bench.local.views[view.id].local_start == 0
        free[view.directory.parent] -= 1
        bench.clock.advance(1000)
        await bench.tierer.retention.room_tick()
        assert bench.local.views[view.id].local_start == middle
        (said,) = sentences(bench.tierer)
        assert "wait for their copies, most of it codec-none-0's" in said
        bench.local.set(view.id, recovery_point=view.active_base)  # the rest is copied, and goes without a look
        await bench.local.until(lambda: bench.local.views[view.id].local_start == view.active_base)

    drive(tmp_path, work)
