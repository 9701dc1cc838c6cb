"""Quotas on the wire: set, shown, kept across a restart, and held to."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running, running
from tierd.config.access import Access
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

USER, CLIENT = ("user", "ANONYMOUS"), ("client-id", "test")
SHORT = Access(quota_windows=2)
"""Of one second beside the running one."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, access=SHORT) as broker:
        yield broker


def alter(client: Client, *entity: tuple[str, str | None], **values: float | None) -> Any:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    entry = {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity], "ops": ops}
    return client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=False).entries[0]


def described(client: Client, *wanted: tuple[str, int, str | None], strict: bool = False) -> Any:
    components = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in wanted]
    return client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=strict)


def shown(answer: Any) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    assert answer.error_code == ErrorCode.NONE
    return [
        ({one.entity_type: one.entity_name for one in entry.entity}, {one.key: one.value for one in entry.values})
        for entry in answer.entries
    ]


def test_what_is_set_is_shown_and_kept(tmp_path: Path) -> None:
    with running(tmp_path, access=SHORT) as broker, Client(broker.address) as client:
        assert alter(client, USER, producer_byte_rate=1e9, request_percentage=200.5).error_code == ErrorCode.NONE
        assert alter(client, ("user", None), ("client-id", "x"), consumer_byte_rate=5e8).error_code == ErrorCode.NONE
        assert alter(client, USER, producer_byte_rate=None, consumer_byte_rate=7e8).error_code == ErrorCode.NONE
    with running(tmp_path, access=SHORT) as broker, Client(broker.address) as client:
        user = dict([USER]), {"request_percentage": 200.5, "consumer_byte_rate": 7e8}
        pair = {"user": None, "client-id": "x"}, {"consumer_byte_rate": 5e8}
        everything = shown(described(client))
        assert user in everything
        assert pair in everything
        assert shown(described(client, ("user", 0, "ANONYMOUS"))) == [user]
        assert shown(described(client, ("user", 1, None))) == [pair]
        assert shown(described(client, ("user", 2, None), strict=True)) == [user]
        assert shown(described(client, ("client-id", 0, "nobody"))) == []
        for gone in (("request_percentage", USER), ("consumer_byte_rate", USER)):
            alter(client, gone[1], **{gone[0]: None})
        assert shown(described(client)) == [pair]


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ([], {"producer_byte_rate": 1.0}),
        ([("ip", "127.0.0.1")], {"connection_creation_rate": 1.0}),
        ([USER], {"retention.ms": 1.0}),
        ([USER], {"producer_byte_rate": 0.5}),
    ],
)
def test_what_is_wrong_is_refused(broker: Running, entity: Any, values: dict[str, float]) -> None:
    with Client(broker.address) as client:
        assert alter(client, *entity, **values).error_code == ErrorCode.INVALID_REQUEST
        assert shown(described(client)) == []
        wrong = described(client, ("user", 0, None))
        assert (wrong.error_code, wrong.entries) == (ErrorCode.INVALID_REQUEST, None)
        assert described(client, ("planet", 2, None)).error_code == ErrorCode.UNSUPPORTED_VERSION


def ms(time_ms: Any) -> int:
    return round(time_ms.total_seconds() * 1000)


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_producer_that_is_too_fast_is_told_and_waits(broker: Running, version: int) -> None:
    with Client(broker.address) as client:
        client.create("t")
        alter(client, ("user", None), producer_byte_rate=1000)
        begun = time.monotonic()
        for _ in range(2):  # the second has a shape that is known by then
            fields = {"transactional_id": None, "acks": -1, "timeout": 5000}
            data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(1, size=800)}]}]
            answer = client.call(ApiKey.PRODUCE, version, **fields, topic_data=data)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        pause_ms = ms(answer.throttle_time)
        assert pause_ms > 0
        client.list_offsets("t", -1)
        assert (time.monotonic() - begun) * 1000 >= pause_ms
        assert broker.call(lambda: broker.broker.counters.throttled) >= 1
        with Client(broker.address) as other:  # the same user
            assert ms(other.call(ApiKey.METADATA, 9, topics=()).throttle_time) == 0


@pytest.mark.parametrize("acks", [0, -1])
def test_a_producer_that_comes_anew_keeps_the_pause_that_it_was_told(broker: Running, acks: int) -> None:
    with Client(broker.address) as client, Client(broker.address) as other:
        client.create("t")
        alter(client, USER, producer_byte_rate=1000)
        fields = {"transactional_id": None, "acks": acks, "timeout": 5000}
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(1, size=1500)}]}]
        begun = time.monotonic()
        client.send(ApiKey.PRODUCE, 9, **fields, topic_data=data)
        if acks:
            assert ms(client.answer(ApiKey.PRODUCE, 9).throttle_time) > 500
        while other.list_offsets("t", -1).offset < 1:  # nobody else waits, nor does anything else
            pass
        with Client(broker.address) as anew:
            anew.send(ApiKey.PRODUCE, 9, **fields, topic_data=data)
            if acks:
                anew.answer(ApiKey.PRODUCE, 9)
            else:
                anew.list_offsets("t", -1)
            assert time.monotonic() - begun >= 0.5
        assert broker.log("t").log_end == 2


def test_a_reader_that_comes_anew_waits_first_and_then_for_records(broker: Running) -> None:
    with Client(broker.address) as client, Client(broker.address) as other:
        client.create("t")
        client.produce("t", batch(1, size=1500))
        alter(client, ("client-id", None), consumer_byte_rate=1000)
        begun = time.monotonic()
        client.send_fetch([("t", 0, 0, 1 << 20)], 12)  # one batch comes whole, whatever its size
        assert ms(client.answer(ApiKey.FETCH, 12).throttle_time) > 400
        with Client(broker.address) as anew:
            anew.send_fetch([("t", 0, 1, 1 << 20)], 12, max_wait=30_000)
            while broker.call(lambda: broker.broker.counters.throttled) < 2:
                pass
            other.produce("t", batch(1, size=1500))
            answer = anew.answer(ApiKey.FETCH, 12)
            assert answer.responses[0].partitions[0].records
            assert time.monotonic() - begun >= 0.4
            assert ms(answer.throttle_time) > 0, "what it has taken counts, too"


def test_a_producer_that_wants_no_answer_waits_as_well(broker: Running) -> None:
    with Client(broker.address) as client:
        client.create("t")
        alter(client, CLIENT, producer_byte_rate=1000)
        begun = time.monotonic()
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(1, size=1500)}]}]
        client.send(ApiKey.PRODUCE, 9, transactional_id=None, acks=0, timeout=5000, topic_data=data)
        client.list_offsets("t", -1)
        assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_reader_that_is_too_fast_is_told_and_gets_no_more_than_its_windows_allow(
    broker: Running, version: int
) -> None:
    with Client(broker.address) as client:
        client.create("t")
        for _ in range(8):
            client.produce("t", batch(1, size=400))
        alter(client, ("client-id", None), consumer_byte_rate=1000)
        client.send_fetch([("t", 0, 0, 1 << 20)], version)
        first = client.answer(1, version)
        records = first.responses[0].partitions[0].records
        assert 0 < len(records) <= 1000
        begun = time.monotonic()
        client.send_fetch([("t", 0, 0, 1 << 20)], version)
        second = client.answer(1, version)
        pause_ms = ms(second.throttle_time)
        assert pause_ms > 0
        client.list_offsets("t", -1)
        assert (time.monotonic() - begun) * 1000 >= pause_ms


def test_time_is_a_quota_too(broker: Running) -> None:
    with Client(broker.address) as client:
        alter(client, ("user", None), request_percentage=1e-6)
        assert ms(client.call(ApiKey.METADATA, 9, topics=()).throttle_time) > 0
        alter(client, ("user", None), request_percentage=None)
        assert ms(client.call(ApiKey.METADATA, 9, topics=()).throttle_time) == 0


def test_what_is_made_is_counted(broker: Running) -> None:
    def call(key: ApiKey, version: int, **fields: Any) -> Any:
        with Client(broker.address) as another:  # which the pause of the one before does not hold up
            return another.call(key, version, **fields)

    with Client(broker.address) as client:
        alter(client, USER, controller_mutation_rate=1)
        assert client.create("one", 6).error_code == ErrorCode.NONE  # as many as there are at once, and more
    asked = {"name": "two", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    answer = call(ApiKey.CREATE_TOPICS, 7, topics=[asked], timeout=5000, validate_only=False)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ms(answer.throttle_time) > 0
    answer = call(ApiKey.DELETE_TOPICS, 4, topic_names=["one"], timeout=5000)
    assert answer.responses[0].error_code == ErrorCode.NONE  # old clients are made to pause only
    assert ms(answer.throttle_time) > 0
    answer = call(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=True)
    assert ms(answer.throttle_time) == 0
    mentioned = [{"name": f"new{number}", "topic_id": None} for number in range(3)]
    answer = call(ApiKey.METADATA, 12, topics=mentioned, allow_auto_topic_creation=True)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.NONE}
    assert ms(answer.throttle_time) > 0


def test_a_client_that_leaves_in_its_pause_leaves_nothing(broker: Running) -> None:
    with Client(broker.address) as client:
        client.create("t")
        alter(client, USER, producer_byte_rate=1)
        client.produce("t", batch(1))
        assert broker.call(lambda: broker.broker.server.connections) == 1
    with Client(broker.address) as other:
        while broker.call(lambda: broker.broker.server.connections) > 1:
            other.call(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1")


def test_a_stop_does_not_wait_for_a_pause(tmp_path: Path) -> None:
    with running(tmp_path, access=SHORT) as broker, Client(broker.address) as client:
        client.create("t")
        alter(client, USER, producer_byte_rate=1)
        client.produce("t", batch(1))
        begun = time.monotonic()
        broker.run(broker.broker.server.stop(60))
        assert time.monotonic() - begun < 30
        assert client.closed()
