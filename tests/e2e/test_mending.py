"""A killed daemon whose disk was harmed meanwhile: what the bucket has comes from there, and nothing is lost."""

import os
from pathlib import Path

import pytest

from kit import bucket, tiers, traffic
from kit.daemon import Daemon, running
from tierd.remote.crc import crc32c
from tierd.storage import names
from tierd.storage.epochs import parse_epochs
from tierd.storage.snapshot import parse_snapshot

pytestmark = pytest.mark.e2e

RECORDS = 4000
SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1")
HEALTH = ("--set", "http.address=127.0.0.1:0")


def logs_of(daemon: Daemon, topic: str) -> list[Path]:
    return sorted((daemon.data / f"{topic}-0").glob("*.log"))


def test_a_torn_middle_is_read_from_the_bucket(tmp_path: Path) -> None:
    sent = list(traffic.stream("torn", 0, RECORDS, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "torn", sent)
        tiers.copy(tierd)
        tierd.kill()
        second = logs_of(tierd, "torn")[1]
        raw = bytearray(second.read_bytes())
        raw[len(raw) // 2] ^= 1
        second.write_bytes(raw)
        (tierd.data / names.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)  # everything is read again
        tierd.start()
        row = tierd.partition("torn")
        assert row["gaps"] == []
        assert row["local_start"] == int(logs_of(tierd, "torn")[0].stem) > 0
        assert "lost offsets are in the bucket" in tierd.log.read_text()
        assert traffic.consume_confluent(tierd.address, "torn", 0, RECORDS) == sent
        assert tierd.stop() == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_torn_older_segment_is_read_from_the_bucket(tmp_path: Path, clean: bool) -> None:
    """It lies below the recovery point: no start reads it again."""
    sent = list(traffic.stream("torn", 0, RECORDS, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "torn", sent)
        tiers.copy(tierd)
        assert tierd.stop() == 0
        second = logs_of(tierd, "torn")[1]
        os.truncate(second, second.stat().st_size - 100)
        if not clean:
            (tierd.data / names.CLEAN_SHUTDOWN).unlink()
        tierd.start()
        assert traffic.consume_confluent(tierd.address, "torn", 0, RECORDS) == sent
        tiers.until("nothing counts as lost", lambda: tierd.partition("torn")["gaps"] == [])
        assert tierd.partition("torn")["local_start"] > int(second.stem)
        said = tierd.log.read_text()  # by whoever was first: the copies are looked at, or a reader comes
        assert "the disk has lost records that the bucket has" in said or "lost offsets are in the bucket" in said
        assert tierd.stop() == 0


def test_a_segment_that_is_gone_without_a_trace_is_read_from_the_bucket(tmp_path: Path) -> None:
    """Nothing on the disk tells it from a hole that compaction has left: the copies do."""
    sent = list(traffic.stream("gone", 0, RECORDS, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "gone", sent)
        tiers.copy(tierd)
        assert tierd.stop() == 0
        second = logs_of(tierd, "gone")[1]
        for path in second.parent.glob(f"{second.stem}.*"):
            path.unlink()
        tierd.start()
        tiers.until("the bucket's turn", lambda: tierd.partition("gone")["local_start"] > int(second.stem))
        assert traffic.consume_confluent(tierd.address, "gone", 0, RECORDS) == sent
        assert tierd.partition("gone")["log_start"] == 0
        assert tierd.stop() == 0


def test_without_a_bucket_what_is_lost_is_shown(tmp_path: Path) -> None:
    sent = list(traffic.stream("torn", 0, RECORDS, 1000))
    with running(tmp_path / "data", None, *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "torn", sent)
        tierd.kill()
        second = logs_of(tierd, "torn")[1]
        raw = bytearray(second.read_bytes())
        raw[len(raw) // 2] ^= 1
        second.write_bytes(raw)
        (tierd.data / names.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
        tierd.start()
        ((start, stop),) = tierd.partition("torn")["gaps"]
        assert 0 < start < stop < tierd.partition("torn")["log_end"] == RECORDS
        assert f"torn-0: offsets {start} to {stop - 1} are lost" in tierd.verb("status").stdout
        assert tierd.stop() == 0
        assert tierd.partition("torn")["gaps"] == [[start, stop]], "without a daemon, too"


def test_forgotten_producers_and_epochs_come_from_the_bucket(tmp_path: Path) -> None:
    sent = list(traffic.stream("gone", 0, RECORDS, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "gone", sent)
        tiers.copy(tierd)
        tiers.evict(tierd)
        folder = tierd.data / "gone-0"
        begun = parse_epochs((folder / names.LEADER_EPOCH_CHECKPOINT).read_bytes())
        tierd.kill()
        known = {entry.producer_id for path in folder.glob("*.snapshot") for entry in parse_snapshot(path.read_bytes())}
        assert known
        for path in folder.glob("*.snapshot"):
            path.unlink()
        (folder / names.LEADER_EPOCH_CHECKPOINT).unlink()
        tierd.start()
        assert "older producers and epochs were taken from the bucket" in tierd.log.read_text()
        assert parse_epochs((folder / names.LEADER_EPOCH_CHECKPOINT).read_bytes())[: len(begun)] == begun
        assert tierd.stop() == 0
        newest = max(folder.glob("*.snapshot"))
        assert {entry.producer_id for entry in parse_snapshot(newest.read_bytes())} == known


def _harm(remotely: bucket.Remotely, key: str, how: str) -> None:
    store = remotely.bucket.store
    raw = store.get(key)
    store.delete([key])
    if how == "truncated":
        store.put(key, raw[: len(raw) // 2], crc32c=crc32c(raw[: len(raw) // 2]))


@pytest.mark.parametrize("how", ["deleted", "truncated"])
@pytest.mark.parametrize("kind", ["file", pytest.param("s3", marks=pytest.mark.s3)])
def test_what_the_bucket_has_lost_is_said_and_copied_again(
    tmp_path: Path, kind: str, how: str, request: pytest.FixtureRequest
) -> None:
    if kind == "file":
        remotely = bucket.in_folder(tmp_path / "bucket")
    else:
        remotely = bucket.in_weed(request.getfixturevalue("weed_server"), f"lost-{how}")
    sets = [item for name, value in remotely.settings.items() for item in ("--set", f"{name}={value}")]
    with running(tmp_path / "data", remotely.url, *SMALL, *HEALTH, *sets, env=remotely.env) as tierd:
        sent = tiers.fill(tierd, "t", 4)
        tiers.copy(tierd, roll=True)
        key = sorted(key for key in remotely.objects() if key.endswith(".log"))[1]
        _harm(remotely, key, how)
        base = int(key.rpartition("/")[2][:20])
        said = tierd.verb("evict", expect=3)
        assert key in said.stderr
        assert key in tierd.log.read_text()
        tiers.read_back(tierd, "t", sent)
        tiers.until("the second copy", lambda: "segment copied again" in tierd.log.read_text())
        tiers.until("nothing lost", lambda: not tierd.status()["problems"])
        tiers.evict(tierd)
        assert tierd.partition("t")["local_start"] > base
        tiers.read_back(tierd, "t", sent)
        assert tierd.stop() == 0
        (tmp_path / "data.tierd" / "catalog.sqlite").unlink()  # who knows the bucket alone reads the same
        tierd.start()
        tiers.read_back(tierd, "t", sent)
        assert tierd.stop() == 0


def test_what_neither_tier_has_is_named(tmp_path: Path) -> None:
    remotely = bucket.in_folder(tmp_path / "bucket")
    with running(tmp_path / "data", remotely.url, *SMALL, *HEALTH) as tierd:
        tiers.fill(tierd, "t", 3)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        key = sorted(key for key in remotely.objects() if key.endswith(".log"))[1]
        _harm(remotely, key, "deleted")
        assert "cannot be read from it" in tierd.verb("evict", expect=3).stderr
        for _ in range(2):
            (problem,) = tierd.status()["problems"]
            assert (problem["kind"], problem["where"]) == ("lost in bucket", "t-0")
            assert "the disk does not have them either" in tiers.http(tierd, "/health")
            assert 'tierd_problems{kind="lost in bucket"} 1.0' in tiers.http(tierd, "/metrics")
            assert tierd.partition("t")["waiting"]["reason"] == "lost"
            assert tierd.stop() == 0
            tierd.start()
