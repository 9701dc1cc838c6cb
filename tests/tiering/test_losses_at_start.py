"""A start that looks at the whole bucket, since its catalog is gone or another run has written there: what the bucket
has lost is known then, counts as not copied, and makes way for nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from kit.clock import FakeClock
from kit.remote_log import bare_segment
from kit.tierer_bench import Bench, no_report, who
from tierd.base.ids import Uuid
from tierd.remote.crc import crc32c
from tierd.remote.memory import MemoryStore
from tierd.storage.view import PartitionView
from tierd.tiering.choice import Lineage, choose
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verbs import Outcome

Lose = Callable[[Bench, RemoteSegment], None]


def _start_over(
    tmp_path: Path, lose: Lose, look: Callable[[Bench, PartitionView, RemoteSegment], Awaitable[None]], *, evict: bool
) -> None:
    """All is copied and the heads say so; *lose* an object of the first segment, and the catalog with it."""

    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first, holder = Bench(tmp_path, store, clock), who()
        view = first.adopt("codec-none-0")
        await first.open(holder)
        await first.copy()
        if evict:
            await first.tierer.verbs.evict(no_report)
        await first.tierer.publisher.tick()
        lost = first.catalog.segments(view.id)[0].remote
        await first.close()
        lose(first, lost)
        again = Bench(tmp_path, store, clock, "no catalog")
        again.local.views.update(first.local.views)
        report = await again.open(who())
        assert report.remotes[view.id].start == 0, "log start does not go behind it"
        assert report.remotes[view.id].lost == ((lost.base, lost.next_base),)
        await look(again, view, lost)
        await again.close()

    asyncio.run(run())


def _delete(bench: Bench, lost: RemoteSegment) -> None:
    bench.store.delete([lost.log_key])


def _truncate(bench: Bench, lost: RemoteSegment) -> None:
    raw = bench.store.get(lost.log_key)[:-1]
    bench.store.delete([lost.log_key])
    bench.store.put(lost.log_key, raw, crc32c=crc32c(raw))


def _delete_all(bench: Bench, lost: RemoteSegment) -> None:
    bench.store.delete([lost.log_key, lost.indexes_key, lost.manifest_key])


def test_what_the_disk_still_has_is_copied_again(tmp_path: Path) -> None:
    async def look(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        assert (await bench.copy()).outcome is Outcome.DONE
        (again,) = [one for one in bench.catalog.segments(view.id, CopyState.COPY_FINISHED) if not one.remote.base]
        assert again.remote.segment_id != lost.segment_id
        assert bench.local.remotes[view.id].lost == ()
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.DONE

    for number, lose in enumerate((_delete, _truncate, _delete_all)):
        (folder := tmp_path / str(number)).mkdir()
        _start_over(folder, lose, look, evict=False)


def test_what_nobody_has_stays_named_until_it_is_put_back(tmp_path: Path) -> None:
    kept: list[bytes] = []

    def lose(bench: Bench, lost: RemoteSegment) -> None:
        kept.append(bench.store.get(lost.log_key))
        _delete(bench, lost)

    async def look(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        assert (await bench.copy()).outcome is Outcome.PINNED
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.PINNED
        bench.store.put(lost.log_key, kept[0], crc32c=crc32c(kept[0]))
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.DONE
        assert bench.local.remotes[view.id].lost == ()
        await bench.tierer.retention.delete_tick()
        assert lost.log_key in bench.objects()

    _start_over(tmp_path, lose, look, evict=True)


def test_of_two_copies_of_a_range_the_whole_one_counts_whatever_their_ids() -> None:
    for lost, whole in permutations([_row(b"a"), _row(b"b")]):
        choice = choose([lost, whole], Lineage(faulty=frozenset({lost.remote.segment_id})))
        assert choice.counting == (whole,)
        assert choice.lost == (lost,)


def _row(segment_id: bytes) -> CatalogSegment:
    return CatalogSegment(remote=bare_segment(0, 10, Uuid(segment_id * 16)), state=CopyState.COPY_FINISHED)


def test_a_second_copy_that_did_not_retire_the_lost_one_stays(tmp_path: Path) -> None:
    """Killed, or out of room, between the two: whichever id is the smaller."""

    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        first, holder = Bench(tmp_path, store, clock), who()
        view = first.adopt("codec-none-0")
        await first.open(holder)
        await first.copy()
        whole = first.catalog.segments(view.id)[0]
        lost = replace(whole, remote=replace(whole.remote, segment_id=Uuid(bytes(16)), stem="p/lost"))
        first.catalog.finished(lost)
        first.tierer.state.losses.note(view.id, "t-0", [lost], {lost.remote.segment_id: "p/lost.log is not there"})
        await first.close()
        again = Bench(tmp_path, store, clock)
        again.local.views.update(first.local.views)
        report = await again.open(holder)
        assert report.remotes[view.id].lost == ()
        (row,) = [one for one in again.catalog.segments(view.id, CopyState.COPY_FINISHED) if not one.remote.base]
        assert row.remote.segment_id == whole.remote.segment_id
        await again.close()

    asyncio.run(run())
