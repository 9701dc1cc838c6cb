"""A clean stop while the bucket hangs."""

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import Bench, drive, who


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
