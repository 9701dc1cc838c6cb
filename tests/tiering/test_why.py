"""`tierd why`: one reason, the true one, with the fact behind it."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import SETTINGS, Bench, drive, who
from tierd.base.errors import RemoteUnavailable, Usage
from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import DAY_MS
from tierd.remote.view import ClaimState, Waiting
from tierd.storage.view import PartitionView
from tierd.tiering.plan import why_waiting
from tierd.tiering.question_calls import reasons
from tierd.tiering.why import Why, why_local, why_uncopied
from tiering.test_plan import HELD, NOW_MS, settings, view

ALL = [(0, 1000)]


def local(made: PartitionView, committed: list[tuple[int, int]] = ALL, **facts: Waiting | None) -> Why | None:
    return why_local(made, committed, now_ms=NOW_MS, **{"trouble": None, "waiting": None, **facts})


def test_why_it_is_still_on_the_disk() -> None:
    day_old = view(100, 100, settings=settings(local_retention_ms=DAY_MS + 5000))
    kept = local(day_old)
    assert kept is not None
    assert (kept.reason, kept.start, kept.stop, kept.bytes) == ("kept", 0, 10, 100)
    assert kept.detail == "local.retention.ms (86405s) keeps it until 2023-11-14 22:13:25 UTC"
    no_limit, by_size = local(view(100)), local(view(100, settings=settings(local_retention_bytes=1024)))
    assert no_limit == replace(kept, detail="there is no limit: local.retention.ms=-1, local.retention.bytes=-1")
    assert by_size == replace(kept, detail="local.retention.bytes=1KiB, 101 bytes are on the disk")
    due = view(100, settings=settings(local_retention_ms=1))
    assert local(due) == replace(kept, reason="due", detail="local.retention.ms lets it go")
    jumped = Waiting("clock", "the wall clock has jumped")
    assert local(due, trouble=jumped) == replace(kept, reason="clock", detail=jumped.detail)
    pinned = Waiting("pinned", "producer 7")
    assert local(due, [], waiting=pinned) == replace(
        kept, reason="pinned", detail="it is not in the bucket: producer 7"
    )
    alone = local(view())
    assert alone is not None
    assert (alone.reason, alone.start, alone.bytes) == ("active", 0, 1)
    assert local(view(active_bytes=0)) is None


def test_a_copy_that_hangs_is_told_from_one_that_goes_on() -> None:
    made, copying = view(100, 100), replace(HELD, copying=0, copying_ms=94_000)
    going_on, hung = why_waiting(made, copying), why_waiting(made, replace(copying, silent_ms=93_500))
    assert going_on == Waiting("copying", "segment 0 is on its way for 94 s")
    assert hung == Waiting("hung", "segment 0 is on its way for 94 s; the bucket has not answered for 93 s")
    asked = why_uncopied(made, hung, made.closed)
    assert asked is not None
    assert (asked.reason, asked.start, asked.stop, asked.bytes) == ("hung", 0, 10, 100)
    active = why_uncopied(made, Waiting("active", "x"), ())
    assert active is not None
    assert (active.start, active.stop, active.bytes) == (20, 21, 1)
    assert why_uncopied(made, None, ()) is None
    paused = why_uncopied(view(active_bytes=0), Waiting("paused", "x"), ())
    assert paused == Why(reason="paused", detail="x"), "no offsets are named where there are none"


def test_why_it_is_still_in_the_bucket(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        part = bench.adopt("codec-none-0").id

        def remote() -> tuple[str, str]:
            found = reasons(bench.tierer, part)[2]
            return ("", "") if found is None else (found.reason, found.detail)

        await bench.open(who())
        bench.local.set(part, settings=replace(SETTINGS, remote_log_copy_disable=True))
        await bench.copy()
        assert remote() == ("", "")
        bench.local.set(part, settings=SETTINGS)
        await bench.copy()
        assert remote() == ("within limits", "there is no limit: retention.ms=-1, retention.bytes=-1")
        bench.local.set(part, settings=replace(SETTINGS, retention_ms=10 * 365 * DAY_MS))
        assert remote()[0] == "within limits"
        assert remote()[1].startswith("retention.ms (3650d) keeps it until 20")
        bench.local.set(part, settings=replace(SETTINGS, retention_bytes=0))
        assert remote() == ("due", "retention.bytes lets it go")
        await bench.tierer.retention.tick()
        assert remote()[0] == "delayed"
        assert "tierd.delete.delay.ms (1d) keeps it until" in remote()[1]
        bench.clock.advance(DAY_MS)
        assert remote()[0] == "due"
        bench.clock.step_wall(DAY_MS)
        assert remote()[0] == "clock"

    drive(tmp_path, work)


def test_a_bucket_that_fails_is_named_with_the_times_that_it_did(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        part = bench.adopt("codec-none-0").id
        await bench.open(who())

        def away(operation: str, key: str) -> None:
            raise RemoteUnavailable("S3 503 SlowDown")

        bench.store.before = away
        await bench.copy()
        copy, on_disk, _ = reasons(bench.tierer, part)
        assert copy is not None
        assert on_disk is not None
        assert copy.reason in ("retrying", "copying")
        if copy.reason == "retrying":
            assert "failed: S3 503 SlowDown; the next one begins in 0 s" in copy.detail
        assert on_disk.reason == copy.reason
        with pytest.raises(Usage):
            reasons(bench.tierer, PartitionId(Uuid(bytes(16)), 0))
        bench.store.before = lambda operation, key: None

    drive(tmp_path, work)


@pytest.mark.parametrize("claim", [ClaimState.PENDING, ClaimState.LOST])
def test_who_has_the_bucket_comes_first(claim: ClaimState) -> None:
    waiting = why_waiting(view(100), replace(HELD, claim=claim, copying=0, silent_ms=99_000))
    assert waiting == Waiting("claim", f"this run's claim on the bucket is {claim}")
