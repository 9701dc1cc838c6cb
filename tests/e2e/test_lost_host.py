"""A host is lost with all its disks: another one goes on from the bucket alone (`serve --recover`)."""

import os
import re
import shutil
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from kit import bucket, tiers, traffic
from kit.bucket import Remotely
from kit.daemon import Daemon
from kit.weed import Weed
from tierd.remote.groups import parse_groups
from tierd.tiering.group_files import newest_groups

pytestmark = pytest.mark.e2e

QUICK = (
    "remote.head.interval.ms=100",
    "remote.groups.interval.ms=100",
    "segment.bytes=1MiB",
    "group.initial.rebalance.delay.ms=0",
)


def host(place: Path, name: str, remotely: Remotely, *flags: str) -> Daemon:
    settings = [*QUICK, *(f"{key}={value}" for key, value in remotely.settings.items())]
    sets = [word for setting in settings for word in ("--set", setting)]
    return Daemon(place / name, remotely.url, None, (*sets, *flags), remotely.env)


def commit(daemon: Daemon, group: str, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": daemon.address, "group.id": group})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset, "so far")], asynchronous=False)
    finally:
        consumer.close()


def go_on(daemon: Daemon, group: str, topic: str, count: int) -> list[int]:
    """The offsets of the next *count* records that the group gets."""
    settings = {"bootstrap.servers": daemon.address, "group.id": group, "auto.offset.reset": "error"}
    consumer = confluent_kafka.Consumer(settings)
    got: list[int] = []

    def more() -> bool:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            got.append(message.offset())
        return len(got) == count

    try:
        consumer.subscribe([topic])
        tiers.until(f"{count} records for {group}", more)
    finally:
        consumer.close()
    return got


def config(daemon: Daemon, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": daemon.address})
    found = admin.describe_configs([resource])[resource].result(60)
    return {name: entry.value for name, entry in found.items()}


def kept(remotely: Remotely) -> set[str]:
    """The groups of the newest group file."""
    raw = newest_groups(remotely.bucket)
    return set() if raw is None else {group.group for group in parse_groups(raw, "the newest").groups}


def fall_silent(folder: Path) -> None:
    """As if the owner had written nothing for an hour."""
    for path in (folder / "tierd").rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - 3600,) * 2)


def lose(daemon: Daemon) -> None:
    daemon.kill()
    shutil.rmtree(daemon.data)
    shutil.rmtree(tiers.state_of(daemon))


@pytest.mark.parametrize("kind", ["file", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.full])])
def test_another_host_goes_on_where_the_bucket_ends(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "file":
        remotely = bucket.in_folder(tmp_path / "bucket")
    else:
        server: Weed = request.getfixturevalue("weed_server")
        remotely = bucket.in_weed(server, "lost-host")
    first = host(tmp_path, "first", remotely)
    second = host(tmp_path, "second", remotely)
    try:
        first.start()
        tiers.create(first, "t", retention_ms="-1", max_message_bytes="2000000")
        tiers.create(first, "empty", cleanup_policy="compact")
        tiers.create(first, "gone")
        sent = tiers.fill(first, "t", 2)
        tiers.copy(first, roll=True)
        tiers.delete(first, "gone")
        lost = traffic.stream("lost", len(sent), len(sent) + 20, 100)  # never copied
        traffic.produce_confluent(first.address, "t", lost)
        commit(first, "slow", "t", len(sent) - 10)
        commit(first, "quick", "t", len(sent) + 20)
        tiers.until("the group file", lambda: kept(remotely) == {"slow", "quick"})
        tiers.until("the tombstone", lambda: not first.status()["problems"] and "gone" not in tiers.topics(first))
        before, epoch = config(first, "t"), first.status()["epoch"]
        lose(first)

        if remotely.folder is not None:
            assert "`tierd serve --recover` goes on" in tiers.refused(second)
            fall_silent(remotely.folder)
            second.extra = host(tmp_path, "", remotely, "--recover").extra
        else:
            second.extra = host(tmp_path, "", remotely, "--recover", "--take-over").extra
        second.start()
        told = second.log.read_text()
        assert "consumer groups taken from the bucket groups=2 offsets=2" in told
        assert second.status()["set_aside"] == 0
        assert not re.findall(r"(?:warning|error) +(?:storage|broker)\..*", told), "nothing was lost on this disk"
        assert tiers.topics(second) >= {"t", "empty"}
        assert "gone" not in tiers.topics(second)
        assert config(second, "t") == before
        assert config(second, "empty")["cleanup.policy"] == "compact"
        row = second.partition("t")
        assert (row["log_start"], row["local_start"], row["log_end"]) == (0, len(sent), len(sent))
        assert second.status()["epoch"] > epoch
        tiers.read_back(second, "t", sent)

        sent += tiers.fill(second, "t", 2, start=len(sent))
        row = second.partition("t")
        assert go_on(second, "slow", "t", 15) == list(range(row["copied_to"] - 10, row["copied_to"] + 5))
        assert go_on(second, "quick", "t", 5) == list(range(row["copied_to"], row["copied_to"] + 5))
        tiers.read_back(second, "t", sent)
        assert second.stop() == 0
    finally:
        first.kill()
        second.kill()
