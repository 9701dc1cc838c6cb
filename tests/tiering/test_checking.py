"""The look at the bucket by the clock: in its window, when it is due, and what it leads to."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import Bench, drive, who
from tierd.base.ids import Uuid
from tierd.config.checking import Checking
from tierd.config.state_files import VERIFY_BY_CLOCK
from tierd.config.topic import DAY_MS, HOUR_MS
from tierd.remote import crc
from tierd.storage.view import PartitionView
from tierd.tiering.verify import standing

WEEK = 7 * DAY_MS
ALWAYS, MIDNIGHT = "00:00-23:59", "00:00-01:00"
NOON_MS = 12 * HOUR_MS


def looking(
    tmp_path: Path, asked: Checking, work: Callable[[Bench, PartitionView, list[str]], Awaitable[None]]
) -> None:
    """*work* gets an archive with copies, and the keys that are read from it from then on."""

    async def run(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        await bench.tierer.publish_head(view.id)
        bench.tierer.state.options = replace(
            bench.options, remote=bench.options.remote.model_copy(update={"verify": asked})
        )
        read: list[str] = []
        bench.store.before = lambda operation, key: read.append(key) if operation in ("get", "head") else None
        bench.clock.advance(-bench.clock.now_ms() % DAY_MS + NOON_MS)
        await work(bench, view, read)

    drive(tmp_path, run)


def _counting(bench: Bench, view: PartitionView, offset: int) -> Uuid | None:
    found = bench.catalog.covering(view.id, offset)
    return None if found is None else found.segment_id


def test_it_comes_when_the_window_is_open_and_again_when_it_is_due(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, read: list[str]) -> None:
        await bench.tierer.check.tick()
        assert not read, "the window is shut at noon"
        bench.clock.advance(NOON_MS)
        await bench.tierer.check.tick()
        assert read
        assert bench.tierer.check.note() is None
        read.clear()
        bench.clock.advance(WEEK - DAY_MS)
        await bench.tierer.check.tick()
        assert not read, "a week is not over"
        bench.clock.advance(DAY_MS)
        await bench.tierer.check.tick()
        assert read

    looking(tmp_path, Checking(window=MIDNIGHT, deep=True), work)


def test_by_default_only_the_verb_looks(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, read: list[str]) -> None:
        await bench.tierer.check.tick()
        assert not read

    looking(tmp_path, Checking(), work)


def test_a_budget_spreads_it_over_several_windows(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, read: list[str]) -> None:
        file = bench.options.state_dir / VERIFY_BY_CLOCK
        looks = 0
        while not looks or standing.load(file).cursor is not None:  # type: ignore[union-attr]
            await bench.tierer.check.tick()
            looks += 1
            bench.clock.advance(DAY_MS)
        kept = standing.load(file)
        assert kept is not None
        assert looks > 1
        assert sum(one.looked_into for one in kept.reports) == len(view.closed)

    looking(tmp_path, Checking(window=ALWAYS, deep=True, requests=1), work)


def test_what_is_damaged_is_said_and_copied_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench, view: PartitionView, read: list[str]) -> None:
        row = bench.catalog.segments(view.id)[1]
        raw = bytearray(bench.store.get(row.remote.log_key, 0, row.remote.log_bytes))
        raw[-1] ^= 1
        bench.store.put(row.remote.log_key, bytes(raw), crc32c=crc.crc32c(raw))
        await bench.tierer.check.tick()
        assert "are damaged in the bucket" in caplog.text
        note = bench.tierer.check.note()
        assert note is not None
        assert "damaged" in note
        await bench.local.until(lambda: _counting(bench, view, row.remote.base) != row.remote.segment_id)
        bench.clock.advance(WEEK)
        await bench.tierer.publish_head(view.id)
        await bench.tierer.check.tick()
        assert bench.tierer.check.note() is None

    with caplog.at_level(logging.INFO):
        looking(tmp_path, Checking(window=ALWAYS, deep=True), work)


def test_a_standing_that_cannot_be_read_is_kept_aside(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, read: list[str]) -> None:
        file = bench.options.state_dir / VERIFY_BY_CLOCK
        file.write_bytes(b"nonsense")
        await bench.tierer.check.tick()
        assert file.with_suffix(".corrupt").read_bytes() == b"nonsense"
        await bench.tierer.check.tick()
        assert standing.load(file) is not None

    looking(tmp_path, Checking(window=ALWAYS), work)
