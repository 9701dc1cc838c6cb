"""A head that does not parse: the manifests and the disk say what it said, nothing goes for it, it is written again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, drive, who
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.config.topic import DAY_MS
from tierd.remote.heads import Head, read_head
from tierd.remote.memory import MemoryStore
from tierd.remote.view import ClaimState
from tierd.storage.view import PartitionView

_ROTTEN = b'{"version":1,"topic":"codec-no'


def _head(bench: Bench, view: PartitionView) -> Head:
    stored = read_head(bench.store, KEYS, view.name.topic, view.id.topic_id, view.name.partition)
    assert stored is not None
    return stored.head


def _spoil(bench: Bench, view: PartitionView, raw: bytes = _ROTTEN) -> None:
    bench.store.keep(KEYS.head(view.name.topic, view.id.topic_id, view.name.partition), raw, None)


def _kept(bench: Bench) -> list[bytes]:
    return [path.read_bytes() for path in bench.options.state_dir.glob("set-aside/codec-none-0/*")]


def _start_over(
    tmp_path: Path,
    work: Callable[[Bench, PartitionView], Awaitable[None]],
    *,
    raw: bytes = _ROTTEN,
    remembered: bool = True,
) -> None:
    """Log start has passed the first segment, which still lies in the bucket; then head and catalog go, and with them
    the disk's own log start unless it is *remembered*."""

    async def run() -> None:
        clock = FakeClock()
        first = Bench(tmp_path, MemoryStore(clock), clock)
        view = first.adopt("codec-none-0")
        await first.open(who())
        await first.copy()
        passed = view.closed[0].next_base
        first.local.set(view.id, log_start=passed)
        await first.tierer.publisher.tick()
        assert _head(first, view).log_start == passed
        _spoil(first, view, raw)
        await first.close()
        again = Bench(tmp_path, first.store, clock, "no catalog")
        again.local.views.update(first.local.views)
        if not remembered:
            again.local.set(view.id, log_start=0)
        try:
            await work(again, again.local.views[view.id])
        finally:
            await again.close()

    asyncio.run(run())


async def _let_go(bench: Bench) -> None:
    await bench.tierer.retention.tick()
    await bench.tierer.retention.delete_tick()


@pytest.mark.parametrize("remembered", [True, False])
def test_a_start_that_looks_at_the_whole_bucket_goes_on_without_it(tmp_path: Path, remembered: bool) -> None:
    async def work(bench: Bench, view: PartitionView) -> None:
        objects = bench.objects()
        report = await bench.open(who())
        assert report.claim.state is ClaimState.HELD
        remote = report.remotes[view.id]
        assert remote.rotten_head is not None
        assert (remote.copied_to, remote.lost) == (view.closed[-1].next_base, ())
        assert remote.log_start == (view.closed[0].next_base if remembered else None)
        assert len(bench.catalog.segments(view.id)) == len(view.closed)
        assert (await bench.copy()).segments == 0
        await _let_go(bench)
        assert bench.objects() == objects
        await bench.tierer.publisher.tick()
        head = _head(bench, view)
        assert (head.log_start, head.copied_to) == (view.log_start, remote.copied_to)
        assert [entry.base for entry in head.entries] == [one.base for one in view.closed]
        assert bench.local.remotes[view.id].rotten_head is None
        assert _kept(bench) == [_ROTTEN]
        bench.clock.advance(DAY_MS)
        await _let_go(bench)
        assert len(objects - bench.objects()) == (3 if remembered else 0), "what is below the log start of the disk"

    _start_over(tmp_path, work, remembered=remembered)


def test_one_of_a_later_format_refuses_the_start(tmp_path: Path) -> None:
    async def work(bench: Bench, view: PartitionView) -> None:
        with pytest.raises(StartRefused, match="format version 2"):
            await bench.open(who())

    _start_over(tmp_path, work, raw=b'{"version":2}')


def test_the_owner_writes_it_again_and_keeps_its_bytes_once(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        bench.catalog.gaps.add(view.id, [(3, 5)])
        _spoil(bench, view)
        refuse = [True]

        def away(operation: str, key: str) -> None:
            if operation == "put" and refuse[0]:
                raise RemoteUnavailable("away")

        bench.store.before = away
        for _ in range(3):
            await bench.tierer.publisher.tick()
        assert bench.tierer.state.remote(view.id).rotten_head is not None
        refuse[0] = False
        await bench.tierer.publisher.tick()
        head = _head(bench, view)
        assert (head.log_start, [(gap.start, gap.stop) for gap in head.gaps]) == (view.log_start, [(3, 5)])
        assert bench.local.remotes[view.id].rotten_head is None
        assert _kept(bench) == [_ROTTEN]

    drive(tmp_path, work)
