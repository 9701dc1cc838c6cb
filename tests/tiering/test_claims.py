"""Whose the bucket is: epochs, foreign owners, a lost catalog, a bucket of somebody else."""

import asyncio
import shutil
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.folder_tier import FolderTier
from kit.golden import golden
from kit.tierer_bench import KEYS, Bench, copied, who
from tierd.base.errors import DiskFull, RemoteUnavailable, StartRefused
from tierd.config.model import Remote
from tierd.config.topic import DAY_MS
from tierd.remote.archive_id import read_archive
from tierd.remote.errors import WrongBucket
from tierd.remote.file import FileStore
from tierd.remote.heads import read_head
from tierd.remote.keys import Keys
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.remote.owner import newest_claim
from tierd.remote.view import ClaimState
from tierd.storage.disk import PosixDisk
from tierd.storage.epochs import parse_epochs
from tierd.storage.snapshot import parse_snapshot
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.options import OpenRequest, TiererOptions
from tierd.tiering.state import COMMIT_WITHIN_MS
from tierd.tiering.tierer import Tierer
from tierd.tiering.verbs import Outcome


def test_epochs_rise_and_first_appends_are_claimed(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first = Bench(tmp_path, store, clock)
        view = first.adopt("codec-none-0")
        assert (await first.open(who())).claim.epoch == 5
        claim = newest_claim(store, KEYS)
        assert claim is not None
        assert claim.first_append(view.id) == view.log_end
        await first.copy()
        await first.close()

        again = Bench(tmp_path, store, clock)
        again.local.views[view.id] = replace(view, closed=(), log_end=0, local_start=0)  # the disk fell behind
        report = await again.open(who(), local_epoch=-1)
        assert (report.claim.state, report.claim.epoch) == (ClaimState.HELD, 6)
        claim = newest_claim(store, KEYS)
        assert claim is not None
        assert claim.first_append(view.id) == view.active_base
        await again.close()

    asyncio.run(run())


def test_a_rebuilt_catalog_is_the_same_as_the_lost_one(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first = Bench(tmp_path, store, clock)
        views = [first.adopt(name) for name in ("codec-none-0", "txn-0", "compacted-0", "timestamps-0")]
        await first.open(who())
        await first.copy()
        first.local.set(views[0].id, log_start=80)
        await first.tierer.publisher.tick()
        before = [row.remote for view in views for row in first.catalog.segments(view.id)]
        remotes = [first.catalog.remote_partition(view.id) for view in views]
        await first.close()

        again = Bench(tmp_path, store, clock, "rebuilt")
        again.local.views = {view.id: view for view in views}
        report = await again.open(who())
        assert [report.remotes[view.id] for view in views] == remotes
        after = [row.remote for view in views for row in again.catalog.segments(view.id)]
        assert [replace(one, log_etag=None, indexes_etag=None) for one in after] == [
            replace(one, log_etag=None, indexes_etag=None) for one in before
        ]
        assert (await again.copy()).segments == 0
        await again.close()

    asyncio.run(run())


def test_the_wrong_bucket_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        first = Bench(tmp_path, MemoryStore(clock), clock)
        view = first.adopt("codec-none-0")
        await first.open(who())
        await first.close()
        empty, foreign = MemoryStore(clock), MemoryStore(clock)
        stranger = Bench(tmp_path, foreign, clock, "stranger")
        await stranger.open(who("x"))
        await stranger.close()
        for store in (empty, foreign):
            other = Bench(tmp_path, store, clock)
            other.local.views[view.id] = view
            with pytest.raises(WrongBucket, match="check --remote"):
                await other.open(who())
            assert (read_archive(store, KEYS) is None) == (store is empty)
            await other.close()

    asyncio.run(run())


def test_a_pending_run_is_lost_when_another_claimed_meanwhile(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first = Bench(tmp_path, store, clock)
        view = first.adopt("codec-none-0")

        opening = True

        def away(operation: str, key: str) -> None:
            if opening:  # to the other one the bucket is not silent because this one asks it again and again
                clock.advance(100)
            raise RemoteUnavailable("away")

        store.before = away
        report = await first.open(who())
        opening = False
        assert (report.claim.state, report.claim.epoch) == (ClaimState.PENDING, 1_005)
        assert report.topics == ()
        assert report.waiting == (view.id,)

        reachable = MemoryStore(clock)  # the same objects by a way that works
        reachable._objects = store._objects
        other = Bench(tmp_path, reachable, clock, "other")
        other.local.views[view.id] = view
        assert (await other.open(who("x"))).claim.state is ClaimState.HELD
        store.before = lambda operation, key: None
        await first.local.until(lambda: bool(first.local.claims))
        assert first.local.claims[-1].state is ClaimState.LOST
        assert "host-a" in first.local.claims[-1].detail
        assert (await first.copy()).outcome is Outcome.LOST
        await first.close()
        await other.close()

    asyncio.run(run())


def test_a_later_claim_stops_the_loser_before_its_next_head(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first, view = await copied(tmp_path, store, clock)
        taker = Bench(tmp_path, store, clock, "taker")
        with pytest.raises(StartRefused, match="host-a"):
            await taker.open(who("x"))
        assert (await taker.open(who("x"), recover=True)).claim.epoch == 6
        await first.tierer.publisher.tick()
        assert first.local.claims[-1].state is ClaimState.LOST
        assert read_head(store, KEYS, "codec-none", view.id.topic_id, 0) is None
        assert (await first.tierer.status())[0].waiting is not None
        await first.close()
        await taker.close()

    asyncio.run(run())


def test_a_bucket_that_aivens_plugin_wrote_is_taken_in(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        source = golden("aiven") / "bucket-txn" / "tier"
        shutil.copytree(source, tmp_path / "bucket")
        store = FileStore(tmp_path / "bucket", disk=PosixDisk(), clock=clock)
        catalog = Catalog.open(tmp_path / "catalog.sqlite")
        options = TiererOptions(remote=Remote(url=f"file:{tmp_path}/bucket"), state_dir=tmp_path)
        tierer = Tierer(options, clock, Bucket(store, Keys(), "file:bucket"), catalog, FolderTier())
        request = OpenRequest(views=(), topics=(), local_epoch=-1, identity=who(), recover=False, claimed=None)
        with pytest.raises(StartRefused, match="holds an archive"):
            await tierer.open(request)
        report = await tierer.open(replace(request, recover=True))
        assert report.claim.state is ClaimState.HELD
        manifests = sorted(source.rglob("*.rsm-manifest"))
        (remote,) = report.remotes.values()
        rows = catalog.segments(remote.id)
        assert len(rows) == len(manifests) > 1
        assert [row.remote.base for row in rows] == [int(path.name[:20]) for path in manifests]
        assert all(one.remote.next_base == two.remote.base for one, two in pairwise(rows))
        assert remote.copied_to == rows[-1].remote.next_base
        assert any(row.remote.layout.transaction for row in rows)
        seed = await tierer.seed(remote.id)
        assert parse_snapshot(seed.snapshot)
        assert parse_epochs(seed.leader_epochs)
        await tierer.close()

    asyncio.run(run())


def test_a_segment_that_was_on_its_way_when_another_run_claimed_is_not_committed(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        old, new = Bench(tmp_path, store, clock), Bench(tmp_path / "other", store, clock)
        view = old.adopt("codec-none-0")
        old.local.views[view.id] = replace(view, closed=())
        await old.open(who())
        clock.advance(COMMIT_WITHIN_MS)
        begun = asyncio.Event()
        loop, claimed = asyncio.get_running_loop(), threading.Event()

        def hold(operation: str, key: str) -> None:
            if operation == "put" and key.endswith(".indexes"):
                loop.call_soon_threadsafe(begun.set)
                assert claimed.wait(60)

        store.before = hold
        old.local.set(view.id, closed=view.closed)
        await asyncio.wait_for(begun.wait(), 60)
        await new.open(who("elsewhere"), recover=True)
        claimed.set()
        await old.local.until(lambda: old.tierer.state.claim.state is ClaimState.LOST)
        assert not [key for key in old.objects() if key.endswith("manifest")]
        (given_up,) = old.catalog.in_state(CopyState.DELETE_STARTED)
        assert old.objects() == {given_up.remote.log_key, given_up.remote.indexes_key}, "named, and left"
        clock.advance(2 * DAY_MS)
        await old.tierer.retention.delete_tick()
        assert old.objects(), "the loser touches nothing any more"
        await old.close()
        await new.close()

    (tmp_path / "other").mkdir()
    asyncio.run(run())


def test_an_owner_that_writes_nothing_learns_of_a_take_over(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        old, new = Bench(tmp_path, store, clock), Bench(tmp_path / "other", store, clock)
        old.options = replace(old.options, owner_interval_ms=50)
        old.tierer.state.options = old.options
        await old.open(who())
        old.tierer.schedule()
        await new.open(who("elsewhere"), recover=True)
        await old.local.until(lambda: old.tierer.state.claim.state is ClaimState.LOST)
        await old.close()
        await new.close()

    (tmp_path / "other").mkdir()
    asyncio.run(run())


@pytest.mark.parametrize("step", ["know", "put", "touch_heads"])
def test_a_bucket_that_answers_while_the_disk_is_full_is_claimed_once_there_is_room(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        bench = Bench(tmp_path, store, clock)
        view = bench.adopt("codec-none-0")

        def away(operation: str, key: str) -> None:
            clock.advance(100)
            raise RemoteUnavailable("away")

        store.before = away
        assert (await bench.open(who())).claim.state is ClaimState.PENDING
        tries = iter(range(3))
        noted = getattr(bench.catalog, step)

        def full(*given: object) -> None:
            if next(tries, None) is not None:
                raise DiskFull("no room")
            noted(*given)

        monkeypatch.setattr(bench.catalog, step, full)
        store.before = lambda operation, key: None
        await bench.local.until(lambda: bench.tierer.state.held)
        assert (await bench.copy()).segments == len(view.closed)
        await bench.close()

    asyncio.run(run())
