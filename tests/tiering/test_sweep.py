"""The sweep at a bucket: what it deletes, in which order, when it does not, and that it comes by itself."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kit.bucket import Remotely, in_folder, in_weed
from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, drive, who
from kit.weed import Weed
from tierd.base.clock import SystemClock
from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import Uuid
from tierd.config.topic import DAY_MS
from tierd.remote import crc
from tierd.remote.keys import ObjectKind
from tierd.remote.memory import MemoryStore
from tierd.remote.store import DeleteOutcome, ObjectStore
from tierd.storage.view import PartitionView
from tierd.tiering.options import TopicState
from tierd.tiering.orphans import Kind
from tierd.tiering.sweep import SweepResult
from tierd.tiering.verbs import Outcome

LOG, INDEXES, MANIFEST = (kind.value for kind in ObjectKind)


async def _copied(bench: Bench) -> PartitionView:
    view = bench.adopt("codec-none-0")
    await bench.open(who())
    await bench.copy()
    await bench.tierer.publish_head(view.id)
    return view


def _put(store: ObjectStore, key: str) -> str:
    store.put(key, b"left", crc32c=crc.crc32c(b"left"))
    return key


def _stem(view: PartitionView, base: int, last: str = "A") -> str:
    folder = KEYS.partition_folder(view.name.topic, view.id.topic_id, view.name.partition)
    return f"{folder}{base:020d}-{'B' * 21}{last}"


def _day(bench: Bench) -> None:
    """Time goes by for the bucket's clock and ours alike; the claim is asked for again."""
    bench.clock.advance(DAY_MS)


async def _sweep(bench: Bench, *, dry: bool = False) -> SweepResult:
    return await bench.tierer.sweep.run(dry=dry)


def test_orphans_uploads_and_remains_go_and_nothing_else(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = await _copied(bench)
        before = {info.key for info in bench.store.list("p/")}
        stem = _stem(view, view.closed[1].base)
        orphan = {_put(bench.store, stem + LOG), _put(bench.store, stem + INDEXES)}
        bench.store.begin_upload(_stem(view, view.closed[2].base, "Q") + LOG)
        stranger = _put(bench.store, "p/readme.txt")
        young = await _sweep(bench)
        assert (young.outcome, young.gone, young.found) == (Outcome.DONE, 0, 3)
        assert [row.kind for row in young.rows] == [Kind.UNEXPLAINED, Kind.YOUNG, Kind.YOUNG]
        _day(bench)
        dry = await _sweep(bench, dry=True)
        assert (dry.gone, dry.unexplained) == (2, 1)
        assert {info.key for info in bench.store.list("p/")} == before | orphan | {stranger}
        assert len(bench.store.uploads) == 1
        done = await _sweep(bench)
        assert (done.gone, done.bytes, done.unexplained) == (2, 8, 1)
        assert {info.key for info in bench.store.list("p/")} == before | {stranger}
        assert bench.store.uploads == {}
        assert (await _sweep(bench)).gone == 0

    drive(tmp_path, work)


def test_manifests_go_before_their_data(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await _copied(bench)
        gone_id = Uuid(bytes(16))
        folder = KEYS.partition_folder("gone", gone_id, 0)
        stem = f"{folder}{0:020d}-{'B' * 21}A"
        for kind in (LOG, INDEXES, MANIFEST):
            _put(bench.store, stem + kind)
        raw = (
            f'{{"version":1,"topic":"gone","topic_id":"{gone_id}","partitions":1,"config":{{}},"created_ms":1,'
            '"deleted_ms":2,"epoch":0}'
        ).encode()
        bench.store.put(KEYS.topic_file("gone", gone_id), raw, crc32c=crc.crc32c(raw))
        head = _put(bench.store, KEYS.head("gone", gone_id, 0))
        _day(bench)
        assert [row.kind for row in (await _sweep(bench, dry=True)).rows] == [Kind.UNEXPLAINED], "no tombstone is known"
        bench.catalog.take_topic(_deleted("gone", gone_id))
        deleted: list[str] = []
        bench.store.before = lambda operation, key: deleted.append(key) if operation == "delete" else None
        result = await _sweep(bench)
        assert (result.gone, result.unexplained) == (2, 0)
        assert deleted[0] == stem + MANIFEST
        assert set(deleted) == {stem + LOG, stem + INDEXES, stem + MANIFEST, head}
        assert KEYS.topic_file("gone", gone_id) in {info.key for info in bench.store.list("p/")}, "tombstones stay"

    drive(tmp_path, work)


def _deleted(name: str, topic_id: Uuid) -> TopicState:
    return TopicState(topic=name, topic_id=topic_id, partitions=1, config={}, created_ms=1, deleted_ms=2)


def test_a_segment_whose_manifest_is_lost_is_never_an_orphan(tmp_path: Path) -> None:
    """Not even for a catalog that knows nothing of it: the head names it, or nothing else has its offsets."""

    async def work(bench: Bench) -> None:
        view = await _copied(bench)
        row = bench.catalog.segments(view.id)[1]
        bench.store.delete([row.remote.manifest_key])
        bench.catalog.deleting(row)
        bench.catalog.deleted(row)
        bench.local.views[view.id] = view = replace(view, local_start=view.active_base, closed=())
        bench.tierer.partition_changed(view)
        _day(bench)
        (found,) = (await _sweep(bench)).rows
        assert (found.kind, found.gone) == (Kind.UNEXPLAINED, False)
        assert "the head names it" in found.why
        bench.store.delete([KEYS.head(view.name.topic, view.id.topic_id, 0)])
        (found,) = (await _sweep(bench)).rows
        assert (found.kind, found.gone) == (Kind.UNEXPLAINED, False)
        assert "nothing else is known to have its offsets" in found.why

    drive(tmp_path, work)


def test_only_the_owner_sweeps_and_only_by_a_clock_to_be_trusted(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        bench.adopt("codec-none-0")
        assert (await _sweep(bench)).outcome is Outcome.UNAVAILABLE, "nothing is claimed yet"
        await bench.open(who())
        bench.clock.step_wall(DAY_MS)
        result = await _sweep(bench)
        assert (result.outcome, bool(result.detail)) == (Outcome.FAILED, True)
        bench.clock.step_wall(-DAY_MS)
        assert (await _sweep(bench)).outcome is Outcome.DONE
        raw = bench.store.get(KEYS.owner(bench.tierer.state.claim.epoch))
        bench.store.put(KEYS.owner(bench.tierer.state.claim.epoch + 1), raw, crc32c=crc.crc32c(raw))
        assert (await _sweep(bench)).outcome is Outcome.LOST

    drive(tmp_path, work)


def test_a_bucket_that_is_away_and_one_that_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        view = await _copied(bench)
        key = _put(bench.store, _stem(view, view.closed[1].base) + LOG)
        _day(bench)

        def away(operation: str, key: str) -> None:
            if operation == "list_uploads":
                raise RemoteUnavailable("S3 503")

        bench.store.before = away
        result = await _sweep(bench)
        assert (result.outcome, result.gone) == (Outcome.UNAVAILABLE, 0)
        bench.store.before = lambda operation, key: None
        plain = bench.store.delete
        bench.store.delete = lambda keys: tuple(DeleteOutcome(one, "AccessDenied: locked") for one in keys)  # type: ignore[method-assign]
        result = await _sweep(bench)
        assert (result.outcome, result.gone) == (Outcome.FAILED, 0)
        assert [row.refused for row in result.rows] == ["AccessDenied: locked"]
        assert key in caplog.text or "refuses a delete" in caplog.text
        bench.store.delete = plain  # type: ignore[method-assign]
        assert (await _sweep(bench)).gone == 1

    drive(tmp_path, work)


def test_it_comes_by_itself_once_a_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        view = await _copied(bench)
        key = _put(bench.store, _stem(view, view.closed[1].base) + LOG)
        await bench.tierer.sweep.tick()
        bench.clock.advance(DAY_MS // 2)
        lists: list[str] = []
        bench.store.before = lambda operation, key: lists.append(key) if operation == "list" else None
        await bench.tierer.sweep.tick()
        assert lists == [], "it is not due"
        bench.clock.advance(DAY_MS // 2)
        await bench.tierer.sweep.tick()
        assert key not in {info.key for info in bench.store.list("p/")}

    drive(tmp_path, work)


def test_it_can_be_left_to_the_verb(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = await _copied(bench)
        key = _put(bench.store, _stem(view, view.closed[1].base) + LOG)
        _day(bench)
        remote = bench.options.remote.model_copy(update={"sweep_interval_ms": 0})
        bench.tierer.state.options = replace(bench.options, remote=remote)
        await bench.tierer.sweep.tick()
        assert bench.store.head(key).size
        assert (await _sweep(bench)).gone == 1

    drive(tmp_path, work)


def test_it_is_among_the_scheduled_jobs(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = await _copied(bench)
        _day(bench)
        key = _put(bench.store, _stem(view, view.closed[1].base) + LOG)
        _day(bench)
        bench.tierer.state.options = replace(bench.options, sweep_look_ms=20)
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()

        def deleted(operation: str, at: str) -> None:
            if (operation, at) == ("delete", key):
                loop.call_soon_threadsafe(gone.set)

        bench.store.after = deleted
        bench.tierer.schedule()
        async with asyncio.timeout(60):
            await gone.wait()

    drive(tmp_path, work)


@pytest.mark.parametrize("where", ["file", pytest.param("s3", marks=pytest.mark.s3)])
def test_on_a_real_store(tmp_path: Path, where: str, request: pytest.FixtureRequest) -> None:
    """Orphans and uploads of a directory and of a server, found by the same rules."""
    if where == "file":
        there: Remotely = in_folder(tmp_path / "bucket")
    else:
        server: Weed = request.getfixturevalue("weed_server")
        there = in_weed(server, "sweep")

    async def work() -> None:
        clock = FakeClock(SystemClock().now_ms())
        bench = Bench(tmp_path, MemoryStore(clock), clock)
        store, keys = there.bucket.store, there.bucket.keys
        bench.tierer.state.bucket = there.bucket
        view = bench.adopt("codec-none-0")
        try:
            await bench.open(who())
            await bench.copy()
            before = {info.key for info in store.list(keys.prefix)}
            stem = keys.prefix + _stem(view, view.closed[1].base).removeprefix("p/")
            _put(store, stem + LOG)
            store.begin_upload(stem[:-1] + "Q" + LOG).put_part(1, b"x", crc32c=crc.crc32c(b"x"))
            assert (await _sweep(bench)).gone == 0
            bench.tierer.state.options = replace(bench.options, age_guard_ms=0)
            result = await _sweep(bench)
            assert (result.outcome, result.gone) == (Outcome.DONE, 2), result
            assert {info.key for info in store.list(keys.prefix)} == before
            assert list(store.list_uploads(keys.prefix)) == []
        finally:
            await bench.close()

    asyncio.run(work())
