"""Who coordinates, and what is known of a group's members: over a real socket, with real clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from broker.client import Client
from broker.running import Running, running
from kit import traffic
from tierd.broker.groups.codec import decode_group, decode_key
from tierd.broker.groups.model import StoredGroup
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.storage.records import iter_records
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, offsets_topic_partitions=1) as started:
        yield started


def stored_groups(broker: Running) -> list[StoredGroup]:
    log = broker.log(OFFSETS_TOPIC)
    records = [
        record for header, raw in broker.call(lambda: list(log.batches())) for record in iter_records(raw, header)
    ]
    return [
        decode_group(bytes(record.value), "group")
        for record in records
        if record.value is not None and isinstance(decode_key(bytes(record.key or b""), "key"), str)
    ]


def test_a_member_is_stored_with_the_host_it_came_from(broker: Running) -> None:
    address = "{}:{}".format(*broker.address)
    traffic.produce_confluent(address, "t", traffic.stream("t", 0, 10, 10))
    traffic.group_confluent(address, "t", "g", 10)
    members = [member for group in stored_groups(broker) for member in group.members]
    assert {member.client_host for member in members} == {"/127.0.0.1"}


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_this_node_coordinates_transactions(broker: Running, version: int) -> None:
    with Client(broker.address) as client:
        asked = {"key": "x", "key_type": 1, "coordinator_keys": ("x",)}
        answer = client.call(int(ApiKey.FIND_COORDINATOR), version, **asked)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.host, found.port) == (ErrorCode.NONE, *broker.address)


def test_confluent_can_list_all_topics(broker: Running) -> None:
    with Client(broker.address) as client:
        client.create("t", 3)
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*broker.address)})
    assert {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=10).topics.items()} == {"t": 3}
