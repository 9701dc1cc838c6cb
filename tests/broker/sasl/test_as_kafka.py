"""The same questions get the same answers from tierd and from Kafka."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client
from broker.running import Running, settings
from broker.sasl import cases
from kit.clock import FakeClock
from tierd.broker.sasl.scram import Mechanism
from tierd.config.listeners import MECHANISMS, Endpoint, Sasl
from tierd.config.places import HostPort

RECORDED: dict[str, Any] = json.loads(cases.RECORDING.read_text())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root: Path = tmp_path_factory.mktemp("users")
    sasl = Sasl(mechanisms=frozenset(MECHANISMS[:3]), max_reauth_ms=60_000, failure_delay_ms=1)
    asking = Endpoint(address=HostPort("127.0.0.1", 0), security_protocol="SASL_PLAINTEXT", sasl=sasl)
    broker = Running(settings(root, listeners={"SASL": asking}), None, FakeClock())
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def said(broker: Running) -> dict[str, Any]:
    return cases.said_by(broker.address, broker.broker.listeners.addresses["SASL"])


@pytest.mark.parametrize("case", RECORDED)
def test_what_kafka_says(said: dict[str, Any], case: str) -> None:
    assert said[case] == RECORDED[case]


def test_both_passwords_of_a_user_may_come_at_once(broker: Running, said: dict[str, Any]) -> None:
    """Kafka takes that for altering the same one twice, though its tool writes it so."""
    with Client(broker.address) as client:
        wanted = [cases._kept("flo", mechanism) for mechanism in Mechanism]
        (row,) = client.call(cases.ALTER, 0, deletions=[], upsertions=wanted).results
        assert (row.user, row.error_code) == ("flo", 0)
        wanted = [cases._kept("gus"), cases._kept("gus", 2, 1)]
        (row,) = client.call(cases.ALTER, 0, deletions=[], upsertions=wanted).results
        assert (row.user, row.error_code) == ("gus", 93)  # all of a user's, or nothing
        assert client.call(cases.DESCRIBE, 0, users=[{"name": "gus"}]).results[0].error_code == 91


def test_each_listener_tells_of_its_own_address(broker: Running, said: dict[str, Any]) -> None:
    addresses = broker.broker.listeners.addresses
    with Client(broker.address) as client:
        (row,) = client.call(3, 9, topics=()).brokers
        assert (row.host, row.port) == addresses["PLAINTEXT"]
    with Client(addresses["SASL"]) as client:
        client.call(cases.HANDSHAKE, 1, mechanism="PLAIN")
        assert client.call(cases.AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret").error_code == 0
        (row,) = client.call(3, 9, topics=()).brokers
        assert (row.host, row.port) == addresses["SASL"]
        (row,) = client.call(60, 1).brokers
        assert (row.host, row.port) == addresses["SASL"]
        (row,) = client.call(10, 4, key_type=0, coordinator_keys=["g"]).coordinators
        assert (row.host, row.port) == addresses["SASL"]
