"""One list of what is wrong: status, /health and the metrics all have what each of them has."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import Client, batch
from broker.file_tier import FileTier
from broker.running import Running, settings
from kit.certificates import Authority
from kit.clock import FakeClock
from tierd.base.clock import SystemClock
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.config.listeners import Endpoint, Tls
from tierd.config.places import HostPort
from tierd.daemon.watch import Watch
from tierd.web.health import Health, HealthState


@pytest.fixture
def tier(tmp_path: Path) -> FileTier:
    return FileTier(tmp_path / "bucket-file")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def broker(tmp_path: Path, tier: FileTier, clock: FakeClock) -> Iterator[Running]:
    started = Running(settings(tmp_path, remote=True), tier, clock)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def client(broker: Running) -> Iterator[Client]:
    with Client(broker.address) as connected:
        yield connected


def said(broker: Running) -> tuple[list[dict[str, str]], Health, dict[str, float | None]]:
    """What status, /health and metrics say."""
    watch = Watch(broker.broker, None)
    document = broker.run(broker.broker.status())
    samples = broker.run(asyncio.wait_for(watch.samples(), 60))
    counted = {sample.labels[0]: sample.value for sample in samples if sample.name == "tierd_problems"}
    problems: list[dict[str, str]] = document["problems"]  # type: ignore[assignment]
    return problems, broker.call(watch.health), counted


def test_nothing_is_wrong(broker: Running, client: Client) -> None:
    client.create("t")
    problems, health, counted = said(broker)
    assert problems == []
    assert (health.state, health.reasons) == (HealthState.OK, ())
    assert counted
    assert not any(counted.values())


def test_what_is_wrong_is_said_everywhere(broker: Running, client: Client) -> None:
    client.create("t", 8)
    for number in range(7):
        broker.log("t", number).failed = "an fsync failed"
    broker.log("t", 7).compaction.problem = "the CRC does not match"
    problems, health, counted = said(broker)
    assert [row["where"] for row in problems] == [f"t-{number}" for number in range(8)]
    assert problems[0]["detail"] == "takes no appends: an fsync failed; restart to recover from the disk"
    assert (counted["failed"], counted["uncleanable"]) == (7, 1)
    assert health.state is HealthState.DEGRADED
    assert "t-7: could not be cleaned: the CRC does not match" in health.reasons
    assert "2 more are failed" in health.reasons
    for number in range(7):
        broker.log("t", number).failed = None


def tiered_log(broker: Running, client: Client) -> None:
    """Topic `t`, whose first offsets are only in the bucket."""
    assert client.create("t").error_code == 0
    for _ in range(3):
        assert client.produce("t", batch(3)).error_code == 0
        broker.call(broker.log("t").roll)
    end = broker.log("t").log_end
    broker.give_to_tier("t", end)
    assert broker.log("t").local_start == end


def test_readers_that_are_refused_are_named_from_the_same_moment_on(
    broker: Running, client: Client, tier: FileTier, clock: FakeClock
) -> None:
    tiered_log(broker, client)
    tier.fails = RemoteUnavailable
    assert client.fetch("t", 0).error_code == 0
    assert said(broker)[0] == []
    clock.advance(29_000)
    assert client.fetch("t", 0).error_code == 0
    clock.advance(2_000)
    assert client.fetch("t", 0).error_code == 56
    problems, health, counted = said(broker)
    assert [row["kind"] for row in problems] == ["refused"]
    assert health.state is HealthState.DEGRADED
    assert counted["refused"] == 1
    clock.advance(31_000)  # nobody asks any more: nobody is refused
    assert said(broker)[0] == []


def test_a_read_that_hangs_is_refused_as_one_that_fails(
    broker: Running, client: Client, tier: FileTier, clock: FakeClock
) -> None:
    tiered_log(broker, client)
    tier.gate = asyncio.Event()
    for _ in range(4):
        assert client.fetch("t", 0, max_wait=10).error_code == 0
        clock.advance(10_000)
    assert client.fetch("t", 0, max_wait=10).error_code == 56
    assert [row["kind"] for row in said(broker)[0]] == ["refused"]
    broker.call(tier.gate.set)
    assert client.fetch("t", 0).records


def test_bytes_that_do_not_parse_are_named_until_they_do(broker: Running, client: Client, tier: FileTier) -> None:
    tiered_log(broker, client)
    tier.fails = lambda text: CorruptFile("an object", 7, text)  # type: ignore[assignment]
    assert client.fetch("t", 0).error_code == 56
    tier.fails = None
    problems, _, counted = said(broker)
    assert [(row["kind"], row["where"]) for row in problems] == [("unreadable", "t-0")]
    assert problems[0]["detail"].startswith("offset 0: an object: byte 7")
    assert counted["unreadable"] == 1
    assert client.fetch("t", 0).records
    assert said(broker)[0] == []


def test_a_certificate_that_has_expired_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    old, good = authority.sign("old", days=-1), authority.sign("good")
    listeners = {
        name: Endpoint(
            address=HostPort("127.0.0.1", 0),
            security_protocol="SSL",
            tls=Tls(certificate=one.certificate, key=one.key),
        )
        for name, one in (("OLD", old), ("GOOD", good))
    }
    broker = Running(settings(tmp_path, listeners=listeners), None, SystemClock())
    broker.start()
    try:
        watch = Watch(broker.broker, None)
        health = broker.call(watch.health)
        assert (health.state, health.reasons) == (
            HealthState.DEGRADED,
            ("the certificate of listener OLD has expired",),
        )
        name = "tierd_tls_certificate_expiry_timestamp_seconds"
        found = {one.labels[0]: one.value for one in broker.run(watch.samples()) if one.name == name}
        assert found["OLD"] is not None
        assert found["GOOD"] == pytest.approx(found["OLD"] + 3 * 86_400, abs=60)
    finally:
        broker.stop()
