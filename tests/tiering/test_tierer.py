"""The tierer in one process over a store in memory: retention, deletes, topics, heads, claims, verbs; time is told."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.folder_tier import FolderTier
from kit.golden import golden
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.base.ids import Uuid
from tierd.config.model import Remote
from tierd.config.topic import DAY_MS, TopicSettings
from tierd.remote.archive_id import read_archive
from tierd.remote.errors import WrongBucket
from tierd.remote.file import FileStore
from tierd.remote.heads import read_head
from tierd.remote.keys import Keys
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.remote.owner import Holder, newest_claim
from tierd.remote.topics import read_topic
from tierd.remote.view import Claim, ClaimState
from tierd.storage.disk import PosixDisk
from tierd.storage.epochs import parse_epochs
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.view import PartitionView
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.options import Identity, OpenReport, OpenRequest, TiererOptions, TopicState
from tierd.tiering.tierer import Tierer
from tierd.tiering.verbs import Outcome, VerbProgress, VerbResult

SETTINGS = TopicSettings(local_retention_ms=None, tierd_delete_delay_ms=DAY_MS)
KEYS = Keys("p/")


def who(directory_id: str = "d", incarnation: bytes = b"") -> Identity:
    holder = Holder(directory_id=directory_id, machine_id="m", inode=1)
    return Identity(holder=holder, host="host-a", incarnation=Uuid(incarnation or os.urandom(16)))


def no_report(progress: VerbProgress) -> None:
    """Nobody looks."""


class Bench:
    """A tierer whose broker is a FolderTier."""

    def __init__(self, root: Path, store: MemoryStore, clock: FakeClock, state: str = "state") -> None:
        self.root, self.store, self.clock = root, store, clock
        self.local = FolderTier()
        (root / state).mkdir(exist_ok=True)
        self.catalog = Catalog.open(root / state / "catalog.sqlite")
        self.options = TiererOptions(
            remote=Remote(url="file:/memory"), state_dir=root / state, retry_ms=1, silence_ms=50
        )
        self.tierer = Tierer(self.options, clock, Bucket(store, KEYS, "memory:"), self.catalog, self.local)
        self.local.changed = self.tierer.partition_changed

    def adopt(self, name: str, settings: TopicSettings = SETTINGS) -> PartitionView:
        return self.local.adopt(golden("kafka") / "clean" / name, self.root / "data", settings)

    async def open(
        self,
        identity: Identity,
        *,
        recover: bool = False,
        topics: tuple[TopicState, ...] = (),
        claimed: Claim | None = None,
        local_epoch: int = 4,
    ) -> OpenReport:
        return await self.tierer.open(
            OpenRequest(
                views=tuple(self.local.views.values()),
                topics=topics,
                local_epoch=local_epoch,
                identity=identity,
                recover=recover,
                claimed=claimed,
            )
        )

    async def copy(self) -> VerbResult:
        return await self.tierer.verbs.copy(wait=True, timeout_ms=None, report=no_report)

    def objects(self) -> set[str]:
        return {info.key for info in self.store.list("p/") if "/tierd/" not in info.key}

    async def close(self) -> None:
        await self.tierer.close()


def drive(tmp_path: Path, work: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = FakeClock()
        bench = Bench(tmp_path, MemoryStore(clock), clock)
        try:
            await work(bench)
        finally:
            await bench.close()

    asyncio.run(run())


# --- retention -----------------------------------------------------------------------------------------------------
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
        while bench.local.views[view.id].closed:
            await asyncio.sleep(0)
        assert bench.local.views[view.id].local_start == view.active_base

    drive(tmp_path, work)


def test_total_retention_moves_log_start_first_and_deletes_after_the_delay(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0", replace(SETTINGS, retention_bytes=10_000))
        await bench.open(who())
        await bench.copy()
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
        view = bench.adopt("codec-none-0", replace(SETTINGS, retention_bytes=0))
        await bench.open(who())
        await bench.copy()
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


# --- topics and heads ----------------------------------------------------------------------------------------------
def test_a_deleted_topic_goes_from_the_bucket_after_its_tombstone_and_delay(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        topic = TopicState(topic="codec-none", topic_id=view.id.topic_id, partitions=1, config={"a": "b"}, created_ms=1)
        await bench.open(who(), topics=(topic,))
        await bench.copy()
        await bench.tierer.publisher.tick()
        stored = read_topic(bench.store, KEYS, "codec-none", view.id.topic_id)
        assert stored is not None
        assert (dict(stored.config), stored.epoch) == ({"a": "b"}, 5)
        head = read_head(bench.store, KEYS, "codec-none", view.id.topic_id, 0)
        assert head is not None
        assert [entry.base for entry in head.head.entries] == [one.base for one in view.closed]
        assert bench.catalog.dirty_heads() == []

        del bench.local.views[view.id]
        bench.tierer.topic_changed(replace(topic, deleted_ms=bench.clock.now_ms()))
        await bench.tierer.retention.delete_tick()
        assert bench.local.tombstones == []
        assert len(bench.objects()) == 3 * len(view.closed)
        await bench.tierer.publisher.tick()
        assert bench.local.tombstones == [view.id.topic_id]
        await bench.tierer.retention.delete_tick()
        assert len(bench.objects()) == 3 * len(view.closed)
        bench.clock.advance(DAY_MS)
        await bench.tierer.retention.delete_tick()
        await bench.tierer.retention.delete_tick()
        assert bench.objects() == set()
        assert read_head(bench.store, KEYS, "codec-none", view.id.topic_id, 0) is None
        stored = read_topic(bench.store, KEYS, "codec-none", view.id.topic_id)
        assert stored is not None
        assert stored.deleted_ms is not None
        bench.tierer.topic_changed(replace(topic, deleted_ms=1))  # told again by a broker that did not hear it
        assert bench.local.tombstones == [view.id.topic_id] * 2

    drive(tmp_path, work)


def test_a_deleted_topic_without_segments_leaves_no_head(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        topic = TopicState(topic="codec-none", topic_id=view.id.topic_id, partitions=1, config={}, created_ms=1)
        bench.local.views[view.id] = replace(view, closed=())
        await bench.open(who(), topics=(topic,))
        await bench.tierer.publisher.tick()
        assert read_head(bench.store, KEYS, "codec-none", view.id.topic_id, 0) is not None
        del bench.local.views[view.id]
        bench.tierer.topic_changed(replace(topic, deleted_ms=bench.clock.now_ms()))
        await bench.tierer.retention.delete_tick()
        assert bench.catalog.partition(view.id) is not None  # not before the tombstone is there
        await bench.tierer.publisher.tick()
        await bench.tierer.retention.delete_tick()
        assert read_head(bench.store, KEYS, "codec-none", view.id.topic_id, 0) is None
        assert bench.catalog.partitions() == []

    drive(tmp_path, work)


def test_a_head_on_its_way_does_not_come_back_behind_its_removal(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        topic = TopicState(topic="codec-none", topic_id=view.id.topic_id, partitions=1, config={}, created_ms=1)
        bench.local.views[view.id] = replace(view, closed=())
        await bench.open(who(), topics=(topic,))
        del bench.local.views[view.id]
        bench.tierer.topic_changed(replace(topic, deleted_ms=bench.clock.now_ms()))
        await bench.tierer.publisher.tick()
        bench.catalog.touch_head(view.id)
        await asyncio.gather(bench.tierer.publisher.tick(), bench.tierer.retention.delete_tick())
        assert read_head(bench.store, KEYS, "codec-none", view.id.topic_id, 0) is None

    drive(tmp_path, work)


def test_a_head_that_changes_again_costs_no_read_unless_somebody_else_wrote_it(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        key = KEYS.head("codec-none", view.id.topic_id, 0)
        asked: list[str] = []
        bench.store.before = lambda operation, about: asked.append(operation) if about == key else None

        async def moved(log_start: int) -> list[str]:
            asked.clear()
            bench.local.set(view.id, log_start=log_start)
            await bench.tierer.publisher.tick()
            head = read_head(bench.store, KEYS, "codec-none", view.id.topic_id, 0)
            assert head is not None
            assert head.head.log_start == log_start
            assert len(head.head.entries) == len(view.closed)
            return asked[:-1]

        assert await moved(10) == ["get_with_info", "put"]
        assert await moved(20) == ["put"]
        bench.store.keep(key, bench.store.get(key) + b"\n", None)
        assert await moved(30) == ["put", "get_with_info", "put"]
        assert await moved(40) == ["put"]

    drive(tmp_path, work)


def test_a_start_confirms_a_tombstone_that_an_earlier_run_wrote(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        gone = TopicState(
            topic="t", topic_id=Uuid(b"t" * 16), partitions=1, config={}, created_ms=1, deleted_ms=bench.clock.now_ms()
        )
        bench.adopt("codec-none-0")
        identity = who()
        report = await bench.open(identity, topics=(gone,))
        await bench.tierer.publisher.tick()
        assert bench.local.tombstones == [gone.topic_id]
        await bench.open(identity, topics=(gone,), claimed=report.claim)  # the broker did not hear it
        assert bench.local.tombstones == [gone.topic_id] * 2

    drive(tmp_path, work)


def test_a_topic_that_an_older_registry_brings_back_stays_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first = Bench(tmp_path, store, clock)
        view = first.adopt("codec-none-0")
        alive = TopicState(topic="codec-none", topic_id=view.id.topic_id, partitions=1, config={}, created_ms=1)
        await first.open(who(), topics=(alive,))
        await first.copy()
        first.tierer.topic_changed(replace(alive, deleted_ms=clock.now_ms()))
        await first.tierer.publisher.tick()
        await first.close()

        again = Bench(tmp_path, store, clock, "restored")
        again.local.views[view.id] = view
        await again.open(who(), topics=(alive,))
        assert again.local.tombstones == [view.id.topic_id]
        assert again.tierer.state.views == {}
        assert (await again.copy()).segments == 0
        await again.close()

    asyncio.run(run())


# --- claims --------------------------------------------------------------------------------------------------------
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

        def away(operation: str, key: str) -> None:
            clock.advance(100)
            raise RemoteUnavailable("away")

        store.before = away
        report = await first.open(who())
        assert (report.claim.state, report.claim.epoch) == (ClaimState.PENDING, 1_005)
        assert report.topics == ()
        assert report.waiting == (view.id,)

        reachable = MemoryStore(clock)  # the same objects by a way that works
        reachable._objects = store._objects
        other = Bench(tmp_path, reachable, clock, "other")
        other.local.views[view.id] = view
        assert (await other.open(who("x"))).claim.state is ClaimState.HELD
        store.before = lambda operation, key: None
        while not first.local.claims:
            await asyncio.sleep(0.01)
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
        first = Bench(tmp_path, store, clock)
        view = first.adopt("codec-none-0")
        await first.open(who())
        await first.copy()
        taker = Bench(tmp_path, store, clock, "taker")
        with pytest.raises(StartRefused, match="host-a"):
            await taker.open(who("x"))
        assert (await taker.open(who("x"), recover=True)).claim.epoch == 6
        await first.tierer.publisher.tick()
        assert first.local.claims[-1].state is ClaimState.LOST
        assert read_head(store, KEYS, "codec-none", view.id.topic_id, 0) is None
        assert first.tierer.status()[0].waiting is not None
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


# --- verbs ---------------------------------------------------------------------------------------------------------
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
        waiting = bench.tierer.status()[0].waiting
        assert waiting is not None
        assert waiting.reason in ("retrying", "copying")
        bench.store.before = lambda operation, key: None
        assert (await bench.copy()).outcome is Outcome.DONE

    drive(tmp_path, work)


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
        result = await bench.tierer.verbs.copy(wait=True, timeout_ms=10_000, report=no_report)
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
