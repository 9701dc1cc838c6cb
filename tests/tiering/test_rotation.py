"""`tierd keys rotate`: manifests alone are written, what was broken off goes on, an old key may go then."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kit import aiven_decoder
from kit.clock import FakeClock
from kit.folder_tier import view_of
from kit.tierer_bench import KEYS, REMOTE, SETTINGS, Bench, no_report, who
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.remote.crc import crc32c
from tierd.remote.heads import read_head
from tierd.remote.keyring import KeyRing
from tierd.remote.memory import MemoryStore
from tierd.remote.view import Claim, ClaimState
from tierd.storage.view import PartitionView
from tierd.tiering.losses import faults
from tierd.tiering.rotation import Rotation
from tierd.tiering.verbs import Outcome, VerbProgress


@cache
def key(key_id: str) -> rsa.RSAPrivateKey:
    """Of different sizes, so that manifests change theirs."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048 if key_id == "old" else 2304)


def ring(*ids: str, active: str | None = None) -> KeyRing:
    return KeyRing({key_id: key(key_id) for key_id in ids}, active)


@dataclass
class Place:
    """One bucket and one state directory, for runs one after the other."""

    root: Path
    clock: FakeClock = field(default_factory=FakeClock)
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)

    def run(self, keys: KeyRing, work: Callable[[Bench, PartitionView], Awaitable[None]]) -> None:
        async def whole() -> None:
            bench = Bench(self.root, self.store, self.clock, remote=REMOTE, ring=keys)
            try:
                there = self.root / "data" / "txn-0"
                view = view_of(there, SETTINGS) if there.exists() else bench.adopt("txn-0")
                bench.local.views[view.id] = view
                await bench.open(who())
                await work(bench, view)
            finally:
                await bench.close()

        asyncio.run(asyncio.wait_for(whole(), 60))

    def objects(self, suffix: str) -> dict[str, bytes]:
        return {info.key: self.store.get(info.key) for info in self.store.list("p/") if info.key.endswith(suffix)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Its segments are encrypted under the key `old`."""
    place = Place(tmp_path)

    async def copy(bench: Bench, view: PartitionView) -> None:
        await bench.copy()
        await bench.tierer.publisher.tick()
        assert bench.catalog.key_uses() == {"old": (len(view.closed), sum(map(len, place.objects(".log").values())))}

    place.run(ring("old", active="old"), copy)
    return place


BOTH = ("old", "new")


def key_ids(place: Place) -> set[str]:
    return {
        json.loads(raw)["encryption"]["dataKey"].partition(":")[0] for raw in place.objects(".rsm-manifest").values()
    }


def test_only_the_data_keys_in_manifests_change(place: Place) -> None:
    before = place.objects("")
    told: list[VerbProgress] = []

    async def work(bench: Bench, view: PartitionView) -> None:
        rotation = bench.tierer.rotation
        planned = await rotation.plan()
        assert (planned.outcome, planned.segments) == (Outcome.DONE, len(view.closed))
        assert [(row.start, row.stop) for row in planned.planned] == [(0, view.active_base)]
        assert place.objects(".rsm-manifest") == {key: raw for key, raw in before.items() if "rsm-manifest" in key}
        assert [(use.key_id, use.active, use.segments) for use in rotation.uses()] == [
            ("new", True, 0),
            ("old", False, len(view.closed)),
        ]
        metadata = {name: place.store.head(name).metadata for name in place.objects(".rsm-manifest")}
        result = await rotation.rotate(told.append)
        assert (result.outcome, result.segments) == (Outcome.DONE, len(view.closed))
        assert {name: place.store.head(name).metadata for name in metadata} == metadata
        rows = bench.catalog.segments(view.id)
        assert faults(place.store, KEYS, rows) == {}
        assert set(bench.catalog.key_uses()) == {"new"}
        again = await rotation.rotate(no_report)
        assert (again.outcome, again.segments) == (Outcome.DONE, 0)
        await bench.tierer.publisher.tick()
        head = read_head(place.store, KEYS, view.name.topic, view.id.topic_id, 0)
        assert head is not None
        assert {entry.key_id for entry in head.head.entries} == {"new"}

    place.run(ring(*BOTH, active="new"), work)
    assert told[-1].segments_done == told[-1].segments > 3
    assert told[-1].bytes_done == told[-1].bytes
    for suffix in (".log", ".indexes"):
        assert place.objects(suffix) == {name: raw for name, raw in before.items() if name.endswith(suffix)}
    for name, raw in place.objects(".rsm-manifest").items():
        old, new = json.loads(before[name]), json.loads(raw)
        assert new["encryption"].pop("dataKey").startswith("new:")
        assert old["encryption"].pop("dataKey").startswith("old:")
        assert new == old
        stem = name.removesuffix(".rsm-manifest")
        found = aiven_decoder.decode(raw, before[stem + ".log"], before[stem + ".indexes"], {"new": key("new")})
        local = place.root / "data" / "txn-0" / f"{new['remoteLogSegmentMetadata']['startOffset']:020d}.log"
        assert found.log == local.read_bytes()


def test_an_old_key_goes_when_no_manifest_needs_it(place: Place) -> None:
    async def nothing(bench: Bench, view: PartitionView) -> None:
        """Only the start counts."""

    async def rotate(bench: Bench, view: PartitionView) -> None:
        assert (await bench.tierer.rotation.rotate(no_report)).outcome is Outcome.DONE

    count = len(place.objects(".log"))
    for keys in (ring("new", active="new"), ring()):
        with pytest.raises(StartRefused, match=f"{count} segments under 'old'"):
            place.run(keys, nothing)
    place.run(ring(*BOTH, active="new"), rotate)
    place.run(ring("new", active="new"), nothing)
    with pytest.raises(StartRefused, match=f"{count} segments under 'new'"):
        place.run(ring("old", active="old"), nothing)


@pytest.mark.parametrize("lose_answer", [False, True])
def test_what_was_broken_off_goes_on(place: Place, lose_answer: bool) -> None:
    """The bucket goes away at every write in turn, before it takes effect or after."""
    count = len(place.objects(".log"))
    left = [3]

    def away(operation: str, name: str) -> None:
        if operation == "put" and name.endswith(".rsm-manifest"):
            left[0] -= 1
            if left[0] < 0:
                raise RemoteUnavailable("away")

    async def work(bench: Bench, view: PartitionView) -> None:
        done = 0
        for _ in range(count):
            left[0] = 3
            place.store.before, place.store.after = (lambda *_: None, away) if lose_answer else (away, lambda *_: None)
            result = await bench.tierer.rotation.rotate(no_report)
            done += result.segments
            if result.outcome is Outcome.DONE:
                break
            assert result.outcome is Outcome.UNAVAILABLE
            assert lose_answer or key_ids(place) == set(BOTH)
        place.store.before = place.store.after = lambda *_: None
        assert (await bench.tierer.rotation.rotate(no_report)).outcome is Outcome.DONE
        assert set(bench.catalog.key_uses()) == {"new"}

    place.run(ring(*BOTH, active="new"), work)
    assert key_ids(place) == {"new"}


class Killed(Exception):
    """The process ends here: nothing that comes behind is done."""


@pytest.mark.parametrize("after", [False, True])
def test_a_process_that_is_killed_at_any_write_leaves_a_rotation_that_goes_on(place: Place, after: bool) -> None:
    """There and back between the two keys: killed before or after a manifest lands, then finished by a new run."""
    count = len(place.objects(".log"))
    left = [0]

    def kill(operation: str, name: str) -> None:
        if operation == "put" and name.endswith(".rsm-manifest"):
            left[0] -= 1
            if left[0] <= 0:
                raise Killed

    async def killed(bench: Bench, view: PartitionView) -> None:
        place.store.before, place.store.after = (lambda *_: None, kill) if after else (kill, lambda *_: None)
        with pytest.raises(Killed):
            await bench.tierer.rotation.rotate(no_report)
        place.store.before = place.store.after = lambda *_: None

    async def finished(bench: Bench, view: PartitionView) -> None:
        assert (await bench.tierer.rotation.rotate(no_report)).outcome is Outcome.DONE
        assert faults(place.store, KEYS, bench.catalog.segments(view.id)) == {}

    for number, dies_at in enumerate((1, count // 2, count)):
        target = BOTH[(number + 1) % 2]
        left[0] = dies_at
        place.run(ring(*BOTH, active=target), killed)
        place.run(ring(*BOTH, active=target), finished)
        assert key_ids(place) == {target}
    for name, raw in place.objects(".rsm-manifest").items():
        stem = name.removesuffix(".rsm-manifest")
        log, indexes = place.store.get(stem + ".log"), place.store.get(stem + ".indexes")
        aiven_decoder.decode(raw, log, indexes, {key_id: key(key_id) for key_id in BOTH})


def test_what_another_run_had_done_is_only_noted(place: Place) -> None:
    """The manifests are ahead of the catalog: a crash between the two."""

    async def work(bench: Bench, view: PartitionView) -> None:
        rows = bench.catalog.segments(view.id)
        await bench.tierer.rotation.rotate(no_report)
        for row in rows:
            bench.catalog.rewrapped(row, "old", row.manifest_bytes)
        before = place.objects(".rsm-manifest")
        result = await bench.tierer.rotation.rotate(no_report)
        assert (result.outcome, result.segments) == (Outcome.DONE, len(rows))
        assert place.objects(".rsm-manifest") == before

    place.run(ring(*BOTH, active="new"), work)


def test_segments_that_are_gone_and_manifests_that_are_broken(place: Place) -> None:
    async def work(bench: Bench, view: PartitionView) -> None:
        rows = bench.catalog.segments(view.id)
        place.store.delete([rows[0].remote.manifest_key])
        broken = rows[1].remote.manifest_key
        raw = place.store.get(broken).replace(b'"dataKey":"old:', b'"dataKey":"old:AAAA')
        place.store.put(broken, raw, crc32c=crc32c(raw))
        result = await bench.tierer.rotation.rotate(no_report)
        assert result.outcome is Outcome.FAILED
        assert result.detail.startswith("1 segments stay under their key: ")
        assert broken in result.detail
        assert result.segments == len(rows) - 1
        assert place.store.get(broken) == raw

    place.run(ring(*BOTH, active="new"), work)


def test_without_an_active_key_or_the_claim_nothing_is_written(place: Place) -> None:
    before = place.objects(".rsm-manifest")

    async def idle(bench: Bench, view: PartitionView) -> None:
        for result in (await bench.tierer.rotation.plan(), await bench.tierer.rotation.rotate(no_report)):
            assert result.outcome is Outcome.FAILED
            assert "remote.encryption.key.active" in result.detail

    async def lost(bench: Bench, view: PartitionView) -> None:
        bench.tierer.state.set_claim(Claim(state=ClaimState.LOST, epoch=9, detail="taken"))
        rotation: Rotation = bench.tierer.rotation
        assert (await rotation.rotate(no_report)).outcome is Outcome.LOST

    place.run(ring(*BOTH), idle)
    place.run(ring(*BOTH, active="new"), lost)
    assert place.objects(".rsm-manifest") == before
