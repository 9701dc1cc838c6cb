"""Fetch and ListOffsets over a socket while the old part is in a bucket: one log, whatever the bucket does."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.client import T0, Client, batch, offsets_of
from broker.file_tier import FileTier
from broker.running import Running, running
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.broker import list_offsets, remote_reads
from tierd.remote.view import Claim, ClaimState
from tierd.wire.errors import ErrorCode

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "100"}


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[Running]:
    """Topic `t`, offsets 0-59 in 20 batches; 0-29 are only in the bucket."""
    with running(tmp_path, FileTier(tmp_path / "held")) as started:
        with Client(started.address) as client:
            client.create("t", **SMALL)
            for n in range(20):
                assert client.produce("t", batch(t0=T0 + 10 * n)).error_code == 0
        started.give_to_tier("t", next(s.base for s in started.log("t").closed() if s.base >= 30))
        yield started


def local_start(broker: Running, topic: str = "t") -> int:
    return broker.log(topic).local_start


def test_reads_cross_the_seam_without_gap_or_repeat(tiered: Running) -> None:
    assert local_start(tiered) >= 30
    with Client(tiered.address) as client:
        for most in (1, 700, 1 << 20):
            seen: list[int] = []
            offset = 0
            while offset < 60:
                got = client.fetch("t", offset, partition_max_bytes=most)
                assert (got.error_code, got.high_watermark, got.log_start_offset) == (0, 60, 0)
                new = [found for found in offsets_of(got.records) if found >= offset]
                assert new, f"nothing at {offset}"
                seen += new
                offset = new[-1] + 1
            assert seen == list(range(60))
    assert isinstance(tiered.tier, FileTier)
    assert tiered.tier.out == 0


def test_times_over_both_tiers(tiered: Running) -> None:
    with Client(tiered.address) as client:
        assert client.list_offsets("t", -2).offset == 0
        assert client.list_offsets("t", -4).offset == local_start(tiered)
        assert client.list_offsets("t", -5, version=9).offset == local_start(tiered) - 1
        assert client.list_offsets("t", -6, version=11).offset == local_start(tiered)
        assert client.list_offsets("t", -6, version=10).error_code == ErrorCode.UNSUPPORTED_VERSION
        for n in range(20):
            assert client.list_offsets("t", T0 + 10 * n).offset == 3 * n
        assert client.list_offsets("t", -3).offset == 59
        assert client.list_offsets("t", T0 + 10_000).offset == -1


def test_the_largest_time_may_lie_in_the_bucket(tmp_path: Path) -> None:
    """Records are not in the order of their times; of two that are equal the first one counts."""
    times = [T0, T0 + 500, *[T0 + n for n in range(16)], T0 + 500, T0]
    with running(tmp_path, FileTier(tmp_path / "held")) as started, Client(started.address) as client:
        client.create("t", **SMALL)
        for time in times:
            assert client.produce("t", batch(t0=time)).error_code == 0
        found = client.list_offsets("t", -3)
        started.give_to_tier("t", next(s.base for s in started.log("t").closed() if s.base >= 30))
        assert local_start(started) <= 3 * times.index(T0 + 500, 2)
        again = client.list_offsets("t", -3)
        assert (again.offset, again.timestamp) == (found.offset, found.timestamp)
        assert found.offset < 6, "the first of the equal ones"
        client.produce("t", batch(t0=T0 + 501))
        assert client.list_offsets("t", -3).offset >= 60


def test_partitions_of_one_fetch_are_read_side_by_side_under_one_limit(tmp_path: Path) -> None:
    tier = FileTier(tmp_path / "held")
    names = [f"t{n}" for n in range(4)]
    size = len(batch())
    with running(tmp_path, tier) as started, Client(started.address) as client:
        for name in names:
            client.create(name, **SMALL)
            for _ in range(20):
                client.produce(name, batch())
            started.give_to_tier(name, next(s.base for s in started.log(name).closed() if s.base >= 30))
        tier.gate = asyncio.Event()
        client.send_fetch([(name, 0, 0, 2 * size) for name in names], max_bytes=5 * size, max_wait=60_000)
        with Client(started.address) as other:
            while tier.reads < 3:
                other.list_offsets("t0", -1)
        started.call(tier.gate.set)
        got = client.fetched()
        assert [len(row.records or b"") for row in got] == [2 * size, 2 * size, size, 0]
        assert tier.reads == 3


def test_a_time_is_not_waited_for_until_the_client_gives_up(tiered: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_offsets.REMOTE_WAIT_S <= 10, "Java's clients give a connection up after 30 s"
    monkeypatch.setattr(list_offsets, "REMOTE_WAIT_S", 0.2)
    assert isinstance(tiered.tier, FileTier)
    tiered.tier.gate = asyncio.Event()
    with Client(tiered.address) as client:
        assert client.list_offsets("t", T0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.list_offsets("t", T0, version=10, timeout=60_000).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.list_offsets("t", T0, version=10, timeout=50).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_slow_bucket_gives_an_empty_answer_and_the_read_is_kept(tiered: Running) -> None:
    tier = tiered.tier
    assert isinstance(tier, FileTier)
    tier.gate = asyncio.Event()
    with Client(tiered.address) as client:
        for _ in range(3):
            assert not client.fetch("t", 0, max_wait=10).records
        assert tier.reads == 1, "later fetches join the one that is under way"
        tiered.call(tier.gate.set)
        assert offsets_of(client.fetch("t", 0).records)[0] == 0
        assert tier.reads == 1


def test_a_read_that_nobody_comes_for_is_released(tiered: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "KEEP_S", 0.05)
    tier = tiered.tier
    assert isinstance(tier, FileTier)
    tier.gate = asyncio.Event()
    with Client(tiered.address) as client:
        assert not client.fetch("t", 0, max_wait=1).records
        with Client(tiered.address) as leaver:
            leaver.send_fetch([("t", 0, 30, 1 << 20), ("t", 0, 3, 1 << 20)], max_wait=20_000)
            while tier.reads < 2:
                client.list_offsets("t", -1)
        tiered.call(tier.gate.set)
        while tier.out or tier.reads < 2:
            client.list_offsets("t", -1)


def test_a_stop_releases_what_is_under_way(tmp_path: Path) -> None:
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier) as started, Client(started.address) as client:
        client.create("t", **SMALL)
        for _ in range(20):
            client.produce("t", batch())
        started.give_to_tier("t", next(s.base for s in started.log("t").closed() if s.base >= 30))
        tier.gate = asyncio.Event()
        assert not client.fetch("t", 0, max_wait=1).records
        assert tier.reads == 1
        started.call(tier.gate.set)
    assert tier.out == 0


def test_local_data_is_not_held_back_by_a_slow_bucket(tiered: Running) -> None:
    tier = tiered.tier
    assert isinstance(tier, FileTier)
    tier.gate = asyncio.Event()
    with Client(tiered.address) as client:
        client.create("fresh")
        client.produce("fresh", batch())
        old, new = client.fetch_many([("t", 0, 0, 1 << 20), ("fresh", 0, 0, 1 << 20)], max_wait=20_000)
        assert not old.records
        assert offsets_of(new.records) == [0, 1, 2]
    tiered.call(tier.gate.set)


def test_an_absent_bucket_is_silence_at_first_and_an_error_after_30_s(tmp_path: Path) -> None:
    from kit.clock import FakeClock

    clock = FakeClock()
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier, clock=clock) as started, Client(started.address) as client:
        client.create("t", **SMALL)
        for _ in range(20):
            client.produce("t", batch())
        started.give_to_tier("t", next(s.base for s in started.log("t").closed() if s.base >= 30))
        tier.fails = RemoteUnavailable
        for _ in range(3):
            assert client.fetch("t", 0, max_wait=1).error_code == 0
            clock.advance(10_001)
        assert client.fetch("t", 0, max_wait=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.list_offsets("t", -3).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.fetch("t", started.log("t").local_start).error_code == 0
        tier.fails = None
        while client.fetch("t", 0).error_code:
            clock.advance(1)
        assert offsets_of(client.fetch("t", 0).records)[0] == 0


def test_corrupt_remote_data_is_an_error_of_that_partition_alone(tiered: Running) -> None:
    assert isinstance(tiered.tier, FileTier)

    class Rotten(CorruptFile):
        def __init__(self, why: str) -> None:
            super().__init__("bucket", 0, why)

    tiered.tier.fails = Rotten
    with Client(tiered.address) as client:
        client.create("fresh")
        client.produce("fresh", batch())
        old, new = client.fetch_many([("t", 0, 0, 1 << 20), ("fresh", 0, 0, 1 << 20)])
        assert old.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (new.error_code, offsets_of(new.records)) == (0, [0, 1, 2])


def of_both_tiers(client: Client) -> list[tuple[str, int, int, int]]:
    """What to fetch: a partition that begins in the bucket, and one that is here, with four batches."""
    client.create("fresh")
    for _ in range(4):
        client.produce("fresh", batch())
    return [("t", 0, 0, 1 << 20), ("fresh", 0, 0, 1 << 20)]


def test_budget_spans_tiers(tiered: Running) -> None:
    size = len(batch())
    with Client(tiered.address) as client:
        wanted = of_both_tiers(client)
        old, new = client.fetch_many(wanted, max_bytes=5 * size)
        assert len(new.records) + len(old.records or b"") <= 5 * size


def test_neither_tier_starves_the_other(tiered: Running) -> None:
    """The client's order decides who comes first when not everything fits."""
    size = len(batch())
    with Client(tiered.address) as client:
        wanted = of_both_tiers(client)
        old, new = client.fetch_many(wanted, max_bytes=2 * size)
        assert (len(old.records), len(new.records or b"")) == (2 * size, 0)
        new, old = client.fetch_many(wanted[::-1], max_bytes=2 * size)
        assert (len(old.records or b""), len(new.records)) == (0, 2 * size)
        old, new = client.fetch_many([(*wanted[0][:3], size), wanted[1]], max_bytes=4 * size)
        assert (len(old.records), len(new.records)) == (size, 3 * size)


def test_a_lost_claim_stops_produce_and_keeps_reads(tiered: Running) -> None:
    assert isinstance(tiered.tier, FileTier)
    lost = Claim(state=ClaimState.LOST, epoch=1, detail="somebody else")
    tiered.tier.claim = lost
    tiered.call(lambda: tiered.local.claim_changed(lost))
    with Client(tiered.address) as client:
        assert client.produce("t", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets_of(client.fetch("t", 0).records)[0] == 0


def test_log_start_moves_for_readers(tiered: Running) -> None:
    part = tiered.partitions.get("t", 0)
    assert part is not None
    assert tiered.run(tiered.local.move_log_start(part.id, 9)) == 9
    with Client(tiered.address) as client:
        assert client.fetch("t", 8).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.fetch("t", 9).log_start_offset == 9
        assert client.list_offsets("t", -2).offset == 9


def test_a_time_whose_record_leaves_the_disk_while_the_bucket_is_asked_is_found(tiered: Running) -> None:
    tier, log = tiered.tier, tiered.log("t")
    assert isinstance(tier, FileTier)
    tier.gate = asyncio.Event()
    seam = log.local_start
    with Client(tiered.address) as client, ThreadPoolExecutor(1) as asking:
        found = asking.submit(client.list_offsets, "t", T0 + 10 * (seam // 3))
        while not tier.asked:
            threading.Event().wait(0.01)
        tiered.give_to_tier("t", log.closed()[-1].next_base)
        tiered.call(tier.gate.set)
        assert found.result(60).offset == seam


def test_a_read_that_fails_in_a_way_of_its_own_is_an_error_of_that_partition_alone(tiered: Running) -> None:
    """The disk of the read cache has failed, say: the connection stays, and nothing that was read stays out."""
    tier = tiered.tier
    assert isinstance(tier, FileTier)
    with Client(tiered.address) as client:
        client.create("t2", **SMALL)
        for _ in range(20):
            client.produce("t2", batch())
        tiered.give_to_tier("t2", next(s.base for s in tiered.log("t2").closed() if s.base >= 30))
        partition = tiered.partitions.get("t", 0)
        assert partition is not None
        tier.broken = partition.id
        old, new = client.fetch_many([("t", 0, 0, 1 << 20), ("t2", 0, 0, 1 << 20)])
        assert old.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (new.error_code, offsets_of(new.records)[0]) == (0, 0)
        assert tiered.broker.counters.remote_reads_failed == 1
    assert tier.out == 0
