"""Verbs that only ask, beside a daemon and without one: what retention will let go, why a segment is where it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kit.cli import tierd
from kit.daemon import Daemon, running
from kit.tiers import alter, copy, create, fill, until

pytestmark = pytest.mark.e2e

LIMITS = {"retention_bytes": "2500000", "local_retention_bytes": "1200000"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    """Topic `t`: five segments in the bucket and on the disk, and limits that no pass has looked at yet. `local` is not
    tiered."""
    folder = tmp_path_factory.mktemp("asking")
    bucket = folder / "bucket"
    sets = ("log.retention.check.interval.ms=1d", "remote.head.interval.ms=100")
    with running(folder / "data", f"file:{bucket}", *(word for one in sets for word in ("--set", one))) as daemon:
        create(daemon, "t", segment_bytes="1048576", local_retention_ms="-1")
        create(daemon, "local", segment_bytes="1048576", remote_storage_enable="false", retention_bytes="1200000")
        fill(daemon, "t", 4)
        fill(daemon, "local", 3)
        copy(daemon, roll=True)
        alter(daemon, "t", **LIMITS)  # not sooner: what is copied is looked at at once
        until("the settings", lambda: any(b"2500000" in one.read_bytes() for one in bucket.glob("tierd/topics/t-*")))
        yield daemon, bucket


def why(capsys: pytest.CaptureFixture[str], daemon: Daemon, partition: str, *words: str) -> dict[str, Any] | None:
    ended = tierd(capsys, "why", partition, *words, "--json", *daemon.place)
    assert ended.code == 0, ended.err
    found: dict[str, Any] | None = json.loads(ended.out)["why"]
    return found


def test_the_reason_is_named_with_the_fact_behind_it(
    place: tuple[Daemon, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    daemon, _ = place
    assert why(capsys, daemon, "t-0") is None, "all of it is copied"
    on_disk, in_bucket = why(capsys, daemon, "t-0", "--local"), why(capsys, daemon, "t-0", "--remote")
    assert on_disk is not None
    assert in_bucket is not None
    assert (on_disk["reason"], on_disk["detail"]) == ("due", "local.retention.bytes lets it go")
    assert (in_bucket["reason"], in_bucket["start"]) == ("due", 0)
    not_tiered = why(capsys, daemon, "local-0")
    assert not_tiered is not None
    assert not_tiered["reason"] == "untiered"

    create(daemon, "tx", segment_bytes="1048576")
    producer = Producer({"bootstrap.servers": daemon.address, "transactional.id": "writer-7"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(30):
        producer.produce("tx", bytes(60_000))
    producer.flush(60)
    pinned = until("a closed segment", lambda: (found := why(capsys, daemon, "tx-0")) and found["stop"] < 30 and found)
    assert (pinned["reason"], pinned["start"]) == ("pinned", 0)
    assert "transactional id writer-7, open since 20" in pinned["detail"]
    assert "end the transaction" in pinned["next"]
    ended = tierd(capsys, "why", "tx-0", "--local", *daemon.place)
    assert [line.split(":")[0] for line in ended.out.splitlines()] == ["tx-0", "reason", "next"]
    assert "reason: pinned: it is not in the bucket: " in ended.out
    producer.abort_transaction(60)
    assert tierd(capsys, "why", "nothing-0", *daemon.place).code == 2


def rows(document: dict[str, Any], topic: str, tier: str) -> list[tuple[int, int, str]]:
    return [
        (row["start"], row["stop"], row["rule"])
        for one in document["partitions"]
        if one["topic"] == topic
        for row in one["rows"]
        if row["tier"] == tier
    ]


def test_a_daemon_its_files_and_the_bucket_alone_say_the_same(
    place: tuple[Daemon, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    daemon, bucket = place

    def asked(*where: str | Path) -> dict[str, Any]:
        ended = tierd(capsys, "retention", "--dry-run", "--json", *where)
        assert ended.code == 0, ended.err
        document: dict[str, Any] = json.loads(ended.out)
        return document

    beside = asked(*daemon.place)
    assert beside["running"]
    assert beside["trouble"] is None
    assert daemon.stop() == 0
    without = asked(*daemon.place)
    assert not without["running"]
    stopped = why(capsys, daemon, "t-0", "--local")
    assert stopped is not None
    assert (stopped["reason"], stopped["detail"]) == ("unknown", "tierd is not running")
    alone = asked("--remote", f"file:{bucket}")
    assert {one["topic"] for one in alone["partitions"]} == {"t"}

    (found,) = (one for one in beside["partitions"] if one["topic"] == "t")
    assert found["log_start_then"] > 0
    assert found["local_bytes"] > found["log_bytes"] > 0
    for topic, tier in (("t", "local"), ("t", "remote"), ("local", "local")):
        assert rows(beside, topic, tier) == rows(without, topic, tier) != []
    assert {rule for _, _, rule in rows(beside, "t", "local")} == {"retention.bytes", "local.retention.bytes"}
    assert {rule for _, _, rule in rows(beside, "local", "local")} == {"retention.bytes"}
    assert rows(alone, "t", "remote") == rows(beside, "t", "remote")
