"""Deletes that the bucket refuses: kept over a restart, told until when, tried again in a day and not before."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kit.clock import FakeClock
from kit.tierer_bench import SETTINGS, Bench, who
from tierd.base.clock import Clock
from tierd.base.ids import PartitionId
from tierd.config.topic import DAY_MS
from tierd.remote import crc
from tierd.remote.memory import MemoryStore
from tierd.remote.store import DeleteOutcome
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.refusals import Refusals
from tierd.tiering.verbs import Outcome

UNTIL_MS = 1_800_000_000_000


class Guarded(MemoryStore):
    """Refuses to delete what ends with one of `locked`; counts the requests."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.locked: tuple[str, ...] = ()
        self.deletes = 0

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        self.deletes += bool(keys)
        stays = {key for key in keys if key.endswith(self.locked) and self.locked}
        super().delete([key for key in keys if key not in stays])
        return tuple(
            DeleteOutcome(key, "AccessDenied: locked", UNTIL_MS) if key in stays else DeleteOutcome(key, None)
            for key in keys
        )


async def _released(root: Path, store: Guarded, clock: FakeClock) -> tuple[Bench, PartitionId]:
    """All that is copied is released, and its delay over."""
    bench = Bench(root, store, clock)
    view = bench.adopt("codec-none-0")
    await bench.open(who())
    await bench.copy()
    bench.local.set(view.id, settings=replace(SETTINGS, retention_bytes=0))
    await bench.tierer.retention.tick()
    clock.advance(DAY_MS)
    return bench, view.id


def test_what_is_locked_stays_is_told_and_tried_again_in_a_day(tmp_path: Path) -> None:
    async def work() -> None:
        clock = FakeClock()
        store = Guarded(clock)
        store.locked = (".log",)
        bench, part = await _released(tmp_path, store, clock)
        await bench.tierer.retention.delete_tick()
        stuck = bench.catalog.in_state(CopyState.DELETE_STARTED)
        assert stuck
        assert {key.rpartition(".")[2] for key in bench.objects()} == {"log"}, "manifests went first, then indexes"
        (told,) = bench.tierer.state.refusals.known()
        assert (told.where, told.objects) == ("codec-none-0", f"{len(stuck)} segments")
        assert (told.why, told.until_ms) == ("AccessDenied: locked", UNTIL_MS)
        assert told.again_ms == clock.now_ms() + DAY_MS
        assert told.bytes == sum(row.remote.size_bytes for row in stuck)
        asked = store.deletes
        for _ in range(50):
            clock.advance(60_000)
            await bench.tierer.retention.delete_tick()
        assert store.deletes == asked, "a minute's tick asks nothing of what is refused"
        assert Refusals(bench.catalog).known() == [told], "a restart knows it, too"
        store.locked = ()
        clock.advance(DAY_MS)
        await bench.tierer.retention.delete_tick()
        assert bench.objects() == set()
        assert bench.catalog.segments(part) == []
        assert bench.tierer.state.refusals.known() == Refusals(bench.catalog).known() == []
        await bench.close()

    asyncio.run(work())


def test_a_sweep_tells_what_is_refused_and_tries_it_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        clock = FakeClock()
        store = Guarded(clock)
        store.locked = (".log", "probe-1")
        bench, _ = await _released(tmp_path, store, clock)
        await bench.tierer.retention.delete_tick()
        store.put("p/tierd/probe-1", b"x", crc32c=crc.crc32c(b"x"))
        clock.advance(DAY_MS // 2)
        before = store.deletes
        by_clock = await bench.tierer.sweep.run(dry=False)
        assert store.deletes == before, "the sweep by the clock leaves refused segments alone; the probe is too young"
        assert [one.where for one in by_clock.refused] == ["codec-none-0"]
        clock.advance(DAY_MS // 2 - 1)
        store.put("p/tierd/probe-2", b"x", crc32c=crc.crc32c(b"x"))
        clock.advance(1)
        swept = await bench.tierer.sweep.run(dry=False)
        assert swept.outcome is Outcome.FAILED
        assert [(row.keys, row.refused, row.until_ms) for row in swept.rows if row.refused] == [
            (("p/tierd/probe-1",), "AccessDenied: locked", UNTIL_MS)
        ]
        assert {one.where for one in swept.refused} == {"codec-none-0", "the sweep"}
        store.locked = ()
        asked = await bench.tierer.sweep.run(dry=False, retry=True)
        assert (asked.outcome, asked.gone) == (Outcome.DONE, 1)
        assert asked.refused == (), "what was refused is due now"
        await bench.tierer.retention.delete_tick()
        assert bench.objects() == set()
        await bench.close()

    asyncio.run(work())
