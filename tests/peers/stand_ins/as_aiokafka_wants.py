"""A pytest plugin: aiokafka's tests start a broker with Docker; they get the one that runs at PEER_HOST:PEER_PORT."""

import os
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

HOST, PORT = os.environ["PEER_HOST"], int(os.environ["PEER_PORT"])
OTHERS = {"ssl": "SSL", "sasl_plain": "SASL", "sasl_ssl": "BOTH"}
KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional_id": ResourceType.TRANSACTIONAL_ID}
ADMIN = AdminClient({"bootstrap.servers": f"{HOST}:{PORT}"})


class NoKerberos:
    """Skips what asks for it."""

    def kinit(self, principal: str) -> None:
        pytest.skip(f"no Kerberos server knows {principal}")

    def kdestroy(self) -> None:
        """Nothing was made."""


class Rules:
    """What the suite asks of kafka-acls."""

    def __init__(self) -> None:
        self._made: list[AclBinding] = []

    def add_acl(self, *, operation: str = "All", **wanted: Any) -> None:
        """With the words of the tool: `allow_principal`, `deny_principal`; `topic`, `group`, `transactional_id`..."""
        allowed = wanted.get("allow_principal")
        principal = f"User:{allowed or wanted['deny_principal']}"
        permission = AclPermissionType.ALLOW if allowed else AclPermissionType.DENY
        named = [(kind, wanted[word]) for word, kind in KINDS.items() if wanted.get(word) is not None]
        named += [(ResourceType.BROKER, "kafka-cluster")] if wanted.get("cluster") else []
        does = AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", operation).upper()]
        literal = ResourcePatternType.LITERAL
        rules = [AclBinding(kind, name, literal, principal, "*", does, permission) for kind, name in named]
        for made in ADMIN.create_acls(rules).values():
            made.result(10)
        self._made += rules

    def list_acl(self) -> list[str]:
        return list(map(str, self._made))

    def cleanup(self) -> None:
        gone = [
            AclBindingFilter(
                a.restype, a.name, a.resource_pattern_type, a.principal, a.host, a.operation, a.permission_type
            )
            for a in self._made
        ]
        for removed in ADMIN.delete_acls(gone).values() if gone else ():
            removed.result(10)
        self._made.clear()


class Users:
    """What it asks of kafka-configs."""

    def add_scram_user(self, user: str, password: str) -> None:
        """All of them were made before."""


PORTS = {f"{name}_port": int(os.environ[f"PEER_{key}_PORT"]) for name, key in OTHERS.items()}
SERVER = SimpleNamespace(host=HOST, port=PORT, hosts=[f"{HOST}:{PORT}"], **PORTS)
GIVEN = {
    "kafka_server": SERVER,
    "ssl_folder": Path("tests/ssl_cert"),
    "kerberos_utils": NoKerberos(),
    "acl_manager": Rules(),
    "kafka_config": Users(),
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
