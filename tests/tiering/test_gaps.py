"""Lost offsets that somebody accepts: which may be, what is kept of it, and that nothing waits for them any more."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, drive, no_report, who
from tierd.base.errors import CorruptFile, RemoteUnavailable, Usage
from tierd.remote.crc import crc32c
from tierd.remote.heads import Gap, read_head
from tierd.remote.open import Bucket
from tierd.storage.view import LogSlice, PartitionView
from tierd.tiering.accepted import AcceptedGaps
from tierd.tiering.gaps import HOLE, Missing, chosen, holes, still_open
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.reader import RemoteReader
from tierd.tiering.reader.fetch import SegmentGone
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verbs import Outcome
from tierd.tiering.verify.run import Report, Verify
from tierd.tiering.verify.spending import Budget
from tierd.tiering.verify.standing import Standing
from tierd.tiering.verify.verdicts import Verdict


def spans(missing: list[Missing]) -> list[tuple[int, int]]:
    return [(one.start, one.stop) for one in missing]


def test_holes() -> None:
    assert spans(holes([(5, 10), (20, 30)], 0, 40)) == [(0, 5), (10, 20), (30, 40)]
    assert spans(holes([(0, 10), (5, 40)], 0, 40)) == []
    assert spans(holes([], 3, 3)) == []
    assert spans(holes([(50, 60)], 0, 40)) == [(0, 40)]


def test_what_is_accepted_is_not_open() -> None:
    missing = [Missing(10, 20, "b"), Missing(0, 5, "a")]
    assert still_open(missing, ()) == [Missing(0, 5, "a"), Missing(10, 20, "b")]
    assert still_open(missing, [Gap(start=10, stop=20, reason="r")]) == [Missing(0, 5, "a")]
    assert spans(still_open(missing, [Gap(start=12, stop=14, reason="r")])) == [(0, 5), (10, 12), (14, 20)]


def test_only_what_is_lost_can_be_accepted_and_all_of_it() -> None:
    missing = [Missing(0, 5, HOLE), Missing(10, 20, "x"), Missing(20, 30, "y")]
    assert chosen(missing, None, None, "t-0") == missing
    assert chosen(missing, 10, 30, "t-0") == missing[1:]
    assert chosen(missing, 0, 5, "t-0") == missing[:1]
    for start, stop, why in ((0, 6, "offsets 5 to 5 are not lost"), (5, 10, "nothing is known"), (12, 20, "together")):
        with pytest.raises(Usage, match=why):
            chosen(missing, start, stop, "t-0")
    with pytest.raises(Usage, match="nothing is known to be lost there"):
        chosen([], None, None, "t-0")


def with_lost(tmp_path: Path, work: Callable[[Bench, PartitionView, RemoteSegment], Awaitable[None]]) -> None:
    """All is copied and evicted; then the bucket loses a segment."""

    async def run(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        await bench.tierer.publish_head(view.id)
        await bench.tierer.verbs.evict(no_report)
        lost = bench.catalog.segments(view.id)[2].remote
        bench.store.delete([lost.log_key])
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.PINNED
        await work(bench, bench.local.views[view.id], lost)

    drive(tmp_path, run)


def verified(bench: Bench) -> Report:
    return Verify(
        Bucket(bench.store, KEYS, "memory:"),
        FakeClock(),
        Standing(url="memory:", deep=True, percent=100.0),
        budget=Budget(),
        threads=2,
        keep=lambda _: None,
        report=lambda _: None,
    ).run()


def test_an_accepted_gap_is_kept_with_who_and_why_and_holds_nothing_up(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        gaps, name = bench.tierer.gaps, view.name
        assert verified(bench).verdict is Verdict.FAILURE
        (row,) = await gaps.known()
        assert (row.topic, row.start, row.stop, row.accepted) == (name.topic, lost.base, lost.next_base, False)
        assert lost.log_key in row.why

        async def accept(*, dry: bool) -> None:
            (row,) = await gaps.accept(name.topic, name.partition, None, None, who="ada@h", why="burnt", dry=dry)
            assert (row.start, row.stop, row.who, row.why) == (lost.base, lost.next_base, "ada@h", "burnt")

        await accept(dry=True)
        assert [row.accepted for row in await gaps.known()] == [False]
        await accept(dry=False)
        (row,) = await gaps.known()
        assert (row.accepted, row.who, row.why, row.accepted_ms) == (True, "ada@h", "burnt", bench.clock.now_ms())
        assert bench.local.remotes[view.id].lost == ()
        assert (await bench.tierer.verbs.evict(no_report)).outcome is Outcome.DONE
        assert bench.catalog.covering(view.id, lost.base) is None
        assert bench.store.head(lost.indexes_key).size, "what is left of it is nobody's to delete"
        assert verified(bench).verdict is Verdict.OK
        await bench.tierer.publish_head(view.id)
        stored = read_head(bench.store, KEYS, name.topic, view.id.topic_id, name.partition)
        assert stored is not None
        assert not stored.head.names(lost.segment_id)
        assert [(gap.start, gap.stop, gap.who) for gap in stored.head.gaps] == [(lost.base, lost.next_base, "ada@h")]
        assert verified(bench).verdict is Verdict.OK, "also once the head has forgotten the segment"

    with_lost(tmp_path, work)


def test_readers_go_on_behind_what_is_accepted_and_behind_nothing_else(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        reader = RemoteReader(
            bench.store, bench.catalog, tmp_path / "cache", bench.clock, passes=bench.catalog.gaps.covers
        )

        async def read(offset: int) -> LogSlice:
            return await reader.read(view.id, offset, max_bytes=1000, stop=1 << 60, committed=False)

        try:
            with pytest.raises(SegmentGone):
                await read(lost.base)
            await bench.tierer.gaps.accept(view.name.topic, 0, None, None, who="a", why="w", dry=False)
            for offset in (lost.base, lost.next_base - 1):
                found = await read(offset)
                assert found.stop is not None
                assert found.stop > lost.next_base
                found.release()
            other = bench.catalog.segments(view.id, CopyState.COPY_FINISHED)[0]
            bench.catalog.deleting(other)
            with pytest.raises(CorruptFile, match="no segment in the bucket has offsets"):
                await read(other.remote.base)
        finally:
            await reader.close()

    with_lost(tmp_path, work)


@pytest.mark.parametrize("whole", [False, True], ids=["an object is gone", "all objects are there"])
def test_it_is_known_at_the_next_start_and_to_a_new_catalog(tmp_path: Path, whole: bool) -> None:
    async def work(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        await bench.tierer.gaps.accept(view.name.topic, 0, None, None, who="a", why="w", dry=False)
        await bench.tierer.publish_head(view.id)
        if whole:  # of the right size, but what is in them cannot be read
            raw = bytes(lost.size_bytes)
            bench.store.put(lost.log_key, raw, crc32c=crc32c(raw))
        again = AcceptedGaps(bench.catalog.get("accepted_gaps"), lambda _: None)
        assert again.covers(view.id, lost.base, lost.next_base)
        assert not again.covers(view.id, lost.base - 1, lost.next_base)
        fresh = Bench(tmp_path, bench.store, bench.clock, state="fresh")
        fresh.local.views[view.id] = view
        try:
            await fresh.open(who(), recover=True)
            assert fresh.catalog.gaps.covers(view.id, lost.base, lost.next_base)
            assert [row.accepted for row in await fresh.tierer.gaps.known()] == [True]
            assert fresh.catalog.covering(view.id, lost.base) is None, "what is left of it does not count again"
        finally:
            await fresh.close()
        bench.catalog.drop_partition(view.id)
        assert not bench.catalog.gaps.covers(view.id, lost.base, lost.next_base)

    with_lost(tmp_path, work)


def test_accepting_again_changes_nothing_and_later_losses_are_new(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        gaps, name = bench.tierer.gaps, view.name
        for _ in range(2):
            await gaps.accept(name.topic, name.partition, None, None, who="a", why="w", dry=False)
            assert len(await gaps.known()) == 1
        other = bench.catalog.segments(view.id, CopyState.COPY_FINISHED)[0].remote
        bench.store.delete([other.indexes_key])
        await bench.tierer.verbs.evict(no_report)
        assert [row.accepted for row in await gaps.known()] == [True, False]
        assert verified(bench).verdict is Verdict.FAILURE

    with_lost(tmp_path, work)


def test_what_the_disk_has_cannot_be_accepted(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        lost = bench.catalog.segments(view.id)[2].remote
        bench.store.delete([lost.log_key])
        bench.tierer.copying.wake = lambda part: None  # type: ignore[method-assign]
        await bench.tierer.verbs.evict(no_report)
        with pytest.raises(Usage, match="copied again"):
            await bench.tierer.gaps.accept(view.name.topic, 0, None, None, who="a", why="w", dry=False)

    drive(tmp_path, work)


def test_nothing_is_accepted_that_could_not_be_written(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        def away(operation: str, key: str) -> None:
            if operation == "put":
                raise RemoteUnavailable("S3 503")

        bench.store.before = away
        with pytest.raises(RemoteUnavailable):
            await bench.tierer.gaps.accept(view.name.topic, 0, None, None, who="a", why="w", dry=False)
        bench.store.before = lambda operation, key: None
        assert [row.accepted for row in await bench.tierer.gaps.known()] == [False]
        assert bench.local.remotes[view.id].lost == ((lost.base, lost.next_base),)
        await bench.tierer.publish_head(view.id)
        assert [row.accepted for row in await bench.tierer.gaps.known()] == [False], "a later head does not bring it"

    with_lost(tmp_path, work)


def test_partitions_that_nobody_knows(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView, lost: RemoteSegment) -> None:
        for topic, partition in (("nope", 0), (view.name.topic, 7)):
            with pytest.raises(Usage, match="no such partition"):
                await bench.tierer.gaps.accept(topic, partition, None, None, who="a", why="w", dry=False)

    with_lost(tmp_path, work)
