"""Transactional batches in Produce: each partition on its own, codes by version, the short way only in between."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running
from tierd.base.ids import TopicPartition
from tierd.broker.produce_gate import ProduceGate
from tierd.broker.transactions.ports import Question
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

T = TopicPartition("t", 0)


@pytest.fixture
def client(broker: Running) -> Iterator[Client]:
    with Client(broker.address) as connected:
        assert connected.create("t", 2).error_code == 0
        yield connected


def init(client: Client) -> tuple[int, int]:
    told = client.call(
        ApiKey.INIT_PRODUCER_ID, 5, transactional_id="x", transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    assert told.error_code == 0
    return told.producer_id, told.producer_epoch


def add(client: Client, producer: tuple[int, int], partition: int) -> None:
    client.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[{"name": "t", "partitions": [partition]}],
    )


def of(producer: tuple[int, int], sequence: int = 0, *, bits: int = 0x10) -> bytes:
    return batch(1, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, attributes=bits)


def produce(client: Client, version: int, *bodies: bytes) -> list[Any]:
    """One batch for each partition, in one request; code and text of each."""
    rows = [{"index": index, "records": records} for index, records in enumerate(bodies)]
    topics = [{"name": "t", "partition_data": rows}]
    told = client.call(0, version, transactional_id="x", acks=-1, timeout=5000, topic_data=topics)
    return [(int(row.error_code), row.error_message) for row in told.responses[0].partition_responses]


@pytest.mark.parametrize(("version", "code"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)])
def test_one_partition_may_be_in_the_transaction_and_another_not(client: Client, version: int, code: ErrorCode) -> None:
    producer = init(client)
    add(client, producer, 0)
    text = "Partition was not added to the transaction"
    assert produce(client, version, of(producer), of(producer)) == [(0, None), (code, text)]
    assert produce(client, 12, of(producer, 1), of(producer)) == [(0, None), (0, None)]


def test_a_request_speaks_for_one_producer(client: Client) -> None:
    producer = init(client)
    told = produce(client, 12, of(producer), of((producer[0] + 1, 0)))
    assert [code for code, _ in told] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert [code for code, _ in produce(client, 12, of(producer, bits=0), of((-1, -1), -1))] == [
        0,
        ErrorCode.INVALID_RECORD,
    ]


def test_a_first_batch_that_is_missing_is_not_passed_over(client: Client, broker: Running) -> None:
    producer = init(client)
    assert produce(client, 12, of(producer, 1))[0][0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(client, 12, of(producer), of(producer, 1)) == [
        (0, None),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None),
    ]
    assert (broker.log("t").log_end, broker.log("t", 1).log_end) == (1, 0)


def test_the_same_request_after_the_end_is_asked_about_again(client: Client) -> None:
    producer = init(client)
    add(client, producer, 0)
    for sequence in range(3):
        assert produce(client, 11, of(producer, sequence)) == [(0, None)]
    ended = client.call(
        ApiKey.END_TXN,
        3,
        transactional_id="x",
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=True,
    )
    assert ended.error_code == 0
    assert produce(client, 11, of(producer, 3))[0][0] == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("found", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_each_version_hears_what_it_knows(broker: Running, found: ErrorCode, version: int, told: ErrorCode) -> None:
    class Coordinator:
        def covers(self, asked: Question) -> bool:
            return False

        async def verify(self, asked: Question, *, add: bool) -> dict[TopicPartition, ErrorCode]:
            assert add == (version >= 12)
            return {T: found}

    gate = ProduceGate(broker.partitions, Coordinator())
    assert broker.run(gate.ask(Question("x", 1, 0, (T,)), version)) == {T: told}
