"""Flushes, rolls, checkpoints and retention beside the clients; what the tierer is told and may ask; status."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import T0, Client, batch, offsets_of
from broker.file_tier import FileTier
from broker.running import Running, running
from kit.clock import FakeClock
from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker import housekeeping
from tierd.broker.retention import released
from tierd.config.topic import TopicSettings
from tierd.remote.view import RemotePartition
from tierd.storage.view import PartitionView, SegmentView

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "100"}
HOUR_MS = 3_600_000
NOWHERE = PartitionId(Uuid(b"0123456789abcdef"), 0)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done but in `step`."""
    monkeypatch.setattr(housekeeping, "BUSY_TICK_S", 3600.0)
    monkeypatch.setattr(housekeeping, "IDLE_TICK_S", 3600.0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tier(tmp_path: Path) -> FileTier:
    return FileTier(tmp_path / "held")


@pytest.fixture
def tiered(tmp_path: Path, clock: FakeClock, tier: FileTier) -> Iterator[Running]:
    with running(tmp_path, tier, clock=clock) as started:
        yield started


@pytest.fixture
def plain(tmp_path: Path, clock: FakeClock) -> Iterator[Running]:
    with running(tmp_path, clock=clock) as started:
        yield started


def step(broker: Running) -> None:
    broker.run(broker.broker.housekeeping.step())


def fill(broker: Running, topic: str = "t", batches: int = 20, **config: str) -> None:
    with Client(broker.address) as client:
        assert client.create(topic, **{**SMALL, **config}).error_code == 0
        for n in range(batches):
            assert client.produce(topic, batch(t0=T0 + n)).error_code == 0


def test_closed_segments_become_durable_and_are_shown_to_the_tierer(tiered: Running, tier: FileTier) -> None:
    fill(tiered)
    step(tiered)
    log = tiered.log("t")
    view = tier.views[-1]
    assert view.closed == tiered.call(log.closed)
    assert view.recovery_point == view.active_base == log.recovery_point > 0
    assert view.active_append_ms is not None


def test_what_was_closed_since_the_last_tick_can_be_shown_at_once(tiered: Running, tier: FileTier) -> None:
    fill(tiered)
    fill(tiered, "local", remote_storage_enable="false")
    tiered.run(tiered.broker.housekeeping.catch_up())
    assert {view.name.topic for view in tier.views if view.closed} == {"t"}
    assert tier.views[-1].recovery_point == tier.views[-1].active_base > 0


def test_the_tierer_hears_when_an_empty_active_segment_fills(tiered: Running, tier: FileTier) -> None:
    fill(tiered, batches=0)
    step(tiered)
    assert tier.views[-1].active_append_ms is None
    with Client(tiered.address) as client:
        client.produce("t", batch())
        step(tiered)
        assert tier.views[-1].active_append_ms is not None
        told = len(tier.views)
        client.produce("t", batch())
        step(tiered)
        assert len(tier.views) == told, "not per append"


def test_roll_closes_only_tiered_segments_that_are_not_empty(tiered: Running, tier: FileTier) -> None:
    fill(tiered, "a", batches=1)
    fill(tiered, "b", batches=0)
    fill(tiered, "local", batches=1, remote_storage_enable="false")
    assert tiered.run(tiered.broker.housekeeping.roll()) == 1
    assert [view.name.topic for view in tier.views if view.closed] == ["a"]
    assert tiered.run(tiered.broker.housekeeping.roll()) == 0


def test_an_old_active_segment_is_rolled_unless_an_older_one_waits(
    tiered: Running, tier: FileTier, clock: FakeClock
) -> None:
    fill(tiered, batches=1)
    part = tiered.partitions.get("t", 0)
    assert part is not None
    step(tiered)
    clock.advance(HOUR_MS - 1)
    step(tiered)
    assert tiered.call(part.log.closed) == ()
    clock.advance(10_000)
    step(tiered)
    assert len(tiered.call(part.log.closed)) == 1
    with Client(tiered.address) as client:
        client.produce("t", batch())
    clock.advance(HOUR_MS + 10_000)
    step(tiered)
    assert len(tiered.call(part.log.closed)) == 1, "the first closed one still waits"
    tiered.local.remote_changed(_copied(part.id, 0, 3))
    clock.advance(10_000)
    step(tiered)
    assert len(tiered.call(part.log.closed)) == 2


def _copied(part: PartitionId, start: int | None, stop: int | None, log_start: int | None = None) -> RemotePartition:
    return RemotePartition(id=part, start=start, copied_to=stop, log_start=log_start, size_bytes=1, leader_epoch=0)


def test_segments_roll_by_wall_time_without_appends(plain: Running, clock: FakeClock) -> None:
    fill(plain, batches=1, segment_ms="60000")
    step(plain)
    clock.advance(70_001)
    step(plain)
    assert len(plain.call(plain.log("t").closed)) == 1


def test_silent_producers_are_forgotten_unless_their_transaction_is_open(plain: Running, clock: FakeClock) -> None:
    with Client(plain.address) as client:
        assert client.create("t").error_code == 0
        begun = client.call(22, 4, transactional_id="x", transaction_timeout=60_000)
        ids = [begun.producer_id, client.call(22, 4, transactional_id=None, transaction_timeout=0).producer_id]
        for producer_id, name in zip(ids, ("x", None), strict=True):
            raw = batch(1, producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=0x10 if name else 0)
            assert client.produce("t", raw, version=12, transactional_id=name).error_code == 0
        for advance_ms, left in ((0, ids), (24 * HOUR_MS - 1, ids), (HOUR_MS, ids[:1])):
            clock.advance(advance_ms)
            step(plain)
            asked = [{"name": "t", "partition_indexes": [0]}]
            told = client.call(61, 0, topics=asked).topics[0].partitions[0].active_producers
            assert [found.producer_id for found in told] == left


def test_flush_ms_moves_the_recovery_point_without_a_roll(plain: Running, clock: FakeClock) -> None:
    fill(plain, batches=1, flush_ms="5000", segment_bytes="1048576", internal_segment_bytes="1000000")
    step(plain)
    assert plain.log("t").recovery_point == 0
    clock.advance(5_001)
    step(plain)
    assert plain.log("t").recovery_point == 3


def test_checkpoints_are_written_at_their_cadence(plain: Running, clock: FakeClock, tmp_path: Path) -> None:
    clock.advance(100_000)
    fill(plain)
    step(plain)
    text = (tmp_path / "data" / "replication-offset-checkpoint").read_text()
    assert "t 0 60" in text
    with Client(plain.address) as client:
        client.produce("t", batch())
    step(plain)
    assert (tmp_path / "data" / "replication-offset-checkpoint").read_text() == text
    clock.advance(5_001)
    step(plain)
    assert "t 0 63" in (tmp_path / "data" / "replication-offset-checkpoint").read_text()


def test_recovery_points_and_log_starts_are_written_less_often(
    plain: Running, clock: FakeClock, tmp_path: Path
) -> None:
    def rows(name: str) -> list[str]:
        return (tmp_path / "data" / f"{name}-offset-checkpoint").read_text().splitlines()[2:]

    clock.advance(100_000)
    fill(plain)
    step(plain)
    log = plain.log("t")
    first = log.recovery_point
    assert rows("recovery-point") == [f"t 0 {first}"]
    with Client(plain.address) as client:
        for n in range(20):
            client.produce("t", batch(t0=T0 + n))
    clock.advance(5_001)
    step(plain)
    assert log.recovery_point > first
    assert rows("recovery-point") == [f"t 0 {first}"]
    assert rows("replication") == ["t 0 120"]
    clock.advance(55_000)
    step(plain)
    assert rows("recovery-point") == [f"t 0 {log.recovery_point}"]
    assert rows("log-start") == []
    plain.call(lambda: log.move_log_start(7))
    assert rows("log-start") == ["t 0 7"], "what lies below may go at once"


def test_retention_without_a_bucket(plain: Running, clock: FakeClock) -> None:
    fill(plain, retention_ms="3600000")
    step(plain)
    assert plain.log("t").log_start == 0, "record times of 2023, but appended just now"
    clock.advance(HOUR_MS + 1)
    step(plain)
    log = plain.log("t")
    assert log.log_start == log.local_start == plain.call(log.view).active_base
    with Client(plain.address) as client:
        assert client.fetch("t", 0).error_code == 1
        assert offsets_of(client.fetch("t", log.log_start).records)


def test_retention_leaves_tiered_partitions_to_the_tierer(tiered: Running, clock: FakeClock) -> None:
    fill(tiered, retention_ms="3600000")
    fill(tiered, "local", retention_ms="3600000", remote_storage_enable="false")
    clock.advance(2 * HOUR_MS)
    step(tiered)
    assert tiered.log("t").log_start == 0
    assert tiered.log("local").log_start > 0


def test_what_was_active_when_log_start_passed_it_goes_once_it_is_closed(plain: Running, clock: FakeClock) -> None:
    with Client(plain.address) as client:
        client.create("t")
        client.produce("t", batch())
        log = plain.log("t")
        assert plain.call(lambda: log.move_log_start(log.log_end)) == 3
        plain.call(log.roll)
        assert log.size_bytes
        clock.advance(HOUR_MS)
        step(plain)
        assert (log.size_bytes, log.log_start, log.local_start) == (0, 3, 3)
        client.produce("t", batch())
        assert offsets_of(client.fetch("t", 3).records) == [3, 4, 5]


# The pure rule.


def view(
    sizes: list[int], *, age_ms: int = 0, log_start: int = 0, largest_ms: int | None = None, **settings: object
) -> PartitionView:
    now_ms = 1_000_000
    closed = tuple(
        SegmentView(
            base=10 * n,
            next_base=10 * n + 10,
            size_bytes=size,
            largest_timestamp_ms=largest_ms,
            append_ms=now_ms - age_ms,
        )
        for n, size in enumerate(sizes)
    )
    return PartitionView(
        name=TopicPartition("t", 0),
        id=NOWHERE,
        directory=Path("/nowhere"),
        settings=TopicSettings(**settings),  # type: ignore[arg-type]
        log_start=log_start,
        local_start=0,
        log_end=10 * len(sizes) + 5,
        last_stable=10 * len(sizes) + 5,
        recovery_point=10 * len(sizes),
        leader_epoch=0,
        closed=closed,
        active_base=10 * len(sizes),
        active_bytes=100,
        active_append_ms=now_ms,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (view([100, 100, 100]), 0),
        (view([100, 100, 100], retention_bytes=250), 10),
        (view([100, 100, 100], retention_bytes=200), 20),
        (view([100, 100, 100], retention_bytes=201), 10),
        (view([100, 100, 100], retention_bytes=0), 30),
        (view([100, 100], retention_bytes=0, cleanup_policy=frozenset({"compact"})), 0),
        (view([100, 100], age_ms=51, retention_ms=50), 20),
        (view([100, 100], age_ms=50, retention_ms=50), 0),
        (view([100, 100], age_ms=51, retention_ms=50, largest_ms=10**15), 20),
        (view([100, 100], age_ms=0, retention_ms=50, largest_ms=5), 20),
        (view([100, 100], log_start=12), 12),
        (view([0, 100, 100], retention_bytes=250), 10),
        (view([], retention_bytes=0, retention_ms=0), 0),
    ],
)
def test_what_retention_releases(given: PartitionView, expected: int) -> None:
    assert released(given, 1_000_000) == expected


# What the tierer may ask.


def test_eviction_is_idempotent_and_bounded_by_what_is_flushed(tiered: Running) -> None:
    fill(tiered)
    part = tiered.partitions.get("t", 0)
    assert part is not None
    assert tiered.run(tiered.local.evict(part.id, 30)) == 0, "nothing is flushed yet"
    step(tiered)
    base = next(segment.base for segment in tiered.call(part.log.closed) if segment.base >= 30)
    for _ in range(2):
        assert tiered.run(tiered.local.evict(part.id, base)) == base
    assert part.log.log_start == 0
    assert tiered.run(tiered.local.evict(NOWHERE, 7)) == 7
    assert tiered.run(tiered.local.move_log_start(NOWHERE, 7)) == 7


def test_log_start_is_kept_over_an_eviction_and_a_restart(tmp_path: Path, tier: FileTier) -> None:
    with running(tmp_path, tier) as started:
        fill(started)
        started.give_to_tier("t", started.call(started.log("t").closed)[-1].base)
        local_start = started.log("t").local_start
    with running(tmp_path, tier) as started, Client(started.address) as client:
        assert (started.log("t").log_start, started.log("t").local_start) == (0, local_start)
        assert offsets_of(client.fetch("t", 0).records)[0] == 0


def test_a_lost_log_start_is_taken_from_the_bucket(tmp_path: Path, tier: FileTier) -> None:
    with running(tmp_path, tier) as started:
        fill(started)
        started.give_to_tier("t", started.call(started.log("t").closed)[-1].base)
    (tmp_path / "data" / "log-start-offset-checkpoint").unlink()
    with running(tmp_path, tier) as started, Client(started.address) as client:
        assert started.log("t").log_start == 0 < started.log("t").local_start
        assert client.list_offsets("t", -2).offset == 0
        assert offsets_of(client.fetch("t", 0).records)[0] == 0


def test_a_later_log_start_of_the_bucket_wins(tmp_path: Path, tier: FileTier) -> None:
    with running(tmp_path, tier) as started:
        fill(started)
        started.give_to_tier("t", started.call(started.log("t").closed)[-1].base)
    part = next(iter(tier.partitions))
    real = tier.remote(part)

    class Later(FileTier):
        def remote(self, part: PartitionId) -> RemotePartition:
            return _copied(part, real.start, real.copied_to, log_start=12)

    later = Later(tier.path, partitions=tier.partitions)
    with running(tmp_path, later) as started, Client(started.address) as client:
        assert client.list_offsets("t", -2).offset == 12
        assert client.fetch("t", 11).error_code == 1


# Status.


def test_status_joins_both_tiers(tiered: Running, tier: FileTier) -> None:
    fill(tiered)
    fill(tiered, "local", remote_storage_enable="false")
    tiered.give_to_tier("t", tiered.call(tiered.log("t").closed)[2].base)
    document = tiered.run(tiered.broker.status())
    assert (document["running"], document["claim"], document["epoch"]) == (True, "held", 0)
    rows = document["partitions"]
    assert isinstance(rows, list)
    local, both = rows
    log = tiered.log("t")
    assert both["topic"] == "t"
    assert (both["log_start"], both["local_start"], both["log_end"]) == (0, log.local_start, 60)
    assert both["copied_to"] == log.local_start
    assert both["local_bytes"] == log.size_bytes
    assert both["remote_bytes"] == tier.remote(next(iter(tier.partitions))).size_bytes
    assert local["waiting"]["reason"] == "untiered"
    tier.fails = RemoteUnavailable
    rows = tiered.run(tiered.broker.status())["partitions"]
    assert isinstance(rows, list)
    assert rows[1]["waiting"]["reason"] == "unknown"
    assert rows[1]["copied_to"] == log.local_start


def test_status_without_a_bucket(plain: Running) -> None:
    fill(plain)
    document = plain.run(plain.broker.status())
    (row,) = document["partitions"]  # type: ignore[misc]
    assert document["claim"] is None
    assert (row["remote_bytes"], row["copied_to"], row["waiting"]["reason"]) == (0, None, "untiered")
