"""Who goes on from a bucket: a copy on purpose (`--take-over`), and a disk that has fallen behind unseen."""

import json
import shutil
from pathlib import Path

import confluent_kafka
import pytest

from kit import bucket, tiers, traffic
from kit.daemon import Daemon, DidNotStart, running
from kit.proxy import Proxy
from kit.weed import Weed

pytestmark = pytest.mark.e2e

SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1", "--set", "remote.s3.region=us-east-1")
HEALTH = ("--set", "http.address=127.0.0.1:0")


def taking(daemon: Daemon) -> Daemon:
    """The same, but it takes over."""
    return Daemon(daemon.data, daemon.remote, daemon.state, (*daemon.extra, "--take-over"), daemon.env)


def test_a_copy_takes_the_archive_over_and_the_old_owner_says_that_it_has_lost(tmp_path: Path) -> None:
    remote = f"file:{tmp_path / 'bucket'}"
    with running(tmp_path / "data", remote, *SMALL) as tierd:
        sent = tiers.fill(tierd, "t", 2)
        tierd.stop()
        for name in ("data", "data.tierd"):
            shutil.copytree(tmp_path / name, tmp_path / "copy" / name)
        tierd.start()
        sent += tiers.fill(tierd, "t", 2, start=len(sent))
        tiers.copy(tierd, roll=True)
        copy = Daemon(tmp_path / "copy" / "data", remote, None, SMALL)
        assert "--take-over" in tiers.refused(copy)
        taker = taking(copy)
        try:
            taker.start()
            said = taker.log.read_text()
            assert "the archive is taken over" in said
            assert "epoch 1" in said, "whose claim it was"
            assert tierd.verb("evict", expect=5).returncode == 5
            assert tierd.status()["claim"] == "lost"
            assert "the bucket has another owner now: Produce is refused" in tierd.log.read_text()
            assert tierd.stop() == 0
            tiers.read_back(taker, "t", sent)
            sent += tiers.fill(taker, "t", 1, start=len(sent))
            tiers.copy(taker, roll=True)
            tiers.evict(taker)
            tiers.read_back(taker, "t", sent)
            assert taker.stop() == 0
        finally:
            taker.kill()
        assert "claimed by another data directory" in tiers.refused(Daemon(tierd.data, remote, None, SMALL))
        with running(copy.data, remote, *SMALL) as again:  # from now on it is the owner
            tiers.read_back(again, "t", sent)


@pytest.mark.full
def test_a_take_over_needs_a_bucket_that_answers(tmp_path: Path) -> None:
    sets = ("--set", "remote.s3.endpoint=http://127.0.0.1:9")
    env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    daemon = Daemon(tmp_path / "data", "s3://nobody/tier/", None, sets, env)
    assert "no partition lies there" in tiers.refused(taking(daemon))
    try:
        daemon.start()
        assert traffic.error_of_one(daemon.address, "t") is None
        daemon.stop()
    finally:
        daemon.kill()
    with pytest.raises(DidNotStart) as caught:
        taking(daemon).start()
    assert caught.value.exit_code == 5
    assert "cannot be taken over now" in caught.value.said


def _become(target: Path, source: Path) -> None:
    """*target* stays the same directory (the same inode), with what is in *source*."""
    for path in target.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.mark.s3
@pytest.mark.parametrize("catalog", [pytest.param("lost", marks=pytest.mark.full), "kept"])
def test_a_disk_that_fell_behind_takes_no_appends_before_the_bucket_has_said_how_far_it_is(
    tmp_path: Path, catalog: str, weed_server: Weed, line: Proxy
) -> None:
    remotely = bucket.in_weed(weed_server, f"fallen-behind-{catalog}")
    sets = (*SMALL, *HEALTH, "--set", f"remote.s3.endpoint={line.endpoint}")
    with running(tmp_path / "data", remotely.url, *sets, env=remotely.env) as tierd:
        sent = tiers.fill(tierd, "t", 2)
        tierd.stop()
        shutil.copytree(tmp_path / "data", tmp_path / "older")
        tierd.start()
        sent += tiers.fill(tierd, "t", 2, start=len(sent))
        tiers.copy(tierd, roll=True)
        tierd.stop()
        _become(tmp_path / "data", tmp_path / "older")
        for stale in (tmp_path / "data.tierd").glob("catalog.sqlite*") if catalog == "lost" else ():
            stale.unlink()
        line.cut()
        tierd.start()
        assert tierd.status()["claim"] == "pending"
        assert traffic.error_of_one(tierd.address, "t") == confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR
        health = json.loads(tiers.http(tierd, "/health"))
        assert "t-0: takes no appends until the bucket has answered" in health["reasons"]
        tiers.read_back(tierd, "t", sent[: tierd.partition("t")["log_end"]])
        assert traffic.error_of_one(tierd.address, "new") is None, "of what is new here the bucket can have nothing"
        line.join()
        tiers.until("the bucket's answer", lambda: tierd.status()["claim"] == "held")
        tiers.until("the bucket's end", lambda: tierd.partition("t")["log_end"] == len(sent))
        sent += tiers.fill(tierd, "t", 1, start=len(sent))
        tiers.read_back(tierd, "t", sent)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        tiers.read_back(tierd, "t", sent)
        assert tierd.stop() == 0


@pytest.mark.s3
def test_records_that_the_bucket_does_not_know_are_refused_and_set_aside_on_purpose(
    tmp_path: Path, weed_server: Weed, line: Proxy
) -> None:
    remotely = bucket.in_weed(weed_server, "two-histories")
    sets = (*SMALL, "--set", f"remote.s3.endpoint={line.endpoint}")
    with running(tmp_path / "data", remotely.url, *sets, env=remotely.env) as tierd:
        sent = tiers.fill(tierd, "t", 2)
        tiers.copy(tierd, roll=True)
        tierd.stop()
        for name in ("data", "data.tierd"):
            shutil.copytree(tmp_path / name, tmp_path / "older" / name)
        tierd.start()
        first = len(sent)
        sent += tiers.fill(tierd, "t", 2, start=len(sent))
        tiers.copy(tierd, roll=True)
        tierd.stop()
        for name in ("data", "data.tierd"):  # both come back from a backup, and the bucket is away
            _become(tmp_path / name, tmp_path / "older" / name)
        line.cut()
        tierd.start()
        traffic.produce_confluent(tierd.address, "t", traffic.stream("strange", first, first + 20, 100))
        line.join()
        tiers.until("the loss", lambda: tierd.status()["claim"] == "lost")
        tierd.stop()
        for _ in range(2):
            said = tiers.refused(tierd)
            assert f"t-0 from offset {first}" in said
            assert "--take-over" in said
        taker = taking(tierd)
        try:
            taker.start()
            assert taker.partition("t")["log_end"] == len(sent)
            tiers.read_back(taker, "t", sent)
            assert list((tmp_path / "data.tierd" / "set-aside" / "t-0").glob("*.log"))
            sent += tiers.fill(taker, "t", 1, start=len(sent))
            tiers.copy(taker, roll=True)
            taker.stop()
        finally:
            taker.kill()
        tierd.start()
        tiers.read_back(tierd, "t", sent)
        assert tierd.stop() == 0
