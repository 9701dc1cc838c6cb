"""Answers that show very much are made few at a time; those that clients ask for all the time are not held up."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.client import Client, request_frame
from broker.running import Running, running
from tierd.base.session import Session
from tierd.broker.listings import LONG_ROWS, Listings
from tierd.wire.api import ApiKey
from tierd.wire.control import decode_control
from tierd.wire.header import parse_request_header

CLIENTS = 12


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("listings")) as broker, Client(broker.address) as client:
        client.create("small", 3)
        client.create("large", LONG_ROWS + 1)
        yield broker


def waits(broker: Running, key: ApiKey, version: int, **fields: Any) -> bool:
    frame = memoryview(request_frame(key, version, 1, **fields))[4:]
    header, position = parse_request_header(frame, Session())
    request = decode_control(key, version, frame[position:])
    return broker.call(lambda: Listings(broker.partitions).turn(header, request)) is not None


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": None} for name in names]


@pytest.mark.parametrize("version", [0, 1, 9, 12, 13])
def test_who_asks_for_many_partitions_waits_for_a_turn(broker: Running, version: int) -> None:
    assert not waits(broker, ApiKey.METADATA, version, topics=named("small", "nowhere"))
    assert waits(broker, ApiKey.METADATA, version, topics=named("small", "large"))
    assert waits(broker, ApiKey.METADATA, version, topics=() if version == 0 else None)
    if version > 0:
        assert not waits(broker, ApiKey.METADATA, version, topics=())


def test_an_id_is_as_good_as_a_name(broker: Running) -> None:
    with Client(broker.address) as client:
        topics = {row.name: row.topic_id for row in client.call(ApiKey.METADATA, 12, topics=None).topics}
    for name, much in (("small", False), ("large", True)):
        asked = [{"name": None, "topic_id": topics[name]}]
        assert waits(broker, ApiKey.METADATA, 12, topics=asked) is much


def test_all_are_answered(broker: Running) -> None:
    clients = [Client(broker.address) for _ in range(CLIENTS)]
    for client in clients:
        client.send(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False)
    for client in clients:
        with client:
            assert sum(len(row.partitions) for row in client.answer(ApiKey.METADATA, 12).topics) == LONG_ROWS + 4
