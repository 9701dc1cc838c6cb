"""A partition named twice in one request: what a Kafka 4.3.1 answered to the same, and where tierd refuses instead."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from broker.file_tier import FileTier
from broker.running import Running, running
from tierd.broker.fetch_pass import MOST_REMOTE, ROWS_A_TURN
from tierd.wire.errors import ErrorCode
from tierd.wire.fetch import MOST_ROWS

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "100"}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as broker:
        yield broker


@pytest.fixture
def client(started: Running) -> Iterator[Client]:
    with Client(started.address) as connected:
        connected.create("t", 2)
        for _ in range(2):
            connected.produce("t", batch(3))
        yield connected


def fetched(client: Client, *topics: list[tuple[int, int]], **fields: Any) -> list[tuple[str, list[tuple[int, int]]]]:
    """(topic, [(partition, bytes of records)]) for [(partition, offset)] of "t", a list for each time it is named."""
    rest = {"partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    wanted = [
        {"topic": "t", "partitions": [{"partition": n, "fetch_offset": at, **rest} for n, at in rows]}
        for rows in topics
    ]
    limits = {"max_wait": 100, "min_bytes": 1, "max_bytes": 1 << 26, "isolation_level": 0, **fields}
    answer = client.call(1, 12, replica_id=-1, session_epoch=-1, topics=wanted, **limits)
    return [
        (topic.topic, [(row.partition_index, len(row.records or b"")) for row in topic.partitions])
        for topic in answer.responses
    ]


def test_a_fetch_is_answered_once_for_each_partition_as_it_was_asked_last(client: Client) -> None:
    one = len(batch(3))
    assert fetched(client, [(0, 0), (1, 0), (0, 3)]) == [("t", [(0, one), (1, 0)])]
    assert fetched(client, [(0, 3)], [(1, 0), (0, 0)]) == [("t", [(0, 2 * one), (1, 0)])]


def test_list_offsets_refuses_it(client: Client) -> None:
    rows = [{"partition_index": n, "timestamp": -1, "current_leader_epoch": -1} for n in (0, 1, 0)]
    answer = client.call(2, 8, replica_id=-1, isolation_level=0, topics=[{"name": "t", "partitions": rows}])
    found = {row.partition_index: (row.error_code, row.offset) for row in answer.topics[0].partitions}
    assert found == {0: (ErrorCode.INVALID_REQUEST, -1), 1: (0, 0)}


def test_produce_refuses_all_of_it_where_kafka_drops_batches(client: Client) -> None:
    rows = [{"index": n, "records": batch(1)} for n in (0, 1, 0)]
    data = [{"name": "t", "partition_data": rows}]
    answer = client.call(0, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data)
    assert {row.error_code for row in answer.responses[0].partition_responses} == {ErrorCode.INVALID_REQUEST}
    assert client.list_offsets("t", -1).offset == 6


def test_a_long_fetch_waits_and_wakes_as_a_short_one(started: Running, client: Client) -> None:
    assert client.create("wide", ROWS_A_TURN + 5).error_code == 0
    names = [("wide", n, 0, 1 << 20) for n in range(ROWS_A_TURN + 5)]
    assert [len(row.records or b"") for row in client.fetch_many(names, max_wait=50)] == [0] * len(names)
    client.send_fetch(names, max_wait=20_000)
    with Client(started.address) as producer:
        producer.produce("wide", batch(1), ROWS_A_TURN + 3)
    assert [n for n, row in enumerate(client.fetched()) if row.records] == [ROWS_A_TURN + 3]


def test_more_rows_than_are_served_close_the_connection(client: Client) -> None:
    partitions = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1} for n in range(MOST_ROWS)]
    client.send(1, 4, replica_id=-1, max_wait=0, topics=[{"topic": "t", "partitions": partitions}])
    assert client.closed()


def test_one_request_reads_few_partitions_of_the_bucket_at_a_time(tmp_path: Path) -> None:
    count = MOST_REMOTE + 4
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier) as started, Client(started.address) as client:
        client.create("t", count, **SMALL)
        for partition in range(count):
            for _ in range(4):
                client.produce("t", batch(size=200), partition)
            stop = started.log("t", partition).closed()[-1].base
            started.give_to_tier("t", stop, partition)
        rows = client.fetch_many([("t", n, 0, 1 << 20) for n in range(count)], max_wait=5000)
        assert sum(bool(row.records) for row in rows) == tier.reads == MOST_REMOTE
