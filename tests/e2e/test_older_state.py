"""A state directory that comes back from a backup, and what of the broker's topics the bucket hears of."""

import shutil
from pathlib import Path

import confluent_kafka
import pytest

from kit import tiers
from kit.daemon import running

pytestmark = pytest.mark.e2e

SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1")
ID_CHARS = 22
QUICK = ("--set", "log.retention.check.interval.ms=200", "--set", "remote.head.interval.ms=200")


@pytest.mark.parametrize("kept", ["older", "none"])
def test_newer_settings_of_a_topic_come_back_from_the_bucket(tmp_path: Path, kept: str) -> None:
    folder = tmp_path / "bucket"
    with running(tmp_path / "data", f"file:{folder}", *SMALL, *QUICK) as tierd:
        tiers.create(tierd, "kept", retention_bytes="1048576")
        tiers.create(tierd, "short", retention_bytes="1048576")
        tiers.copy(tierd)
        assert tierd.stop() == 0
        shutil.copytree(tmp_path / "data.tierd", tmp_path / "backup")
        tierd.start()
        tiers.alter(tierd, "kept", retention_bytes="-1")
        tiers.until("the topic file", lambda: b'"retention.bytes":"-1"' in _file(folder, "kept"))
        sent = tiers.fill(tierd, "kept", 3)
        tiers.copy(tierd, roll=True)
        assert tierd.stop() == 0

        shutil.rmtree(tmp_path / "data.tierd")
        if kept == "older":
            shutil.copytree(tmp_path / "backup", tmp_path / "data.tierd")
        tierd.start()
        assert "older settings of a topic than the bucket" in tierd.log.read_text()
        tiers.fill(tierd, "short", 3)
        tiers.until("retention", lambda: tierd.partition("short")["log_start"] or None)
        assert tierd.partition("kept")["log_start"] == 0
        tiers.read_back(tierd, "kept", sent)
        assert tierd.stop() == 0
        said = tierd.log.read_text().count("older settings of a topic")
        tierd.start()  # the registry has them for good
        tiers.read_back(tierd, "kept", sent)
        assert tierd.log.read_text().count("older settings of a topic") == said


def _file(folder: Path, topic: str) -> bytes:
    """Of the topic in the bucket; empty when there is none yet."""
    return b"".join(path.read_bytes() for path in folder.glob(f"tierd/topics/{topic}-*.json"))


def test_a_lost_state_directory_without_the_bucket_says_what_is_missing(tmp_path: Path) -> None:
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        tiers.fill(tierd, "t", 2)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        start = tierd.partition("t")["local_start"]
        assert start > 0
        assert tierd.stop() == 0
    shutil.rmtree(tmp_path / "data.tierd")
    with running(tmp_path / "data") as bare:
        said = bare.log.read_text()
        assert "partitions begin above offset 0" in said
        assert f"t-0 from {start}" in said
        assert bare.stop() == 0


def test_only_tiered_partitions_have_heads_and_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "bucket"
    with running(tmp_path / "data", f"file:{folder}", *SMALL, *QUICK) as tierd:
        tiers.fill(tierd, "t", 2)
        tiers.create(tierd, "untiered", remote_storage_enable="false")
        _commit(tierd.address, "t")
        for _ in range(2):
            assert tierd.stop() == 0
            tierd.start()
            tiers.copy(tierd, roll=True)
            epoch = tierd.status()["epoch"]
            tiers.until("the head", lambda epoch=epoch: tiers.head(folder, "t").get("epoch") == epoch)
        assert [path.name[:-ID_CHARS] for path in (folder / "tierd" / "partitions").iterdir()] == ["t-"]


def _commit(address: str, topic: str) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "g"})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 5)], asynchronous=False)
    finally:
        consumer.close()
