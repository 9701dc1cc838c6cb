"""A real worker process cleans; it is killed, cancelled, given what is broken, and started again."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kit.compaction import COMPACTED, plan, records
from kit.keyed import History
from kit.logs import Place
from tierd.base.clock import SystemClock
from tierd.base.errors import CorruptFile, DiskFull, WorkerGone
from tierd.storage.batch import encode_batch
from tierd.storage.compaction.job import CleanedGroup, CleanJob
from tierd.storage.compression import Codec
from tierd.storage.directory import LogDirectory
from tierd.storage.log import Log
from tierd.storage.look import Look, look_at_bytes
from tierd.storage.records import Record
from tierd.worker import messages as m
from tierd.worker.link import WorkerLink


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[LogDirectory, Log, History]]:
    place = Place(tmp_path, replace(COMPACTED, internal_segment_bytes=2000))
    directory = place.open()
    log = place.new_log(directory)
    history = History(Random(4))
    history.write(log, 60)
    history.settle(log)
    yield directory, log, history
    directory.close(clean=True)


def job_of(log: Log, history: History, *, reserve_bytes: int = 0) -> CleanJob:
    planned = plan(log, history.clock_ms)
    assert planned is not None
    return log.compaction.job(
        planned, now_ms=history.clock_ms, keep_deletes=False, memory_bytes=1 << 20, reserve_bytes=reserve_bytes
    )


def with_worker(work: Callable[[WorkerLink], Awaitable[None]]) -> None:
    async def run() -> None:
        link = WorkerLink(SystemClock())
        try:
            await asyncio.wait_for(work(link), 60)
        finally:
            await link.close()

    asyncio.run(run())


def test_groups_come_in_order_and_before_the_report(written: tuple[LogDirectory, Log, History]) -> None:
    _, log, history = written
    before = len(records(log.directory))
    taken: list[int] = []

    def take(group: CleanedGroup) -> bool:
        taken.append(group.base)
        return log.compaction.swap_in(group)

    async def work(link: WorkerLink) -> None:
        report = await link.clean(job_of(log, history), take)
        assert len(taken) > 1
        assert taken == sorted(taken)
        log.compaction.finished(report)

    with_worker(work)
    assert len(records(log.directory)) < before
    assert plan(log, history.clock_ms) is None


def test_one_worker_does_many_jobs(written: tuple[LogDirectory, Log, History]) -> None:
    _, log, history = written

    async def work(link: WorkerLink) -> None:
        assert link.pid is None  # none without work
        for _ in range(3):
            await link.clean(job_of(log, history), lambda _: True)
        assert link.starts == 1

    with_worker(work)


def test_a_killed_worker_fails_its_job_and_the_next_job_starts_another(
    written: tuple[LogDirectory, Log, History],
) -> None:
    _, log, history = written

    async def work(link: WorkerLink) -> None:
        def kill(_: CleanedGroup) -> bool:
            assert link.pid is not None
            os.kill(link.pid, signal.SIGKILL)
            return True

        async def until_it_dies() -> None:
            while True:  # a job may be done before the signal arrives
                await link.clean(replace(job, segment_bytes=1), kill)

        job = job_of(log, history)
        with pytest.raises(WorkerGone):
            await until_it_dies()
        assert list(log.directory.glob("*.cleaned"))
        await link.clean(job, log.compaction.swap_in)
        assert link.starts >= 2

    with_worker(work)
    assert not list(log.directory.glob("*.cleaned"))


def test_a_job_that_is_given_up_stops(written: tuple[LogDirectory, Log, History]) -> None:
    _, log, history = written
    taken: list[CleanedGroup] = []

    def refuse(group: CleanedGroup) -> bool:
        taken.append(group)
        return False

    async def work(link: WorkerLink) -> None:
        job = job_of(log, history)
        await asyncio.gather(link.clean(job, refuse), return_exceptions=True)
        assert len(taken) == 1
        task = asyncio.ensure_future(link.clean(job, lambda _: True))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await link.clean(job, lambda _: True)

    with_worker(work)


def test_errors_come_across(written: tuple[LogDirectory, Log, History]) -> None:
    _, log, history = written

    async def work(link: WorkerLink) -> None:
        with pytest.raises(DiskFull, match="reserve"):
            await link.clean(job_of(log, history, reserve_bytes=1 << 60), lambda _: True)
        job = job_of(log, history)
        path = log.directory / f"{job.sources[0].base:020d}.log"
        raw = bytearray(path.read_bytes())
        raw[70] ^= 1
        path.write_bytes(raw)
        with pytest.raises(CorruptFile, match="CRC"):
            await link.clean(job, lambda _: True)
        raw[70] ^= 1
        path.write_bytes(raw)

    with_worker(work)


def test_messages_survive_the_way(written: tuple[LogDirectory, Log, History]) -> None:
    _, log, history = written
    message = m.Clean(7, job_of(log, history))
    assert message.job.aborted
    assert message.job.last_batches
    assert m.unpack(m.pack(message)) == message


def test_a_batch_is_looked_at_there_as_here() -> None:
    keyless = [Record(n, n, None if n == 7 else b"k", b"v" * 100) for n in range(3000)]
    good, bad = (bytes(encode_batch(rows, codec=Codec.ZSTD)) for rows in (keyless[:7], keyless))
    broken = good[:-5] + bytes(5)
    looks = [Look("t-0", decode=True, keys=True), Look("t-0", (3, 5)), Look("t-0", (0, 9000), decode=True)]

    async def work(link: WorkerLink) -> None:
        asked = [(memoryview(raw), look) for raw in (good, bad, broken) for look in looks]
        found = await asyncio.gather(*(link.look(*one) for one in asked))
        assert list(found) == [look_at_bytes(*one) for one in asked]
        assert len({verdict.keyless for verdict in found}) == 2
        assert any(verdict.out_of_range for verdict in found)
        assert any(verdict.broken for verdict in found)
        assert link.starts == 1

    with_worker(work)
