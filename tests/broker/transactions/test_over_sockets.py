"""The transaction APIs of a running broker: every version, restarts, adopted directories, real clients."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaProducer
from kio.index import load_response_schema
from kio.serial import entity_reader

from broker.client import Client, batch
from broker.running import Running, running
from kit.golden import golden
from tierd.broker.transactions.codec import decode_key, decode_transaction
from tierd.broker.transactions.model import State, Transaction
from tierd.broker.transactions.ports import STATE_TOPIC
from tierd.config.coordination import Transactions
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.records import iter_records
from tierd.wire.api import API, ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.schema import Input, reader

INIT, ADD, OFFSETS, END, DESCRIBE, LIST = 22, 24, 25, 26, 65, 66
NONE = ErrorCode.NONE


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, **one_partition()) as started:
        yield started


def one_partition() -> dict[str, Any]:
    return {"offsets_topic_partitions": 1, "transactions": Transactions(topic_partitions=1)}


@pytest.fixture
def client(broker: Running) -> Iterator[Client]:
    with Client(broker.address) as opened:
        opened.create("t", 2)
        yield opened


def stored(broker: Running) -> list[tuple[str, Transaction | None]]:
    """Every record of the topic."""
    log = broker.log(STATE_TOPIC)
    found = []
    for header, raw in broker.call(lambda: list(log.batches())):
        for record in iter_records(raw, header):
            name = decode_key(bytes(record.key or b""), "")
            assert name is not None
            found.append((name, None if record.value is None else decode_transaction(bytes(record.value), "")))
    return found


def init(client: Client, name: str | None = "x", *, version: int = 5, timeout: int = 60_000, **given: int) -> Any:
    return client.call(INIT, version, transactional_id=name, transaction_timeout=timeout, **given)


def add(client: Client, producer: Any, *partitions: int, version: int = 3, topic: str = "t", name: str = "x") -> Any:
    topics = [{"name": topic, "partitions": partitions}]
    answer = client.call(
        ADD,
        version,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    rows = answer.results_by_topic_v3_and_below[0].results_by_partition
    return [ErrorCode(row.partition_error_code) for row in rows]


def end(client: Client, producer: Any, *, version: int, commit: bool = True, name: str = "x") -> Any:
    return client.call(
        END,
        version,
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )


def produce(client: Client, producer: Any, *, version: int, sequence: int = 0, partition: int = 0) -> int:
    """Three records of the transaction."""
    records = batch(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
    return int(client.produce("t", records, partition, version=version, transactional_id="x").error_code)


@pytest.mark.parametrize("version", range(API[ApiKey.INIT_PRODUCER_ID].last + 1))
def test_init_of_every_version(client: Client, version: int) -> None:
    first, second = init(client, version=version), init(client, version=version)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (NONE, 0, 1)
    assert first.producer_id == second.producer_id
    assert init(client, None, version=version).producer_id != first.producer_id
    assert init(client, "", version=version).error_code == ErrorCode.INVALID_REQUEST
    for timeout in (0, 900_001):
        refused = init(client, "y", version=version, timeout=timeout)
        assert refused.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if version >= 3:
        goes_on = init(client, version=version, producer_id=first.producer_id, producer_epoch=1)
        assert goes_on.producer_epoch == 2
        fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert init(client, version=version, producer_id=first.producer_id, producer_epoch=0).error_code == fenced
        half = init(client, version=version, producer_id=first.producer_id, producer_epoch=-1)
        assert half.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_of_clients(client: Client, version: int) -> None:
    producer = init(client)
    assert add(client, producer, 0, 1, version=version) == [NONE, NONE]
    unknown, untried = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert add(client, producer, 0, 7, version=version) == [untried, unknown]
    internal = add(client, producer, 0, version=version, topic=STATE_TOPIC)
    assert internal == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert add(client, producer, 0, version=version, name="") == [ErrorCode.INVALID_REQUEST]
    assert add(client, producer, 0, version=version, name="y") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    producer = dataclasses.replace(producer, producer_epoch=5)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert add(client, producer, 0, version=version) == [fenced]


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_of_brokers(client: Client, version: int) -> None:
    producer = init(client)

    def ask(*partitions: int, verify: bool) -> list[ErrorCode]:
        asked = {
            "transactional_id": "x",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "verify_only": verify,
            "topics": [{"name": "t", "partitions": partitions}],
        }
        answer = client.call(ADD, version, transactions=[asked])
        assert answer.error_code == NONE
        (result,) = answer.results_by_transaction
        assert result.transactional_id == "x"
        return [ErrorCode(row.partition_error_code) for row in result.topic_results[0].results_by_partition]

    assert ask(0, verify=True) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert ask(0, verify=False) == [NONE]
    assert ask(0, 1, verify=True) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]


@pytest.mark.parametrize("version", range(API[ApiKey.ADD_OFFSETS_TO_TXN].last + 1))
def test_add_offsets(broker: Running, client: Client, version: int) -> None:
    producer = init(client)

    def ask(group: str, **who: Any) -> int:
        fields = {
            "transactional_id": "x",
            "producer_id": producer.producer_id,
            "producer_epoch": 0,
            "group_id": group,
            **who,
        }
        return int(client.call(OFFSETS, version, **fields).error_code)

    assert ask("g") == NONE
    found = stored(broker)[-1][1]
    assert found is not None
    assert [str(tp) for tp in found.partitions] == ["__consumer_offsets-0"]
    assert ask("") == ErrorCode.INVALID_GROUP_ID
    assert ask("g", transactional_id="") == ErrorCode.INVALID_REQUEST
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert ask("g", producer_epoch=4) == fenced


@pytest.mark.parametrize("version", range(API[ApiKey.END_TXN].last + 1))
def test_end_of_every_version(broker: Running, client: Client, version: int) -> None:
    producer = init(client)
    assert end(client, producer, version=version).error_code == ErrorCode.INVALID_TXN_STATE
    assert add(client, producer, 0) == [NONE]
    assert produce(client, producer, version=9) == NONE
    assert broker.log("t").last_stable == 0
    answer = end(client, producer, version=version)
    assert answer.error_code == NONE
    assert broker.log("t").last_stable == broker.log("t").log_end == 4
    assert end(client, producer, version=version).error_code == NONE
    newer = version >= 5
    if newer:
        assert (answer.producer_id, answer.producer_epoch) == (producer.producer_id, 1)
    last = stored(broker)[-1][1]
    assert last is not None
    assert (last.state, last.producer_epoch) == (State.COMPLETE_COMMIT, 1 if newer else 0)
    assert end(client, producer, version=version, commit=False).error_code == ErrorCode.INVALID_TXN_STATE
    init(client)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(client, producer, version=version).error_code == fenced
    assert end(client, producer, version=version, name="").error_code == ErrorCode.INVALID_REQUEST


def test_version_2_needs_no_add(broker: Running, client: Client) -> None:
    producer = init(client)
    assert produce(client, producer, version=12, partition=1) == NONE
    answer = end(client, producer, version=5, commit=False)
    assert (answer.error_code, answer.producer_epoch) == (NONE, 1)
    assert broker.log("t", 1).last_stable == 4
    assert produce(client, producer, version=12, partition=1, sequence=3) == ErrorCode.INVALID_PRODUCER_EPOCH


def describe(client: Client, *names: str) -> Any:
    """Read by our own reader: kio's takes a start of -1, there is none, for damage."""
    client.send(DESCRIBE, 0, transactional_ids=names)
    raw = client.frame()
    schema = load_response_schema(DESCRIBE, 0)
    _, position = entity_reader(schema.__header_schema__)(raw, 0)
    return reader(schema)(Input(memoryview(raw), position)).transaction_states


def test_what_tools_see(client: Client) -> None:
    producer = init(client)
    init(client, "y")
    add(client, producer, 1, 0)
    described = describe(client, "x", "y", "z", "")
    assert [ErrorCode(row.error_code) for row in described] == [
        NONE,
        NONE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    row = described[0]
    assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", producer.producer_id, 0)
    assert [(topic.topic, list(topic.partitions)) for topic in row.topics] == [("t", [0, 1])]
    assert row.transaction_timeout.total_seconds() == 60
    assert described[1].transaction_start_time is None

    def listed(version: int = 0, **filters: Any) -> list[str]:
        asked = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = client.call(LIST, version, **asked)
        assert answer.error_code == NONE
        return [row.transactional_id for row in answer.transaction_states]

    assert listed() == ["x", "y"]
    assert listed(state_filters=["Ongoing"]) == ["x"]
    assert listed(state_filters=["Dead"]) == []
    assert listed(producer_id_filters=[producer.producer_id]) == ["x"]
    assert listed(1, duration_filter=0, state_filters=["Ongoing"]) in (["x"], [])
    assert listed(1, duration_filter=3_600_000) == ["y"]
    assert listed(2, duration_filter=-1, transactional_id_pattern="[x-z]|a") == ["x", "y"]
    assert listed(2, duration_filter=-1, transactional_id_pattern=".+x") == []
    assert listed(2, duration_filter=-1, transactional_id_pattern="") == ["x", "y"]
    bad = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": "("}
    assert client.call(LIST, 2, **bad).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    unknown = client.call(LIST, 0, state_filters=["Odd", "Ongoing"], producer_id_filters=[])
    assert list(unknown.unknown_state_filters) == ["Odd"]


def test_an_open_transaction_lives_through_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, **one_partition()) as started, Client(started.address) as client:
        client.create("t", 2)
        producer = init(client)
        assert add(client, producer, 0) == [NONE]
        assert produce(client, producer, version=9) == NONE
    with running(tmp_path, **one_partition()) as started, Client(started.address) as client:
        assert started.log("t").last_stable == 0
        assert produce(client, producer, version=9, sequence=3) == NONE
        assert end(client, producer, version=4).error_code == NONE
        assert started.log("t").last_stable == 7
        topic = started.partitions.topic(STATE_TOPIC)
        assert topic is not None
        assert topic.internal
        assert topic.settings.compacted
        assert not topic.partitions[0].tiered


def test_an_adopted_coordinator_goes_on(tmp_path: Path) -> None:
    """The recorded directories of a real Kafka: its ids, their epochs and the transaction that hangs."""
    data = tmp_path / "data"
    data.mkdir(parents=True)
    for path in (golden("kafka") / "clean").iterdir():
        if path.name in (f"{STATE_TOPIC}-0", "txn-0", "compacted-txn-0", "meta.properties"):
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, data / path.name)
    with running(tmp_path) as started, Client(started.address) as client:
        answer = client.call(LIST, 0, state_filters=[], producer_id_filters=[])
        found = {row.transactional_id: (row.producer_id, row.transaction_state) for row in answer.transaction_states}
        assert found["tx-a"][0] == 15
        again = init(client, "tx-a")
        assert (again.error_code, again.producer_id) == (NONE, 15)
        before = {name: value for name, value in stored(started) if value is not None and name == "tx-a"}
        assert before["tx-a"].producer_epoch == again.producer_epoch
        assert again.producer_epoch > 24


def test_confluent_commits_and_aborts(broker: Running, client: Client) -> None:
    address = "{}:{}".format(*broker.address)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "x", "log_level": 0})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        producer.produce("t", b"%d" % number, partition=0)
        producer.flush(30)
        if number % 2:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    (fetched,) = client.fetch_many([("t", 0, 0, 1 << 20)], isolation_level=1)
    assert [row.first_offset for row in fetched.aborted_transactions] == [0, 4]
    assert fetched.last_stable_offset == fetched.high_watermark == 8


def test_confluent_is_fenced_by_another_one(broker: Running, client: Client) -> None:
    conf = {"bootstrap.servers": "{}:{}".format(*broker.address), "transactional.id": "x", "log_level": 0}
    first, second = confluent_kafka.Producer(conf), confluent_kafka.Producer(conf)
    first.init_transactions(30)
    first.begin_transaction()
    first.produce("t", b"1", partition=0)
    first.flush(30)
    second.init_transactions(30)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        first.commit_transaction(30)
    assert refused.value.args[0].fatal()
    second.begin_transaction()
    second.produce("t", b"2", partition=0)
    second.commit_transaction(30)
    (fetched,) = client.fetch_many([("t", 0, 0, 1 << 20)], isolation_level=1)
    assert [row.first_offset for row in fetched.aborted_transactions] == [0]
    assert fetched.last_stable_offset == 4


def test_kafka_python_commits(broker: Running, client: Client) -> None:
    producer = KafkaProducer(bootstrap_servers="{}:{}".format(*broker.address), transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1", partition=0)
    producer.commit_transaction()
    producer.close()
    assert client.fetch("t", 0).last_stable_offset == 2
