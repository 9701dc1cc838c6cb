"""Verbs that only ask, beside a daemon and without one: what retention will let go."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
