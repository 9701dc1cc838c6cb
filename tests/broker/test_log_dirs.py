"""DescribeLogDirs: sizes of the local disk, or of both tiers."""

from pathlib import Path

import pytest

from broker.client import Client, batch
from broker.file_tier import FileTier
from broker.running import Running, running
from tierd.wire.api import ApiKey


def shown_bytes(client: Client) -> int:
    (directory,) = client.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=[{"topic": "x", "partitions": (0,)}]).results
    size: int = directory.topics[0].partitions[0].partition_size
    return size


def local_bytes(broker: Running) -> int:
    return broker.call(lambda: broker.log("x").size_bytes)


@pytest.mark.parametrize("with_remote", [False, True])
def test_what_lies_in_the_bucket_is_added_when_asked_for(tmp_path: Path, with_remote: bool) -> None:
    tier = FileTier(tmp_path / "bucket")
    with running(tmp_path, tier, log_dirs_with_remote=with_remote) as broker, Client(broker.address) as client:
        client.create("x")
        client.produce("x", batch(10, size=1000))
        assert broker.run(broker.broker.housekeeping.roll()) == 1
        client.produce("x", batch(1, size=10))
        whole = local_bytes(broker)
        assert shown_bytes(client) == whole
        broker.give_to_tier("x", 10)
        assert local_bytes(broker) < 1000
        assert shown_bytes(client) == (whole if with_remote else local_bytes(broker))
