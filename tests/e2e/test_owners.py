"""One bucket, one writer: who may start, who must not, and what the loser says (exit code 4)."""

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import confluent_kafka
import pytest

from kit import tiers, traffic
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e


def test_a_second_daemon_on_the_same_data_is_refused(tmp_path: Path) -> None:
    bucket = f"file:{tmp_path / 'bucket'}"
    with running(tmp_path / "data", bucket):
        assert ".lock" in tiers.refused(Daemon(tmp_path / "data", bucket, tmp_path / "other-state"))


def test_an_empty_data_directory_on_a_prefix_that_holds_an_archive_is_refused(tmp_path: Path) -> None:
    bucket = f"file:{tmp_path / 'bucket'}"
    with running(tmp_path / "data", bucket) as tierd:
        traffic.produce_confluent(tierd.address, "t", traffic.stream("t", 0, 100, 100))
        tiers.copy(tierd, roll=True)
        tierd.stop()
    assert str(tmp_path / "bucket") in tiers.refused(Daemon(tmp_path / "new", bucket))


def test_the_remote_is_part_of_the_archive(tmp_path: Path) -> None:
    one, two = f"file:{tmp_path / 'one'}", f"file:{tmp_path / 'two'}"
    with running(tmp_path / "data", one) as tierd:
        tierd.stop()
    said = tiers.refused(Daemon(tmp_path / "data", two))
    assert one in said
    assert two in said
    assert one in tiers.refused(Daemon(tmp_path / "data"))


def test_a_copied_host_is_refused_and_the_bucket_keeps_one_history(tmp_path: Path) -> None:
    bucket = f"file:{tmp_path / 'bucket'}"
    sent = list(traffic.stream("t", 0, 3000, 1000))
    with running(tmp_path / "data", bucket, "--set", "segment.bytes=1MiB") as tierd:
        traffic.produce_confluent(tierd.address, "t", sent[:2000])
        tierd.stop()
        (tmp_path / "copy").mkdir()
        shutil.copytree(tmp_path / "data", tmp_path / "copy" / "data")
        shutil.copytree(tmp_path / "data.tierd", tmp_path / "copy" / "data.tierd")
        tierd.start()
        said = tiers.refused(Daemon(tmp_path / "copy" / "data", bucket))
        assert "claim" in said
        traffic.produce_confluent(tierd.address, "t", sent[2000:])
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        assert traffic.digest(traffic.consume_confluent(tierd.address, "t", 0, 3000)) == traffic.digest(sent)
        assert tierd.status()["claim"] == "held"


def test_a_refused_bucket_is_not_remembered(tmp_path: Path) -> None:
    taken, right = f"file:{tmp_path / 'taken'}", f"file:{tmp_path / 'right'}"
    with running(tmp_path / "other", taken) as tierd:
        traffic.produce_confluent(tierd.address, "t", traffic.stream("t", 0, 10, 100))
        tierd.stop()
    tiers.refused(Daemon(tmp_path / "data", taken))
    with running(tmp_path / "data", right) as tierd:
        assert tierd.status()["claim"] == "held"


def test_a_hanging_tierer_keeps_no_verb_and_health_says_so(tmp_path: Path) -> None:
    sets = ("--set", "http.address=127.0.0.1:0", "--set", "segment.bytes=1MiB")
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *sets) as tierd:
        sent = list(traffic.stream("t", 0, 100, 100))
        traffic.produce_confluent(tierd.address, "t", sent[:50])
        (tierer,) = tierd.tierer_pids()
        os.kill(tierer, signal.SIGSTOP)
        try:
            assert tierd.partition("t")["waiting"]["reason"] == "unknown"
            # its time is up, or it has been silent for so long already that nobody waits
            assert tierd.verb("copy", "--wait", "--timeout", "1", expect=None, timeout_s=60).returncode in (1, 5)
            assert "the tierer has not answered for" in tierd.verb("evict", expect=5, timeout_s=60).stderr
            assert "the tierer has not answered for" in tierd.verb("status").stdout
            health = json.loads(tiers.http(tierd, "/health"))
            assert health["status"] == "degraded"
            assert any("the tierer has not answered for" in reason for reason in health["reasons"])
            metrics = tiers.http(tierd, "/metrics")
            assert "tierd_tierer_up 0.0" in metrics
            assert re.search(r"tierd_tierer_silent_milliseconds [1-9]", metrics)
            traffic.produce_confluent(tierd.address, "t", sent[50:])
            assert traffic.digest(traffic.consume_confluent(tierd.address, "t", 0, 100)) == traffic.digest(sent)
        finally:
            os.kill(tierer, signal.SIGCONT)
        tiers.until("health", lambda: json.loads(tiers.http(tierd, "/health"))["status"] == "ok")
        assert tierd.stop() == 0


def test_an_old_owner_that_runs_on_commits_nothing_behind_the_take_over(tmp_path: Path) -> None:
    remote, small = f"file:{tmp_path / 'bucket'}", ("--set", "segment.bytes=1MiB")
    with running(tmp_path / "data", remote, *small) as tierd:
        tiers.fill(tierd, "t", 2)
        tiers.copy(tierd)
        tierd.stop()
        for name in ("data", "data.tierd"):
            shutil.copytree(tmp_path / name, tmp_path / "copy" / name)
        tierd.start()
        with running(tmp_path / "copy" / "data", remote, *small, "--take-over"):
            begun_s = time.monotonic()
            tiers.until("the second in which it may still commit", lambda: time.monotonic() - begun_s > 1)
            before = set((tmp_path / "bucket").rglob("*.rsm-manifest"))
            producer = confluent_kafka.Producer({"bootstrap.servers": tierd.address, "retries": 0, "log_level": 0})
            for _ in range(3 * tiers.PER_MIB):  # three segments, or fewer when it has learned of it meanwhile
                producer.produce("t", bytes(tiers.RECORD_BYTES), partition=0)
            producer.flush(30)
            tiers.until("the loss", lambda: tierd.status()["claim"] == "lost")
            assert set((tmp_path / "bucket").rglob("*.rsm-manifest")) == before
        assert tierd.stop() == 0
