"""A clean stop while the bucket hangs."""

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, drive, who
from tierd.base.ids import PartitionId
from tierd.remote.heads import read_head
from tierd.remote.memory import MemoryStore
from tierd.remote.topics import read_topic
from tierd.tiering.options import TopicState


def test_a_job_that_waits_for_the_bucket_is_left_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench) -> None:
        bench.tierer.state.options = replace(bench.options, owner_interval_ms=20)
        await bench.open(who())
        loop, hangs, let_go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def hang(operation: str, key: str) -> None:
            loop.call_soon_threadsafe(hangs.set)
            assert let_go.wait(60)

        bench.store.before = hang
        bench.tierer.schedule()
        await asyncio.wait_for(hangs.wait(), 60)
        loop.call_later(0.1, let_go.set)  # the scheduler has cancelled the job long before

    with caplog.at_level(logging.INFO):
        drive(tmp_path, work)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], caplog.text


def test_what_the_bucket_should_know_is_written_at_a_stop(tmp_path: Path) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)

    async def run() -> PartitionId:
        bench = Bench(tmp_path, store, clock)
        view = bench.adopt("codec-none-0")
        topic = TopicState(topic="codec-none", topic_id=view.id.topic_id, partitions=1, config={}, created_ms=1)
        await bench.open(who(), topics=(topic,))
        await bench.copy()
        assert not heads(store)
        await bench.close()
        return view.id

    part = asyncio.run(run())
    (head,) = heads(store)
    assert read_head(store, KEYS, "codec-none", part.topic_id, 0) is not None
    assert read_topic(store, KEYS, "codec-none", part.topic_id) is not None, head


def heads(store: MemoryStore) -> list[str]:
    return [info.key for info in store.list(KEYS.partitions_folder)]
