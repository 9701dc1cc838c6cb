"""/health and /metrics of a running daemon (test_owners.py: of one whose tierer does not answer)."""

import json
import re
from pathlib import Path

import pytest

from kit import traffic, weed
from kit.daemon import running
from kit.tiers import http

pytestmark = pytest.mark.e2e


def test_health_and_metrics_speak_of_both_tiers(tmp_path: Path) -> None:
    sets = ("--set", "http.address=127.0.0.1:0", "--set", "segment.bytes=1MiB")
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *sets) as tierd:
        traffic.produce_confluent(tierd.address, "seen", traffic.stream("seen", 0, 3000, 1000))
        tierd.verb("copy", "--wait")
        health = json.loads(http(tierd, "/health"))
        assert (health["status"], health["claim"]) == ("ok", "held")
        metrics = http(tierd, "/metrics")
        row = tierd.partition("seen")
        for name, value in (("log_end_offset", row["log_end"]), ("copied_to_offset", row["copied_to"])):
            assert f'tierd_{name}{{partition="0",topic="seen"}} {float(value)}' in metrics
        assert 'tierd_claim{state="held"} 1.0' in metrics
        assert re.search(r'tierd_requests_total\{api="PRODUCE"\} [1-9]', metrics)
        assert re.search(r"tierd_produced_bytes_total [1-9]", metrics)
        assert re.search(r"tierd_disk_free_bytes\{.*\} [1-9]", metrics)


@pytest.mark.s3
def test_a_start_says_what_the_bucket_can_do(tmp_path: Path, weed_server: weed.Weed) -> None:
    remote = f"s3://{weed_server.bucket('probed')}/tier/"
    sets = ("--set", f"remote.s3.endpoint={weed_server.endpoint}", "--set", "remote.s3.region=us-east-1")
    with running(tmp_path / "data", remote, *sets, env=weed_server.env) as tierd:
        tierd.verb("copy", "--wait")
        tierd.stop()
        said = tierd.log.read_text()
    for ability in ("create if absent", "compare and swap", "multipart", "CRC-32C of parts"):
        assert f"bucket: {ability}: yes" in said
