"""The bucket is away: tierd starts, accepts and serves; nothing leaves the disk until the bucket is back."""

import shutil
from pathlib import Path

import pytest

from kit import tiers, traffic
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e

NOWHERE = "s3://nobody/tier/"
ENV = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}


def test_a_start_without_the_bucket_serves_and_evicts_nothing(tmp_path: Path) -> None:
    sets = ["--set", "remote.s3.endpoint=http://127.0.0.1:9", "--set", "segment.bytes=1MiB"]
    daemon = Daemon(tmp_path / "data", NOWHERE, None, sets, env=ENV)
    sent = list(traffic.stream("away", 0, 3000, 1000))
    try:
        daemon.start()
        traffic.produce_confluent(daemon.address, "away", sent)
        assert traffic.digest(traffic.consume_confluent(daemon.address, "away", 0, 3000)) == traffic.digest(sent)
        status = daemon.status()
        assert status["claim"] == "pending"
        row = next(r for r in status["partitions"] if r["topic"] == "away")
        assert row["local_start"] == 0
        assert row["waiting"]["reason"] == "claim"
        assert daemon.verb("evict", expect=None).returncode == 5
        for words in (("--wait", "--timeout", "2"), ("--wait", "--timeout", "2"), ("--dry-run",)):
            assert daemon.verb("copy", *words, expect=None).returncode == 5
        assert daemon.stop(timeout_s=20) == 0
    finally:
        daemon.kill()


def test_a_state_directory_without_its_catalog_is_rebuilt_from_the_bucket(tmp_path: Path) -> None:
    sent = list(traffic.stream("kept", 0, 5000, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", "--set", "segment.bytes=1MiB") as tierd:
        traffic.produce_confluent(tierd.address, "kept", sent)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        before = tierd.partition("kept")
        tierd.stop()
        for stale in tmp_path.glob("data.tierd/catalog.sqlite*"):
            stale.unlink()
        shutil.rmtree(tmp_path / "data.tierd" / "cache")
        tierd.start()
        assert traffic.digest(traffic.consume_confluent(tierd.address, "kept", 0, 5000)) == traffic.digest(sent)
        after = tierd.partition("kept")
        assert {k: after[k] for k in ("log_start", "copied_to", "log_end", "remote_bytes")} == {
            k: before[k] for k in ("log_start", "copied_to", "log_end", "remote_bytes")
        }


def test_a_broken_catalog_is_kept_aside_and_made_again(tmp_path: Path) -> None:
    sent = list(traffic.stream("kept", 0, 3000, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", "--set", "segment.bytes=1MiB") as tierd:
        traffic.produce_confluent(tierd.address, "kept", sent)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        tierd.stop()
        catalog = tmp_path / "data.tierd" / "catalog.sqlite"
        catalog.write_bytes(b"not a database" * 500)
        assert "catalog.sqlite" in tierd.verb("status", expect=1).stderr
        tierd.start()
        assert traffic.digest(traffic.consume_confluent(tierd.address, "kept", 0, 3000)) == traffic.digest(sent)
        assert len(list(catalog.parent.glob("catalog.sqlite.broken-*"))) == 1
