"""Two owners of one bucket, a copy of the other each, that write at the same time: one history, whoever wins."""

import asyncio
import shutil
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, who
from tierd.base.clock import SystemClock
from tierd.base.ids import PartitionId
from tierd.config.topic import DAY_MS
from tierd.remote.keyring import NO_KEYS
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.remote.owner import newest_claim
from tierd.remote.view import ClaimState
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.state import COMMIT_WITHIN_MS
from tierd.tiering.verbs import Outcome
from tierd.tiering.verify.run import Verify
from tierd.tiering.verify.spending import Budget
from tierd.tiering.verify.standing import Standing
from tierd.tiering.verify.verdicts import Verdict

_CHANGES = ("put", "put_part", "complete", "delete")
_A_REQUEST_MS = 400
_LATEST = 40
"""The take-over begins before one of so many changes of the bucket."""


@dataclass(slots=True)
class Signal:
    """Set when the bucket is about to be changed for the *nth* time. Each request takes its time."""

    nth: int
    clock: FakeClock
    loop: asyncio.AbstractEventLoop
    come: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, operation: str, key: str) -> None:
        self.clock.advance(_A_REQUEST_MS)
        if operation not in _CHANGES:
            return
        with self.lock:
            self.seen += 1
            due = self.seen == self.nth
        if due:
            self.loop.call_soon_threadsafe(self.come.set)


async def race(root: Path, dice: Random) -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    old, new = (Bench(root / name, store, clock) for name in ("old", "new"))
    for bench in (old, new):
        bench.tierer.state.options = replace(bench.options, silence_ms=DAY_MS)  # while the other one makes time pass
    view = old.adopt("codec-none-0")
    shutil.copytree(view.directory, root / "new" / "data" / view.directory.name)
    new.local.views[view.id] = view
    store.before = signal = Signal(dice.randint(1, _LATEST), clock, asyncio.get_running_loop())
    await old.open(who("old"))

    async def take_over() -> None:
        await signal.come.wait()
        await new.open(who("new"), recover=True)
        if dice.random() < 0.5:
            await new.copy()

    async def old_at_work() -> None:
        for _ in range(8):
            await old.copy()
            await old.tierer.publisher.tick()
            await old.tierer.retention.tick()
            if old.tierer.state.claim.state is ClaimState.LOST:
                return
        signal.come.set()

    taking = asyncio.create_task(take_over())
    await old_at_work()
    await taking
    clock.advance(COMMIT_WITHIN_MS)
    await old.tierer.state.owned()
    assert (await new.copy()).outcome is Outcome.DONE
    await new.tierer.publisher.tick()
    await the_loser_is_harmless(old, new)
    one_history(new, view.id, view.closed[-1].next_base)
    await old.close()
    await new.close()


async def the_loser_is_harmless(old: Bench, new: Bench) -> None:
    """It knows and says that it has lost, and changes nothing any more."""
    claim = newest_claim(new.store, KEYS)
    assert claim is not None
    assert (old.tierer.state.claim.state, new.tierer.state.claim.state) == (ClaimState.LOST, ClaimState.HELD)
    assert claim.epoch == new.tierer.state.claim.epoch > old.tierer.state.claim.epoch
    assert old.local.claims[-1].state is ClaimState.LOST
    before = {info.key: info.etag for info in new.store.list("p/")}
    await old.copy()
    await old.tierer.publisher.tick()
    await old.tierer.retention.tick()
    await old.tierer.retention.delete_tick()
    await old.tierer.sweep.run(dry=False)
    assert {info.key: info.etag for info in new.store.list("p/")} == before


def one_history(owner: Bench, part: PartitionId, end: int) -> None:
    """Every offset once and whole, by the winner's catalog and by who looks at the bucket alone."""
    rows = owner.catalog.segments(part, CopyState.COPY_FINISHED)
    counting = [row.remote for row in rows if owner.catalog.covering(part, row.remote.base) == row.remote]
    reached = 0
    for one in counting:
        assert one.base == reached, f"[{reached}, {one.base}) is missing or there twice"
        reached = one.next_base
    assert reached == end
    bucket = Bucket(owner.store, KEYS, "memory:", NO_KEYS)
    fresh = Standing(url="memory:", deep=True, percent=100)
    report = Verify(
        bucket, SystemClock(), fresh, budget=Budget(), threads=1, keep=lambda _: None, report=lambda _: None
    ).run()
    assert report.verdict is not Verdict.FAILURE, report


@pytest.mark.parametrize(
    ("seed", "races"), [(0, 10), pytest.param(1, 100, marks=[pytest.mark.full, pytest.mark.timeout(600)])]
)
def test_one_history_comes_out_of_every_race(tmp_path: Path, seed: int, races: int) -> None:
    dice = Random(seed)
    for number in range(races):
        root = tmp_path / str(number)
        for name in ("old", "new"):
            (root / name / "data").mkdir(parents=True)
        asyncio.run(race(root, dice))
