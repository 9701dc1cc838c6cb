"""Of a segment whose manifest alone has gone the catalog makes it again, where the disk cannot copy it again."""

import asyncio
from dataclasses import replace
from pathlib import Path

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, drive, no_report, who
from tierd.remote.manifest import parse_manifest
from tierd.remote.memory import MemoryStore
from tierd.remote.owner import CLAIM, OwnerClaim
from tierd.remote.view import ClaimState
from tierd.storage.view import PartitionView
from tierd.tiering.losses import gone
from tierd.tiering.recommit import lacks_only_manifest
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.verbs import Outcome


async def _bare(bench: Bench) -> tuple[PartitionView, CatalogSegment, bytes]:
    """All is in the bucket alone, then one manifest is not: its row, and its bytes."""
    view = bench.adopt("txn-0")
    await bench.open(who())
    await bench.copy()
    await bench.tierer.verbs.evict(no_report)
    await bench.tierer.publisher.tick()
    row = bench.catalog.segments(view.id)[1]
    raw = bench.store.get(row.remote.manifest_key)
    bench.store.delete([row.remote.manifest_key])
    return bench.local.views[view.id], row, raw


def _same(bench: Bench, row: CatalogSegment, raw: bytes) -> None:
    key = row.remote.manifest_key
    before, now = parse_manifest(raw, key), parse_manifest(bench.store.get(key), key)
    assert replace(now, written_ms=before.written_ms) == before


def test_it_is_there_again_and_nothing_counts_as_lost(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view, row, raw = await _bare(bench)
        objects = bench.objects()
        bench.tierer.retention.suspect(view.id, row.remote.log_key)
        await bench.tierer.retention.tick()
        assert bench.objects() == {*objects, row.remote.manifest_key}
        _same(bench, row, raw)
        assert bench.local.remotes[view.id].lost == ()
        assert await bench.tierer.retention.whole(view.id, view.log_start, view.local_start)

    drive(tmp_path, work)


def test_a_start_that_looks_at_the_whole_bucket_tells_nobody_of_a_loss(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        first = Bench(tmp_path, MemoryStore(clock), clock)
        view, row, raw = await _bare(first)
        await first.close()
        again = Bench(tmp_path, first.store, clock, "no catalog")
        again.local.views.update(first.local.views)
        report = await again.open(who())
        assert (report.remotes[view.id].start, report.remotes[view.id].lost) == (view.log_start, ())
        _same(again, row, raw)
        await again.close()
        third = Bench(tmp_path, first.store, clock, "no catalog again")
        third.local.views.update(first.local.views)
        assert (await third.open(who())).remotes[view.id].lost == ()
        known = third.catalog.segments(view.id)[1].remote
        assert replace(known, log_etag=None, indexes_etag=None) == replace(
            row.remote, log_etag=None, indexes_etag=None
        ), "what is beside the manifest in the bucket is there again, too"
        await third.close()

    asyncio.run(run())


def test_what_the_disk_has_is_copied_again_and_what_only_the_manifest_knew_stays_lost(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("txn-0")
        await bench.open(who())
        await bench.copy()
        row = bench.catalog.segments(view.id)[1]
        why, evicted = gone(row.remote.manifest_key), replace(view, closed=())
        assert lacks_only_manifest(row, why, evicted)
        assert not lacks_only_manifest(row, why, view)
        assert not lacks_only_manifest(row, gone(row.remote.log_key), evicted)
        assert not lacks_only_manifest(replace(row, released_ms=1), why, evicted)
        for changed in (replace(row.remote, stored_bytes=5), replace(row.remote, key_id="k")):
            assert not lacks_only_manifest(replace(row, remote=changed), why, evicted)

    drive(tmp_path, work)


def test_who_has_lost_the_bucket_writes_none(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view, row, _ = await _bare(bench)
        other = who("other")
        later = OwnerClaim(epoch=99, incarnation=other.incarnation, holder=other.holder, host="b", claimed_ms=1)
        bench.store.keep(KEYS.owner(99), CLAIM.encode(later), None)
        bench.tierer.state.owned_ms = None
        assert not await bench.tierer.retention.commit_again(view, row, gone(row.remote.manifest_key))
        assert bench.tierer.state.claim.state is ClaimState.LOST
        assert row.remote.manifest_key not in bench.objects()

    drive(tmp_path, work)


def test_a_torn_local_segment_makes_way_for_it(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("txn-0")
        await bench.open(who())
        await bench.copy()
        row = bench.catalog.segments(view.id)[1]
        bench.store.delete([row.remote.manifest_key])
        torn = [replace(one, size_bytes=1) if one.base == row.remote.base else one for one in view.closed]
        bench.local.set(view.id, closed=tuple(torn))
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.DONE
        assert bench.local.views[view.id].local_start == view.active_base

    drive(tmp_path, work)
