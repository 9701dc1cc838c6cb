"""A start that has nothing but the bucket: whose it may be, and what it learns there."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, copied, who
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.base.ids import Uuid
from tierd.remote.memory import MemoryStore
from tierd.remote.owner import newest_claim
from tierd.remote.topics import TopicFile, put_topic
from tierd.storage.view import PartitionView
from tierd.tiering.options import OpenReport
from tierd.tiering.whose import ALIVE_MS

Work = Callable[[Path, MemoryStore, FakeClock, PartitionView], Coroutine[None, None, None]]


def behind_a_lost_host(tmp_path: Path, work: Work) -> None:
    """*work* with the bucket that a tierer has copied a recorded partition to."""

    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        bench, view = await copied(tmp_path, store, clock)
        await bench.tierer.publisher.tick()
        await bench.close()
        await work(tmp_path, store, clock, view)

    asyncio.run(run())


async def recovered(
    tmp_path: Path, store: MemoryStore, clock: FakeClock, *, recover: bool = True, if_silent: bool = False
) -> OpenReport:
    bench = Bench(tmp_path, store, clock, "other")
    try:
        identity = who("other")
        return await bench.open(identity, recover=recover, local_epoch=-1, lost_host=True, if_silent=if_silent)
    finally:
        await bench.close()


def test_it_claims_above_everything_and_where_the_bucket_ends(tmp_path: Path) -> None:
    async def work(tmp_path: Path, store: MemoryStore, clock: FakeClock, view: PartitionView) -> None:
        there = newest_claim(store, KEYS)
        assert there is not None
        store.delete([KEYS.owner(there.epoch)])  # what the segments say counts, too
        report = await recovered(tmp_path, store, clock)
        last_epoch = report.remotes[view.id].leader_epoch
        claim = newest_claim(store, KEYS)
        assert claim is not None
        assert last_epoch is not None
        assert report.claim.epoch == claim.epoch > last_epoch
        assert claim.first_append(view.id) == report.remotes[view.id].copied_to == view.closed[-1].next_base
        assert report.claimed_ms is None
        assert (await recovered(tmp_path, store, clock)).claimed_ms == claim.claimed_ms

    behind_a_lost_host(tmp_path, work)


def test_topics_without_a_file_are_there_too_and_a_file_may_know_of_fewer_partitions(tmp_path: Path) -> None:
    async def work(tmp_path: Path, store: MemoryStore, clock: FakeClock, view: PartitionView) -> None:
        topic_id = view.id.topic_id
        (topic,) = (await recovered(tmp_path, store, clock)).topics
        assert (topic.topic, topic.topic_id, topic.partitions) == (view.name.topic, topic_id, 1)
        assert (topic.adopted, topic.config) == (True, {})
        other = TopicFile(
            topic="o", topic_id=Uuid(b"o" * 16), partitions=3, config={}, created_ms=1, epoch=9, adopted=False
        )
        mine = TopicFile(
            topic=view.name.topic, topic_id=topic_id, partitions=0, config={"a": "b"}, created_ms=1, epoch=9
        )
        put_topic(store, KEYS, other)
        put_topic(store, KEYS, mine)
        (tmp_path / "other" / "catalog.sqlite").unlink()
        found = {one.topic: one for one in (await recovered(tmp_path, store, clock)).topics}
        assert (found["o"].partitions, found["o"].adopted) == (3, False)
        assert (found[view.name.topic].partitions, found[view.name.topic].config) == (1, {"a": "b"})

    behind_a_lost_host(tmp_path, work)


def test_from_an_owner_that_may_be_alive_it_is_taken_on_purpose_only(tmp_path: Path) -> None:
    async def work(tmp_path: Path, store: MemoryStore, clock: FakeClock, view: PartitionView) -> None:
        clock.advance(ALIVE_MS - 1)
        with pytest.raises(StartRefused, match=r"written to 119 s ago.*host-a.*--recover --take-over"):
            await recovered(tmp_path, store, clock, if_silent=True)
        clock.advance(1)
        before = newest_claim(store, KEYS)
        assert (await recovered(tmp_path, store, clock, if_silent=True)).claim.epoch > getattr(before, "epoch", -1)
        assert (await recovered(tmp_path, store, clock, recover=False)).remotes, "it is its own now"

    behind_a_lost_host(tmp_path, work)


def test_one_that_was_cut_off_does_not_take_it_again_from_somebody_else(tmp_path: Path) -> None:
    async def work(tmp_path: Path, store: MemoryStore, clock: FakeClock, view: PartitionView) -> None:
        with pytest.raises(StartRefused, match="a recovery from it has begun here"):
            await recovered(tmp_path, store, clock, recover=False)

    behind_a_lost_host(tmp_path, work)


def test_where_tierd_has_written_nothing_there_is_nothing_to_recover(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        with pytest.raises(StartRefused, match="there is nothing to recover"):
            await recovered(tmp_path, store, clock)
        assert list(store.list("")) == []

    asyncio.run(run())


class Away(MemoryStore):
    """Does not answer."""

    def get_with_info(self, key: str) -> "tuple[object, bytes]":  # type: ignore[override]
        raise RemoteUnavailable(f"{key}: away")


def test_a_bucket_that_is_away_gives_no_start(tmp_path: Path) -> None:
    clock = FakeClock()

    async def run() -> None:
        bench = Bench(tmp_path, Away(clock), clock)
        opening = asyncio.ensure_future(bench.open(who(), lost_host=True))
        while not opening.done():
            await asyncio.sleep(0)
            clock.advance(10)
        try:
            with pytest.raises(RemoteUnavailable, match="cannot be taken over now"):
                opening.result()
        finally:
            await bench.close()

    asyncio.run(run())
