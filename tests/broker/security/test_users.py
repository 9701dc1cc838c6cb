"""Users who log in: each has its own rights and limits, and each is named in the audit lines."""

import json
from pathlib import Path

from broker.client import Client, batch
from broker.sasl.rig import PASSWORD, asking, authenticate, handshake, log_in
from tierd.base.session import Principal
from tierd.config.access import Access
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

BOSS = "bob,="
RULE = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 4,
    "permission_type": 3,
}


def test_users_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    held = Access(authorizer=True, super_users=(Principal("User", BOSS),), audit_file=path, quota_windows=2)
    with (
        asking(tmp_path, access=held) as (broker, _),
        Client(broker.address) as boss,
        Client(broker.address) as alice,
        Client(broker.address) as thief,
    ):
        assert log_in(boss, "PLAIN", BOSS).error_code == ErrorCode.NONE
        assert log_in(alice, "SCRAM-SHA-256").error_code == ErrorCode.NONE
        assert boss.create("t").error_code == ErrorCode.NONE
        assert alice.produce("t", batch(1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert boss.call(ApiKey.CREATE_ACLS, 3, creations=[RULE]).results[0].error_code == ErrorCode.NONE
        assert alice.produce("t", batch(1)).error_code == ErrorCode.NONE
        assert alice.fetch("t", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        entity = [{"entity_type": "user", "entity_name": "alice"}]
        limits = [{"key": "producer_byte_rate", "value": 500.0, "remove": False}]
        boss.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": limits}], validate_only=False)
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(1, size=900)}]}]
        asked = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": data}
        assert boss.call(ApiKey.PRODUCE, 9, **asked).throttle_time.total_seconds() == 0
        assert alice.call(ApiKey.PRODUCE, 9, **asked).throttle_time.total_seconds() > 0
        handshake(thief, "PLAIN")
        assert authenticate(thief, b"\0alice\0guessed").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    text = path.read_text()
    told = [json.loads(line) for line in text.splitlines()]
    assert [(line["event"], line["principal"]) for line in told] == [
        ("create topic", f"User:{BOSS}"),
        ("denied", "User:alice"),
        ("add access rule", f"User:{BOSS}"),
        ("denied", "User:alice"),
        ("alter quota", f"User:{BOSS}"),
        ("authentication", None),
    ]
    assert (told[-1]["user"], told[-1]["outcome"]) == ("alice", "SASL_AUTHENTICATION_FAILED")
    assert {line["listener"] for line in told} == {"SASL_PLAINTEXT"}
    assert "guessed" not in text
    assert PASSWORD not in text
