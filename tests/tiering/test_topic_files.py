"""Topic files, tombstones and heads: written, kept, and gone for good."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, drive, who
from tierd.base.ids import Uuid
from tierd.config.topic import DAY_MS
from tierd.remote.crc import crc32c
from tierd.remote.heads import read_head
from tierd.remote.memory import MemoryStore
from tierd.remote.topics import read_topic
from tierd.remote.view import ClaimState
from tierd.tiering.options import TopicState


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


def test_a_topic_file_that_does_not_parse_keeps_no_start_from_the_other_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        key = KEYS.topic_file("rotten", Uuid(b"r" * 16))
        bench.store.put(key, b"garbage", crc32c=crc32c(b"garbage"))
        assert (await bench.open(who())).claim.state is ClaimState.HELD
        assert key in caplog.text
        assert (await bench.copy()).segments == len(view.closed)

    with caplog.at_level(logging.ERROR):
        drive(tmp_path, work)
