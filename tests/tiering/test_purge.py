"""A sweep of a versioned bucket on a real server: old versions are told, and go when that is asked for."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kit.bucket import in_weed
from kit.clock import FakeClock
from kit.tierer_bench import SETTINGS, Bench, who
from kit.weed import Weed
from tierd.base.clock import SystemClock
from tierd.remote.memory import MemoryStore
from tierd.remote.s3 import S3Store
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.verbs import Outcome


@pytest.mark.s3
def test_what_tierd_deleted_goes_for_good_and_what_somebody_else_did_stays(tmp_path: Path, weed_server: Weed) -> None:
    there = in_weed(weed_server, "purge")
    store, keys = there.bucket.store, there.bucket.keys
    assert isinstance(store, S3Store)
    store.client.put_bucket_versioning(Bucket=store.bucket, VersioningConfiguration={"Status": "Enabled"})

    async def work() -> None:
        clock = FakeClock(SystemClock().now_ms())
        bench = Bench(tmp_path, MemoryStore(clock), clock)
        bench.tierer.state.bucket = there.bucket
        bench.tierer.state.options = replace(bench.options, age_guard_ms=0)
        view = bench.adopt("codec-none-0", replace(SETTINGS, tierd_delete_delay_ms=0))
        try:
            await bench.open(who())
            await bench.copy()
            bench.local.set(view.id, settings=replace(view.settings, retention_bytes=10_000))
            await bench.tierer.retention.tick()
            await bench.tierer.retention.delete_tick()
            rows = bench.catalog.segments(view.id, CopyState.COPY_FINISHED)
            assert 0 < len(rows) < len(view.closed)
            robbed = rows[-1].remote
            store.delete([robbed.indexes_key])
            current = {info.key for info in store.list(keys.prefix)}

            plain = await bench.tierer.sweep.run(dry=False)
            assert plain.versions
            assert plain.version_bytes
            dry = await bench.tierer.sweep.run(dry=True, purge=True)
            assert dry.gone
            assert dry.versions == plain.versions
            done = await bench.tierer.sweep.run(dry=False, purge=True)
            assert (done.outcome, done.gone) == (Outcome.DONE, dry.gone), done
            assert {row.keys for row in done.rows if not row.gone} == {(robbed.indexes_key,)}
            left = [versions for versions in store.list_versions(keys.prefix) if len(versions) > 1]
            assert [versions[0].key for versions in left] == [robbed.indexes_key]
            assert {info.key for info in store.list(keys.prefix)} == current
            again = await bench.tierer.sweep.run(dry=False, purge=True)
            assert (again.versions, again.gone) == (2, 0)
        finally:
            await bench.close()

    asyncio.run(work())
