"""A pytest plugin: aiokafka's tests start a broker with Docker; they get the one that runs at PEER_HOST:PEER_PORT."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

HOST, PORT = os.environ["PEER_HOST"], int(os.environ["PEER_PORT"])
NOBODY = 1
"""A port on which nobody listens: there are no other listeners."""


class NoKerberos:
    """Skips what asks for it."""

    def kinit(self, principal: str) -> None:
        pytest.skip(f"no Kerberos server knows {principal}")

    def kdestroy(self) -> None:
        """Nothing was made."""


class NoTools:
    """Stands for those who run Kafka's tools in the container."""

    def add_acl(self, **rule: object) -> None:
        pytest.skip(f"no container to run kafka-acls in: {rule}")

    def add_scram_user(self, user: str, password: str) -> None:
        pytest.skip(f"no container to run kafka-configs in: {user} {password}")

    def cleanup(self) -> None:
        """Nothing was made."""


SERVER = SimpleNamespace(
    host=HOST, port=PORT, ssl_port=NOBODY, sasl_plain_port=NOBODY, sasl_ssl_port=NOBODY, hosts=[f"{HOST}:{PORT}"]
)
GIVEN = {
    "kafka_server": SERVER,
    "ssl_folder": Path("tests/ssl_cert"),
    "kerberos_utils": NoKerberos(),
    "acl_manager": NoTools(),
    "kafka_config": NoTools(),
    "docker": None,
    "kafka_image": "apache:2.13_4.3.1",
}

docker = ModuleType("docker")
docker.models = SimpleNamespace(containers=SimpleNamespace(Container=object))  # type: ignore[attr-defined]
sys.modules["docker"] = docker


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> object:
    """Instead of the suite's own."""
    if fixturedef.argname not in GIVEN:
        return None
    found = GIVEN[fixturedef.argname]
    fixturedef.cached_result = (found, fixturedef.cache_key(request), None)
    return found or ...
