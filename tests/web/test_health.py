"""/health and /metrics over real HTTP."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tierd.web.health import Health, HealthState, HttpServer
from tierd.web.metrics import METRICS, Kind, Sample, broker_samples, partition_samples, render

ROW = {
    "topic": 'we"ird',
    "partition": 3,
    "log_start": 0,
    "local_start": 70,
    "copied_to": None,
    "log_end": 90,
    "local_bytes": 1000,
    "remote_bytes": 2000,
    "oldest_uncopied_ms": None,
    "compaction": {
        "cleaned_to": 80,
        "dirty_bytes": 100,
        "dirty_ratio": 0.25,
        "running": False,
        "finished_ms": 1_700_000_000_500,
        "problem": "the CRC does not match",
    },
}


async def no_samples() -> Iterable[Sample]:
    return [Sample("tierd_up", 1), *partition_samples(ROW)]


@pytest.mark.parametrize(
    ("state", "status"), [(HealthState.OK, 200), (HealthState.DEGRADED, 200), (HealthState.FAILING, 503)]
)
def test_health_says_the_state_and_why(state: HealthState, status: int) -> None:
    async def run() -> None:
        health = Health(state, ("because",), {"epoch": 7})
        server = HttpServer("127.0.0.1", 0, health=lambda: health, samples=no_samples)
        host, port = await server.start()
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/health") as answer:
            assert answer.status == status
            assert await answer.json() == {"status": state.value, "reasons": ["because"], "epoch": 7}
        await server.stop()

    asyncio.run(run())


def test_metrics_are_prometheus_text() -> None:
    async def run() -> str:
        server = HttpServer("127.0.0.1", 0, health=lambda: Health(HealthState.OK), samples=no_samples)
        host, port = await server.start()
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/metrics") as answer:
            assert answer.content_type == "text/plain"
            text = await answer.text()
        await server.stop()
        return text

    families = {family.name: family for family in text_string_to_metric_families(asyncio.run(run()))}
    (end,) = families["tierd_log_end_offset"].samples
    assert end.value == 90
    names = ("dirty_ratio", "dirty_bytes", "last_cleaned_timestamp_seconds", "uncleanable")
    assert [families[f"tierd_{name}"].samples[0].value for name in names] == [0.25, 100, 1_700_000_000.5, 1]
    assert end.labels == {"topic": 'we"ird', "partition": "3"}
    assert "tierd_copied_to_offset" not in families
    assert "tierd_oldest_uncopied_milliseconds" not in families


@dataclass
class Numbers:
    requests: Mapping[int, int] = field(default_factory=lambda: {0: 4})
    bad_requests: int = 1
    handshakes_failed: int = 0
    authentications_failed: int = 6
    sessions_expired: int = 0
    denied: int = 0
    throttled: int = 0
    throttled_ms: int = 0
    produced_bytes: int = 2
    fetched_bytes: int = 10
    fetched_remote_bytes: int = 7
    remote_reads_failed: int = 3
    commits: int = 4
    committed_requests: int = 9
    cleanings: int = 5
    cleanings_failed: int = 1
    cleaned_bytes: int = 900
    kept_bytes: int = 100


def test_the_brokers_numbers_have_their_names() -> None:
    text = render(broker_samples(Numbers(), lambda key: f"API{key}")).decode()
    assert 'tierd_requests_total{api="API0"} 4.0' in text
    assert 'tierd_fetched_bytes_total{tier="local"} 3.0' in text
    assert 'tierd_fetched_bytes_total{tier="remote"} 7.0' in text
    assert "tierd_remote_read_failures_total 3.0" in text
    assert "tierd_authentication_failures_total 6.0" in text
    assert "tierd_cleaning_failures_total 1.0" in text
    assert "tierd_kept_bytes_total 100.0" in text


def test_a_taken_port_is_an_os_error() -> None:
    async def run() -> None:
        first = HttpServer("127.0.0.1", 0, health=lambda: Health(HealthState.OK), samples=no_samples)
        _, port = await first.start()
        second = HttpServer("127.0.0.1", port, health=lambda: Health(HealthState.OK), samples=no_samples)
        with pytest.raises(OSError, match="in use"):
            await second.start()
        await first.stop()

    asyncio.run(run())


def test_every_metric_in_the_list_can_be_rendered_and_no_other() -> None:
    samples = [Sample(rule.name, 1, tuple("x" for _ in rule.labels)) for rule in METRICS]
    text = render(samples).decode()
    for rule in METRICS:
        assert f"{rule.name}{'_total' if rule.kind is Kind.COUNTER else ''}" in text
    with pytest.raises(KeyError):
        render([Sample("tierd_unheard_of", 1)])
    with pytest.raises(ValueError, match="has the labels"):
        render([Sample("tierd_requests", 1)])
