"""A topic is deleted while its bucket is away: clients see it go at once, the bucket when it is back, whatever stops
in between."""

from pathlib import Path

import pytest

from kit import bucket, tiers, traffic
from kit.daemon import running
from tierd.remote.topics import list_topic_keys, read_topic

pytestmark = pytest.mark.e2e

SETS = (
    *("--set", "segment.bytes=1MiB"),
    *("--set", "log.retention.check.interval.ms=200"),
    *("--set", "remote.head.interval.ms=200"),
    *("--set", "file.delete.delay.ms=0"),
    *("--set", "auto.create.topics.enable=false"),
)


def test_a_topic_deleted_without_its_bucket(tmp_path: Path) -> None:
    folder, away = tmp_path / "bucket", tmp_path / "away"
    remotely = bucket.in_folder(folder)
    with running(tmp_path / "data", remotely.url, *SETS) as tierd:
        state = tiers.state_of(tierd)
        for name, delay_ms in (("soon", "1000"), ("late", "3600000"), ("stays", "0")):
            tiers.create(tierd, name, tierd_delete_delay_ms=delay_ms)
            tiers.fill(tierd, name, 2)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        there = {name: tiers.bases(folder, name) for name in ("soon", "late", "stays")}
        folder.rename(away)

        for name in ("soon", "late"):
            tiers.delete(tierd, name)
        assert {"soon", "late"}.isdisjoint(tiers.topics(tierd))
        tiers.until("the disk lets it go", lambda: not list(tierd.data.glob("soon*")))
        tiers.create(tierd, "soon")
        again = list(traffic.stream("again", 0, 10, 100))
        traffic.produce_confluent(tierd.address, "soon", again)
        assert tierd.stop(timeout_s=20) == 0
        assert {name: tiers.bases(away, name) for name in there} == there

        away.rename(folder)
        tierd.start()
        assert "late" not in tiers.topics(tierd)
        tiers.until("the tombstones", lambda: _tombstones(remotely) == {"soon", "late"})
        tierd.kill()
        assert tiers.bases(folder, "late") == there["late"]
        tierd.start()
        tiers.until("its objects leave after the delay", lambda: not tiers.bases(folder, "soon", ".log"))
        tiers.copy(tierd, roll=True)
        tiers.until("nothing is left of it but its successor", lambda: _heads(folder, "soon") == 1)
        assert tiers.bases(folder, "soon") == [0]
        tiers.read_back(tierd, "soon", again)
        assert (tiers.bases(folder, "late"), tiers.bases(folder, "stays")) == (there["late"], there["stays"])
        assert tierd.partition("stays")["copied_to"] == 2 * tiers.PER_MIB
        assert bucket.unowned(remotely, state) == []
        assert tierd.stop() == 0


def _tombstones(remotely: bucket.Remotely) -> set[str]:
    store, keys = remotely.bucket.store, remotely.bucket.keys
    files = [read_topic(store, keys, key.topic, key.topic_id) for key in list_topic_keys(store, keys)]
    return {file.topic for file in files if file is not None and file.deleted_ms is not None}


def _heads(folder: Path, topic: str) -> int:
    return len(list(folder.glob(f"tierd/partitions/{topic}-*/0.json")))
