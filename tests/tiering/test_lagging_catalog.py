"""A catalog that knows less than the bucket: lost, from a backup, or never told of a late manifest."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, copied, who
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.config.topic import DAY_MS
from tierd.remote.archive_id import read_archive
from tierd.remote.crc import crc32c
from tierd.remote.memory import MemoryStore
from tierd.remote.view import ClaimState
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.options import OpenRequest
from tierd.tiering.verbs import Outcome


def test_a_look_that_was_cut_off_lets_nobody_think_that_the_bucket_has_nothing(tmp_path: Path) -> None:
    """The catalog is lost, the disk has fallen behind, and the bucket goes away in the middle of the first look: to go
    on at the end of the disk would give offsets out again that the bucket has."""

    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first, view = await copied(tmp_path, store, clock)
        await first.close()

        def away(operation: str, key: str) -> None:
            if operation == "list" and key.startswith("p/codec-none"):
                clock.advance(100)
                raise RemoteUnavailable("away")

        store.before = away
        behind = replace(view, closed=(), log_end=70, active_base=70, active_bytes=0, recovery_point=70)
        for _ in range(2):  # the second start finds what the first one has noted
            again = Bench(tmp_path, store, clock, "no catalog")
            again.local.views[view.id] = behind
            report = await again.open(who())
            assert (report.claim.state, report.waiting) == (ClaimState.PENDING, (view.id,))
            await again.close()

    asyncio.run(run())


def test_a_lost_catalog_of_an_archive_without_topics_is_made_again(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first = Bench(tmp_path, store, clock)
        await first.open(who())
        await first.close()
        archive = read_archive(store, KEYS)
        assert archive is not None
        request = OpenRequest(views=(), topics=(), local_epoch=-1, identity=who(), recover=False, claimed=None)
        for known in (None, archive.archive_id):
            again = Bench(tmp_path, store, clock, f"lost {known}")
            opening = again.tierer.open(replace(request, archive_id=known))
            if known is None:
                with pytest.raises(StartRefused, match="holds an archive"):
                    await opening
            else:
                assert (await opening).claim.state is ClaimState.HELD
            await again.close()

    asyncio.run(run())


def test_a_segment_whose_manifest_came_too_late_does_not_count_for_its_own_writer_either(tmp_path: Path) -> None:
    """It was on its way when another run claimed; its writer was killed, and takes the archive back later."""

    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        old, view = await copied(tmp_path, store, clock)
        *counted, late = old.catalog.segments(view.id)
        old.catalog.started(replace(late, state=CopyState.COPY_STARTED))
        await old.close()
        info, manifest = store.get_with_info(late.remote.manifest_key)
        store.delete([late.remote.manifest_key])
        new = Bench(tmp_path, store, clock, "new")
        end = counted[-1].remote.next_base
        new.local.views[view.id] = replace(view, closed=(), log_end=end, active_base=end, active_bytes=0)
        await new.open(who("x"), recover=True)
        await new.close()
        store.put(late.remote.manifest_key, manifest, crc32c=crc32c(manifest), metadata=info.metadata)

        back = Bench(tmp_path, store, clock)
        back.local.views[view.id] = view
        await back.open(who(), recover=True)
        assert [row.remote.base for row in back.catalog.segments(view.id, CopyState.COPY_FINISHED)] == [
            row.remote.base for row in counted
        ]
        await back.close()

    asyncio.run(run())


@pytest.mark.parametrize("holder", ["d", "another disk"])
def test_a_catalog_from_a_backup_of_the_run_that_went_on_is_not_believed(tmp_path: Path, holder: str) -> None:
    """Its epoch is the newest one, but log start has moved since, and a segment was copied again."""

    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first, view = await copied(tmp_path, store, clock)
        await first.tierer.publisher.tick()
        backup = Bench(tmp_path, store, clock, "backup")
        first.catalog._db.backup(backup.catalog._db)
        backup.local.views[view.id] = view
        clock.advance(DAY_MS)
        lost = first.catalog.segments(view.id)[-1].remote
        store.delete([lost.log_key])
        await first.tierer.retention.tick()
        assert (await first.copy()).outcome is Outcome.DONE
        again = first.catalog.segments(view.id, CopyState.COPY_FINISHED)[-1].remote
        assert (again.base, again.segment_id == lost.segment_id) == (lost.base, False)
        await first.tierer.publish_head(first.local.set(view.id, log_start=80).id)
        await first.close()

        report = await backup.open(who(holder), recover=holder != "d")
        assert report.remotes[view.id].log_start == 80
        assert report.remotes[view.id].lost == ()
        assert again in [row.remote for row in backup.catalog.segments(view.id, CopyState.COPY_FINISHED)]
        await backup.close()

    asyncio.run(run())
