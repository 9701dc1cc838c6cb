"""Bytes that changed in the bucket: once they are suspected they are read, named, and copied again from the disk."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kit.tierer_bench import Bench, drive, no_report, who
from tierd.base.errors import RemoteUnavailable
from tierd.config.topic import DAY_MS
from tierd.storage.view import PartitionView
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.losses import Losses
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.verbs import Outcome


def _flip(bench: Bench, key: str) -> bytes:
    """Other bytes of the same size, user metadata and all; gives what was there."""
    info, raw = bench.store.get_with_info(key)
    bench.store.keep(key, raw[:-1] + bytes([raw[-1] ^ 1]), info.metadata)
    return raw


def with_copy(
    tmp_path: Path, work: Callable[[Bench, PartitionView, CatalogSegment], Awaitable[None]], *, evict: bool = False
) -> None:
    async def run(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        if evict:
            await bench.tierer.verbs.evict(no_report)
        await bench.tierer.retention.tick()
        await work(bench, bench.local.views[view.id], bench.catalog.segments(view.id)[2])

    drive(tmp_path, run)


@pytest.mark.parametrize("kind", [".log", ".indexes"])
def test_a_broken_object_is_copied_again_while_the_disk_has_it(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench, view: PartitionView, row: CatalogSegment) -> None:
        key = row.remote.stem + kind
        _flip(bench, key)
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost == (), "a LIST does not see it"
        bench.tierer.retention.suspect(view.id, key)
        await bench.tierer.retention.tick()
        assert key in caplog.text
        await bench.local.until(lambda: not bench.local.remotes[view.id].lost)
        again = bench.catalog.covering(view.id, row.remote.base)
        assert again is not None
        assert again.segment_id != row.remote.segment_id
        old = bench.catalog.segment(view.id, row.remote.base, row.remote.segment_id)
        assert old is not None
        assert old.state is CopyState.DELETE_STARTED
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.DONE

    with_copy(tmp_path, work)


def test_without_the_disk_it_stays_named_until_the_bytes_are_back(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, row: CatalogSegment) -> None:
        good = _flip(bench, row.remote.log_key)
        bench.tierer.retention.suspect(view.id, row.remote.log_key)
        lost = ((row.remote.base, row.remote.next_base),)
        for _ in range(3):
            await bench.tierer.retention.tick()
            assert bench.local.remotes[view.id].lost == lost, "a LIST that shows all sizes right says nothing"
            bench.clock.advance(60_000)
        assert Losses(bench.catalog).ranges(view.id) == lost, "a start knows it"
        bench.store.keep(row.remote.log_key, good, bench.store.head(row.remote.log_key).metadata)
        bench.clock.advance(DAY_MS)
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost == ()
        assert Losses(bench.catalog).ranges(view.id) == ()

    with_copy(tmp_path, work, evict=True)


def test_what_is_sound_is_read_once_however_often_it_is_suspected(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, row: CatalogSegment) -> None:
        gets: list[str] = []
        bench.store.before = lambda operation, key: gets.append(key) if operation == "get" else None
        for _ in range(3):
            bench.tierer.retention.suspect(view.id, row.remote.log_key)
            await bench.tierer.retention.tick()
        assert gets.count(row.remote.indexes_key) == 1
        assert bench.local.remotes[view.id].lost == ()

    with_copy(tmp_path, work)


def test_a_bucket_that_is_away_meanwhile_does_not_make_it_forgotten(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, row: CatalogSegment) -> None:
        _flip(bench, row.remote.log_key)
        bench.tierer.retention.suspect(view.id, row.remote.log_key)

        def away(operation: str, key: str) -> None:
            if operation == "get":
                raise RemoteUnavailable("S3 503")

        bench.store.before = away
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost == ()
        bench.store.before = lambda operation, key: None
        await bench.tierer.retention.tick()
        assert bench.local.remotes[view.id].lost == ((row.remote.base, row.remote.next_base),)

    with_copy(tmp_path, work, evict=True)


def test_ranges_that_somebody_found_damaged_are_looked_into_at_once(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, row: CatalogSegment) -> None:
        _flip(bench, row.remote.log_key)
        last = bench.catalog.segments(view.id)[-1].remote.next_base
        assert bench.tierer.look_into(view.id, last, last + 5) == 0
        assert bench.tierer.look_into(view.id, row.remote.base + 1, row.remote.next_base + 1) == 2
        await bench.local.until(lambda: bool(bench.local.remotes[view.id].lost))
        assert bench.local.remotes[view.id].lost == ((row.remote.base, row.remote.next_base),)

    with_copy(tmp_path, work, evict=True)
