"""ElectLeaders, ListConfigResources and OffsetForLeaderEpoch, in every version that is served."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running, running
from kit.golden import golden
from tierd.wire.api import API, ApiKey
from tierd.wire.errors import ErrorCode

ELECT, RESOURCES, EPOCHS = ApiKey.ELECT_LEADERS, ApiKey.LIST_CONFIG_RESOURCES, ApiKey.OFFSET_FOR_LEADER_EPOCH
TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16


def versions(key: ApiKey) -> range:
    return range(API[key].first, API[key].last + 1)


@pytest.mark.parametrize("version", versions(ELECT))
def test_no_election_is_needed(client: Client, version: int) -> None:
    client.create("t", 2)
    asked = [{"topic": "t", "partitions": (0, 1, 2)}, {"topic": "u", "partitions": (0,)}]
    answer = client.call(ELECT, version, election_type=0, topic_partitions=asked, timeout=1000)
    codes = [part.error_code for row in answer.replica_election_results for part in row.partition_result]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED, unknown, unknown]
    everything = client.call(ELECT, version, election_type=0, topic_partitions=None, timeout=1000)
    assert everything.replica_election_results == (), "as in Kafka: those that need none are not told of"
    if version:
        odd = client.call(ELECT, version, election_type=7, topic_partitions=asked, timeout=1000)
        assert odd.error_code == ErrorCode.INVALID_REQUEST


def test_what_has_settings_is_listed(client: Client) -> None:
    client.create("t")

    def listed(*types: int) -> set[tuple[str, int]]:
        answer = client.call(RESOURCES, 1, resource_types=types)
        assert answer.error_code == ErrorCode.NONE
        return {(row.resource_name, row.resource_type) for row in answer.config_resources}

    assert listed() == listed(TOPIC, BROKER) == {("t", TOPIC), ("1", BROKER)}
    assert listed(CLIENT_METRICS) == set()
    assert client.call(RESOURCES, 0).config_resources == ()
    assert client.call(RESOURCES, 1, resource_types=(99,)).error_code == ErrorCode.UNSUPPORTED_VERSION


def ends(client: Client, version: int, topic: str, epoch: int, current: int = -1) -> Any:
    part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = client.call(EPOCHS, version, replica_id=-1, topics=[{"topic": topic, "partitions": [part]}])
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", versions(EPOCHS))
def test_the_last_epoch_ends_where_the_log_ends(broker: Running, client: Client, version: int) -> None:
    client.create("t")
    client.produce("t", batch(3))
    epoch = broker.log("t").leader_epoch
    found = ends(client, version, "t", epoch, epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, epoch, 3)
    assert ends(client, version, "t", epoch + 1).end_offset == -1
    assert ends(client, version, "t", epoch, epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ends(client, version, "u", epoch).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_epochs_that_kafka_wrote_end_where_the_next_begins(tmp_path: Path) -> None:
    shutil.copytree(golden("kafka") / "final", tmp_path / "data")
    with running(tmp_path) as broker, Client(broker.address) as client:
        topic = "txn"
        entries = broker.log(topic).epochs
        assert len(entries) > 2
        for entry, later in itertools.pairwise(entries):
            found = ends(client, 4, topic, entry.epoch)
            assert (found.leader_epoch, found.end_offset) == (entry.epoch, later.start_offset)
        between = ends(client, 4, topic, entries[1].epoch - 1)
        assert (between.leader_epoch, between.end_offset) == (entries[0].epoch, entries[1].start_offset)
