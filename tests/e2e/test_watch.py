"""/health and /metrics of a running daemon, with and without its tierer's answers."""

import json
import re
import urllib.request
from pathlib import Path

import pytest

from kit import traffic, weed
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e


def get(daemon: Daemon, path: str) -> str:
    """The address stands in the log, since the port was free to choose."""
    found = re.findall(r"health and metrics listening=(\S+)", daemon.log.read_text())
    with urllib.request.urlopen(f"http://{found[-1]}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_health_and_metrics_speak_of_both_tiers(tmp_path: Path) -> None:
    sets = ("--set", "http.address=127.0.0.1:0", "--set", "segment.bytes=1MiB")
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *sets) as tierd:
        traffic.produce_confluent(tierd.address, "seen", traffic.stream("seen", 0, 3000, 1000))
        tierd.verb("copy", "--wait")
        health = json.loads(get(tierd, "/health"))
        assert (health["status"], health["claim"]) == ("ok", "held")
        metrics = get(tierd, "/metrics")
        row = tierd.partition("seen")
        for name, value in (("log_end_offset", row["log_end"]), ("copied_to_offset", row["copied_to"])):
            assert f'tierd_{name}{{partition="0",topic="seen"}} {float(value)}' in metrics
        assert 'tierd_claim{state="held"} 1.0' in metrics
        assert re.search(r'tierd_requests_total\{api="PRODUCE"\} [1-9]', metrics)
        assert re.search(r"tierd_produced_bytes_total [1-9]", metrics)
        assert re.search(r"tierd_disk_free_bytes\{.*\} [1-9]", metrics)


@pytest.mark.s3
def test_a_start_says_what_the_bucket_can_do(tmp_path: Path) -> None:
    with weed.running() as server:
        remote = f"s3://{server.bucket('probed')}/tier/"
        sets = ("--set", f"remote.s3.endpoint={server.endpoint}", "--set", "remote.s3.region=us-east-1")
        with running(tmp_path / "data", remote, *sets, env=server.env) as tierd:
            tierd.verb("copy", "--wait")
            tierd.stop()
            said = tierd.log.read_text()
    for ability in ("create if absent", "compare and swap", "multipart", "CRC-32C of parts"):
        assert f"bucket: {ability}: yes" in said
