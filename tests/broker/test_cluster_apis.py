"""DescribeCluster, DescribeQuorum and DescribeTopicPartitions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client
from broker.running import Running, running
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

CLUSTER, TOPICS = ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as broker, Client(broker.address) as client:
        for name, partitions in (("a", 3), ("b", 1), ("c", 4)):
            client.create(name, partitions)
        yield broker


@pytest.fixture
def client(broker: Running) -> Iterator[Client]:
    with Client(broker.address) as client:
        yield client


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_one_broker(broker: Running, client: Client, version: int) -> None:
    answer = client.call(CLUSTER, version, include_cluster_authorized_operations=False)
    assert answer.error_code == ErrorCode.NONE
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port) == (1, *broker.address)
    assert (answer.controller_id, answer.cluster_id) == (1, broker.directories[0].cluster_id)
    assert answer.cluster_authorized_operations == -(1 << 31)
    answer = client.call(CLUSTER, version, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096  # as a Kafka without an authorizer


def test_there_are_no_controllers_to_speak_to(client: Client) -> None:
    for kind, error in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        answer = client.call(CLUSTER, 2, endpoint_type=kind)
        assert (answer.error_code, answer.brokers) == (error, ())


def quorum(client: Client, version: int, *asked: tuple[str, int]) -> Any:
    topics = [{"topic_name": name, "partitions": [{"partition_index": number}]} for name, number in asked]
    return client.call(ApiKey.DESCRIBE_QUORUM, version, topics=topics)


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_one_node(broker: Running, client: Client, version: int) -> None:
    answer = quorum(client, version, ("__cluster_metadata", 0))
    (topic,) = answer.topics
    (part,) = topic.partitions
    assert (answer.error_code, topic.topic_name, part.error_code) == (0, "__cluster_metadata", 0)
    assert (part.leader_id, [voter.replica_id for voter in part.current_voters], part.observers) == (1, [1], ())
    if version >= 2:
        (node,) = answer.nodes
        (listener,) = node.listeners
        assert (node.node_id, listener.name, listener.host, listener.port) == (1, "PLAINTEXT", *broker.address)


@pytest.mark.parametrize("asked", [[("a", 0)], [("__cluster_metadata", 1)], [("a", 0), ("__cluster_metadata", 0)]])
def test_nothing_else_has_a_quorum(client: Client, asked: list[tuple[str, int]]) -> None:
    answer = quorum(client, 1, *asked)
    codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    assert (answer.error_code, codes) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(asked))


def described(client: Client, *names: str, limit: int = 2000, after: Any = None) -> Any:
    return client.call(
        TOPICS, 0, topics=[{"name": name} for name in names], response_partition_limit=limit, cursor=after
    )


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics]


def test_topics_are_described_as_kafka_does(broker: Running, client: Client) -> None:
    answer = described(client, "b")
    (topic,) = answer.topics
    (part,) = topic.partitions
    assert (topic.error_code, topic.is_internal, topic.topic_authorized_operations) == (0, False, 3576)
    assert topic.topic_id.bytes == broker.partitions.topic("b").id.raw  # type: ignore[union-attr]
    assert (part.error_code, part.leader_id, part.leader_epoch) == (0, 1, broker.log("b").leader_epoch)
    assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ((1,), (1,), ())
    assert (part.eligible_leader_replicas, part.last_known_elr, answer.next_cursor) == ((), (), None)


def test_those_that_are_not_there_are_named(client: Client) -> None:
    answer = described(client, "zz", "a", "no such/name")
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("no such/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("names", [(), ("c", "b", "a")])
@pytest.mark.parametrize("limit", range(-1, 10))
def test_page_by_page_everything_comes_once(client: Client, names: tuple[str, ...], limit: int) -> None:
    seen: list[tuple[str, int]] = []
    after, pages = None, 0
    while True:
        answer = described(client, *names, limit=limit, after=after)
        found = [(name, part) for name, parts in shown(answer) for part in parts]
        assert 0 < len(found) <= max(limit, 1)
        seen, pages = seen + found, pages + 1
        if answer.next_cursor is None:
            break
        after = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}
    assert seen == [(name, part) for name, count in (("a", 3), ("b", 1), ("c", 4)) for part in range(count)]
    assert pages <= -(-8 // max(limit, 1))


def test_a_topic_that_went_between_two_pages_is_passed_over(client: Client) -> None:
    assert shown(described(client, after={"topic_name": "bb", "partition_index": 2})) == [("c", [0, 1, 2, 3])]


def test_a_cursor_that_makes_no_sense_is_refused(client: Client) -> None:
    for after in ({"topic_name": "b", "partition_index": 0}, {"topic_name": "a", "partition_index": -1}):
        assert [topic.error_code for topic in described(client, "a", "c", after=after).topics] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
