"""Data and state that exist twice, or come back from a backup: one bucket keeps one history, and nothing is lost."""

import shutil
from pathlib import Path

import confluent_kafka
import pytest

from kit import bucket, tiers, traffic
from kit.daemon import Daemon, running
from kit.proxy import Proxy
from kit.weed import Weed

pytestmark = [pytest.mark.e2e, pytest.mark.s3]

SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1", "--set", "remote.s3.region=us-east-1")


def at(endpoint: str) -> tuple[str, ...]:
    return (*SMALL, "--set", f"remote.s3.endpoint={endpoint}")


def test_a_copied_host_that_begins_while_the_bucket_is_away_loses(
    tmp_path: Path, weed_server: Weed, line: Proxy
) -> None:
    remotely = bucket.in_weed(weed_server, "copied-host")
    with running(tmp_path / "data", remotely.url, *at(weed_server.endpoint), env=remotely.env) as tierd:
        sent = tiers.fill(tierd, "t", 3)
        tiers.copy(tierd, roll=True)
        sent += tiers.fill(tierd, "t", 1, start=len(sent))
        assert tierd.stop() == 0
        for name in ("data", "data.tierd"):
            shutil.copytree(tmp_path / name, tmp_path / "copy" / name)
        line.cut()
        copy = Daemon(tmp_path / "copy" / "data", remotely.url, None, at(line.endpoint), remotely.env)
        tierd.start()
        try:
            copy.start()
            assert copy.status()["claim"] == "pending"
            strange = traffic.stream("strange", len(sent), len(sent) + 20, tiers.RECORD_BYTES)
            traffic.produce_confluent(copy.address, "t", strange)
            assert copy.partition("t")["waiting"]["reason"] == "claim"
            line.join()
            tiers.until("the copy knows that it has lost", lambda: copy.status()["claim"] == "lost")
            assert "the bucket has another owner now: Produce is refused" in copy.log.read_text()
            assert traffic.error_of_one(copy.address, "t") == confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR
            verb = copy.verb("copy", "--wait", "--roll", expect=5)
            assert "claimed by" in verb.stderr
            copy.verb("evict", expect=5)
            assert copy.partition("t")["local_start"] == 0
            assert copy.stop() == 0
        finally:
            copy.kill()
        sent += tiers.fill(tierd, "t", 1, start=len(sent))
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        assert tierd.status()["claim"] == "held"
        row = tierd.partition("t")
        assert row["local_start"] == row["copied_to"] == row["log_end"] == len(sent)
        tiers.read_back(tierd, "t", sent)
        committed = bucket.ranges(tiers.state_of(tierd), "t")
        assert [base for base, _ in committed] == [0, *(stop for _, stop in committed[:-1])]
        manifests = [key for key in remotely.objects() if key.endswith(".rsm-manifest")]
        assert len(manifests) == len(committed), "one object for each range"
        assert bucket.unowned(remotely, tiers.state_of(tierd)) == []


def test_an_older_state_directory_forgets_nothing_that_the_bucket_has(tmp_path: Path) -> None:
    folder = tmp_path / "bucket"
    quick = ("--set", "log.retention.check.interval.ms=200", "--set", "remote.head.interval.ms=200")
    with running(tmp_path / "data", f"file:{folder}", *SMALL, *quick) as tierd:
        sent = {name: tiers.fill(tierd, name, 2) for name in ("old", "gone", "short")}
        tiers.copy(tierd, roll=True)
        assert tierd.stop() == 0
        backup = shutil.copytree(tmp_path / "data.tierd", tmp_path / "backup")

        tierd.start()
        sent["new"] = tiers.fill(tierd, "new", 2)
        sent["old"] += tiers.fill(tierd, "old", 2, start=len(sent["old"]))
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        tiers.delete(tierd, "gone")
        tiers.alter(tierd, "short", retention_bytes="1048576")
        log_start = tiers.until("retention", lambda: tierd.partition("short")["log_start"] or None)
        sent["old"] += tiers.fill(tierd, "old", 1, start=len(sent["old"]))
        before = {name: tierd.partition(name) for name in ("old", "new", "short")}
        tiers.until("the tombstone", lambda: any(_deleted(folder, "gone")))
        tiers.until("the head", lambda: tiers.head(folder, "short").get("log_start") == log_start)
        assert tierd.stop() == 0

        shutil.rmtree(tmp_path / "data.tierd")
        backup.rename(tmp_path / "data.tierd")
        tierd.start()
        assert tierd.status()["claim"] == "held"
        for name in ("old", "new", "short"):
            same = ("log_start", "local_start", "log_end", "remote_bytes")
            row = tierd.partition(name)
            assert {k: row[k] for k in same} == {k: before[name][k] for k in same}, name
        tiers.read_back(tierd, "old", sent["old"])
        tiers.read_back(tierd, "new", sent["new"])
        tiers.read_back(tierd, "short", sent["short"][log_start:])
        assert "gone" not in tiers.topics(tierd), "its tombstone lies in the bucket"
        more = tiers.fill(tierd, "old", 1, start=len(sent["old"]))
        tiers.copy(tierd, roll=True)
        tiers.read_back(tierd, "old", sent["old"] + more)
        committed = bucket.ranges(tiers.state_of(tierd), "old")
        assert [base for base, _ in committed] == [0, *(stop for _, stop in committed[:-1])]
        assert tierd.stop() == 0


def _deleted(folder: Path, topic: str) -> list[bool]:
    return [b'"deleted_ms":null' not in path.read_bytes() for path in folder.glob(f"tierd/topics/{topic}-*.json")]
