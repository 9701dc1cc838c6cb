"""Every API, with and without the rights for it, answers as a real Kafka (kafka-access.json, of kit/access)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.running import Running, running
from kit import access
from tierd.broker.apis import guards
from tierd.config.access import Access
from tierd.wire.api import API, ApiKey

BESIDE = {ApiKey.PRODUCE, ApiKey.FETCH}
"""Guarded inside their handlers."""
OPEN = {"API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE"}
UNTRIED = OPEN | {"WRITE_TXN_MARKERS"}
"""Markers: the right to them is Kafka's own in the recording."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    held = Access(authorizer=True, allow_without_acl=True)
    with running(tmp_path_factory.mktemp("access"), access=held, offsets_topic_partitions=1) as broker:
        yield broker


@pytest.fixture(scope="module")
def said(broker: Running) -> dict[str, dict[str, Any]]:
    return access.said_by(broker.address)


RECORDED: dict[str, dict[str, Any]] = json.loads(access.RECORDING.read_text())


@pytest.mark.parametrize("case", RECORDED)
def test_rights_decide_as_in_kafka(said: dict[str, dict[str, Any]], case: str) -> None:
    assert said[case] == RECORDED[case]


def test_all_cases_are_recorded() -> None:
    assert RECORDED.keys() == {case.name for case in access.cases()}


def test_every_api_is_guarded_and_tried(broker: Running) -> None:
    kept = broker.call(lambda: guards(broker.broker.parts).keys())
    assert {key.name for key in map(ApiKey, API.keys() - kept - BESIDE)} <= OPEN
    assert {key.name for key in map(ApiKey, API.keys() - {case.key for case in access.cases()})} <= UNTRIED
