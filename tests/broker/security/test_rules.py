"""Access rules on the wire: made, found, removed, kept, and in force at once, also for requests that are recognised."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running, running
from tierd.base.session import Principal
from tierd.broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, Operation
from tierd.broker.security.acls import Acl, Kind, Pattern, Permission
from tierd.broker.security.authorizer import Authorizer
from tierd.config.access import Access
from tierd.storage.header import TRANSACTIONAL
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

ANYBODY, HOST = "User:ANONYMOUS", "127.0.0.1"
MASTER = "127.0.0.2"
HELD = Access(authorizer=True)
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def rule(
    kind: Kind,
    name: str,
    operation: Operation = Operation.ALL,
    permission: Permission = ALLOW,
    *,
    pattern: Pattern = Pattern.LITERAL,
    principal: str = ANYBODY,
    host: str = "*",
) -> Acl:
    return Acl(kind, pattern, name, principal, host, operation, permission)


MASTERS = [
    rule(kind, name, host=MASTER)
    for kind, name in ((Kind.CLUSTER, "kafka-cluster"), (Kind.TOPIC, "*"), (Kind.GROUP, "*"))
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    """Who comes from MASTER may do everything, others nothing."""
    with running(tmp_path, access=HELD) as broker:
        give(broker, *MASTERS)
        yield broker


def authorizer(broker: Running) -> Authorizer:
    found = broker.broker.parts.authorizer
    assert found is not None
    return found


def give(broker: Running, *acls: Acl) -> None:
    broker.run(authorizer(broker).add(acls))


def created(client: Client, *acls: Acl) -> list[ErrorCode]:
    rows = [
        {
            "resource_type": acl.kind,
            "resource_name": acl.name,
            "resource_pattern_type": acl.pattern,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in acls
    ]
    return [row.error_code for row in client.call(ApiKey.CREATE_ACLS, 3, creations=rows).results]


def _filter(**fields: Any) -> dict[str, Any]:
    open_ = {
        "resource_type_filter": Kind.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": Pattern.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    return {**open_, **fields}


def found(client: Client, **fields: Any) -> set[Acl]:
    answer = client.call(ApiKey.DESCRIBE_ACLS, 3, **_filter(**fields))
    assert answer.error_code == ErrorCode.NONE
    return {
        Acl.of_row(
            (
                row.resource_type,
                row.pattern_type,
                row.resource_name,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
        )
        for row in answer.resources
        for acl in row.acls
    }


A = rule(Kind.TOPIC, "a", Operation.READ)
AB = rule(Kind.TOPIC, "a", Operation.WRITE, DENY, pattern=Pattern.PREFIXED, principal="User:bob", host="10.0.0.1")
STAR = rule(Kind.TOPIC, "*", Operation.DESCRIBE, principal="User:*")
GROUP = rule(Kind.GROUP, "a", Operation.READ)
FOUR = (A, AB, STAR, GROUP)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {A, AB, STAR, GROUP}),
        ({"resource_type_filter": Kind.GROUP}, {GROUP}),
        ({"resource_name_filter": "a"}, {A, AB, GROUP}),
        ({"resource_name_filter": "a", "pattern_type_filter": Pattern.LITERAL}, {A, GROUP}),
        ({"resource_name_filter": "ab", "pattern_type_filter": Pattern.MATCH}, {AB, STAR}),
        ({"resource_name_filter": "ab"}, set()),
        ({"principal_filter": "User:bob"}, {AB}),
        ({"host_filter": "10.0.0.1"}, {AB}),
        ({"operation": Operation.READ}, {A, GROUP}),
        ({"permission_type": DENY}, {AB}),
    ],
)
def test_rules_are_found_by_all_their_parts(broker: Running, fields: dict[str, Any], wanted: set[Acl]) -> None:
    with Client(broker.address, MASTER) as client:
        assert created(client, *FOUR, A) == [ErrorCode.NONE] * 5
        assert found(client, **fields) - set(MASTERS) == wanted
        answer = client.call(ApiKey.DELETE_ACLS, 3, filters=[_filter(**fields)])
        assert len(answer.filter_results[0].matching_acls) >= len(wanted)
        assert not authorizer(broker).acls & wanted
        assert authorizer(broker).acls >= set(FOUR) - wanted


def test_rules_live_through_a_restart_and_not_through_their_end(tmp_path: Path) -> None:
    with running(tmp_path, access=HELD) as broker:
        give(broker, *MASTERS, *FOUR)
    with running(tmp_path, access=HELD) as broker, Client(broker.address, MASTER) as client:
        assert found(client) == {*MASTERS, *FOUR}
        client.call(ApiKey.DELETE_ACLS, 3, filters=[_filter(principal_filter="User:bob")])
    with running(tmp_path, access=HELD) as broker, Client(broker.address, MASTER) as client:
        assert found(client) == {*MASTERS, *FOUR} - {AB}


@pytest.mark.parametrize(
    "wrong",
    [
        rule(Kind.ANY, "x"),
        rule(Kind.TOPIC, ""),
        rule(Kind.CLUSTER, "another"),
        rule(Kind.TOPIC, "x", Operation.ANY),
        rule(Kind.TOPIC, "x", permission=Permission.ANY),
        rule(Kind.TOPIC, "x", pattern=Pattern.MATCH),
        rule(Kind.TOPIC, "x", principal="bob"),
    ],
)
def test_what_is_no_rule_is_refused_and_the_others_are_made(broker: Running, wrong: Acl) -> None:
    with Client(broker.address, MASTER) as client:
        assert created(client, A, wrong) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert found(client) == {*MASTERS, A}


def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        assert created(client, A) == [ErrorCode.SECURITY_DISABLED]
        answer = client.call(ApiKey.DESCRIBE_ACLS, 3, **_filter())
        assert answer.error_code == ErrorCode.SECURITY_DISABLED
        asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        answer = client.call(ApiKey.METADATA, 10, topics=[{"name": "x", "topic_id": None}], **asked)
        assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
        assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
        answer = client.call(ApiKey.METADATA, 10, topics=[{"name": "x", "topic_id": None}])
        assert answer.topics[0].topic_authorized_operations == answer.cluster_authorized_operations == -(1 << 31)


def test_a_right_that_goes_is_missed_by_the_next_request(broker: Running) -> None:
    with Client(broker.address, MASTER) as master, Client(broker.address) as client:
        master.create("t")
        give(broker, rule(Kind.TOPIC, "t", Operation.WRITE, host=HOST), rule(Kind.TOPIC, "t", Operation.READ))
        for _ in range(3):
            assert client.produce("t", batch(1)).error_code == ErrorCode.NONE
            assert client.fetch("t", 0).error_code == ErrorCode.NONE
        created(master, rule(Kind.TOPIC, "t", Operation.ALL, DENY, host=HOST))
        assert client.produce("t", batch(1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert client.fetch("t", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert master.fetch("t", 0).error_code == ErrorCode.NONE
        master.call(ApiKey.DELETE_ACLS, 3, filters=[_filter(permission_type=DENY)])
        assert client.produce("t", batch(1)).error_code == ErrorCode.NONE
        assert client.fetch("t", 0).error_code == ErrorCode.NONE


def test_one_denied_topic_does_not_keep_the_others(broker: Running) -> None:
    with Client(broker.address, MASTER) as master, Client(broker.address) as client:
        master.create("mine")
        master.create("theirs")
        give(broker, rule(Kind.TOPIC, "mi", pattern=Pattern.PREFIXED))
        data = [{"name": name, "partition_data": [{"index": 0, "records": batch(1)}]} for name in ("theirs", "mine")]
        answer = client.call(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data)
        codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
        assert codes == {"theirs": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "mine": ErrorCode.NONE}
        rows = client.fetch_many([("theirs", 0, 0, 1000), ("mine", 0, 0, 1000)])
        assert [(row.error_code, bool(row.records)) for row in rows] == [
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
            (ErrorCode.NONE, True),
        ]
        assert broker.log("theirs").log_end == 0


def test_who_may_not_use_a_transactional_id_adds_no_partition_to_it(broker: Running) -> None:
    with Client(broker.address, MASTER) as master, Client(broker.address) as client:
        master.create("t")
        give(broker, rule(Kind.TOPIC, "t"))
        fields = {"attributes": TRANSACTIONAL, "producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        records = batch(1, **fields)
        row = client.produce("t", records, version=12, transactional_id="tx")
        assert row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert broker.log("t").log_end == 0


def test_who_may_not_end_others_transactions_is_told_so_of_each(broker: Running) -> None:
    marker = {
        "producer_id": 1,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": "t", "partition_indexes": [0, 1]}],
    }
    with Client(broker.address, MASTER) as master, Client(broker.address) as client:
        told = []
        for asker in (client, master):
            answer = asker.call(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
            told.append([part.error_code for part in answer.markers[0].topics[0].partitions])
        assert told[0] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
        assert told[1] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_rights_of_very_many_topics_are_looked_at_in_turns(broker: Running) -> None:
    names = [{"name": f"t{number}", "topic_id": None} for number in range(20_000)]
    with Client(broker.address) as client, Client(broker.address) as other:
        client.send(ApiKey.METADATA, 12, topics=names, allow_auto_topic_creation=True)
        for _ in range(3):
            other.call(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1")
        answer = client.answer(ApiKey.METADATA, 12)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        assert len(answer.topics) == 20_000


@pytest.mark.parametrize("version", [12, 18])
def test_a_fetch_session_outlives_no_right(broker: Running, version: int) -> None:
    """What a session has been told before is asked again each time."""
    with Client(broker.address, MASTER) as master, Client(broker.address) as client:
        for name in ("t", "u"):
            master.create(name)
            master.produce(name, batch(1))
        give(broker, rule(Kind.TOPIC, "t", Operation.READ))
        ids = {row.name: row.topic_id for row in master.call(ApiKey.METADATA, 12, topics=None).topics}
        want = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}
        topics = [{"topic": name, "topic_id": ids[name], "partitions": [want]} for name in ("t", "u")]
        limits = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 10_000, "isolation_level": 0}
        first = client.call(ApiKey.FETCH, version, session_epoch=0, topics=topics, **limits)
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert sorted(codes(first)) == [ErrorCode.NONE, denied]
        seen = []
        for epoch in range(1, 5):
            if epoch == 2:
                give(broker, rule(Kind.TOPIC, "u", Operation.READ))
            if epoch == 3:
                give(broker, rule(Kind.TOPIC, "*", Operation.READ, DENY))
            asked = {"session_id": first.session_id, "session_epoch": epoch, "topics": ()}
            seen.append(codes(client.call(ApiKey.FETCH, version, **asked, **limits)))
        assert denied in seen[0]
        assert seen[1] == [ErrorCode.NONE] * 2
        assert seen[2] == seen[3] == [denied] * 2


def codes(answer: Any) -> list[ErrorCode]:
    assert answer.error_code == ErrorCode.NONE
    return [part.error_code for topic in answer.responses for part in topic.partitions]


def test_super_users_need_no_rule(tmp_path: Path) -> None:
    held = Access(authorizer=True, super_users=(Principal.parse(ANYBODY),))
    with running(tmp_path, access=held) as broker, Client(broker.address) as client:
        assert created(client, rule(Kind.TOPIC, "t", permission=DENY)) == [ErrorCode.NONE]
        client.create("t")
        assert client.produce("t", batch(1)).error_code == ErrorCode.NONE
