"""kafka-acls and kafka-configs say of rules and quotas what they say of a real Kafka (kit/access_tools)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kit import access_tools, tools
from kit.daemon import running

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(300)]

RECORDED: dict[str, Any] = json.loads(access_tools.RECORDING.read_text())
HELD = ("--set", "authorizer.enable=true", "--set", "super.users=User:ANONYMOUS")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("access")
    with running(folder / "data", None, *HELD) as daemon, tools.running(daemon.address, folder) as kafka:
        yield access_tools.said_by(kafka)
        assert daemon.stop() == 0


@pytest.mark.parametrize("use", RECORDED)
def test_the_tools_find_what_they_know(said: dict[str, Any], use: str) -> None:
    assert said[use] == RECORDED[use]
