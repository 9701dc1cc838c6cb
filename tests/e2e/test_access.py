"""Real clients that may not do everything: what they are told, and that a rule or a quota counts at once."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kit import secured, tiers
from kit.secured import Secured

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HELD = """
[authorizer]
enable = true
[super]
users = "User:ANONYMOUS"
[tierd.audit]
file = "audit.log"
"""
LITERAL, ALLOW, READ = ResourcePatternType.LITERAL, AclPermissionType.ALLOW, AclOperation.READ


@pytest.fixture(scope="module")
def tierd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured.running(tmp_path_factory.mktemp("access"), HELD) as tierd:
        yield tierd


@pytest.fixture(scope="module")
def boss(tierd: Secured) -> AdminClient:
    return AdminClient({"bootstrap.servers": tierd.daemon.address})


def rule(kind: ResourceType, name: str, operation: AclOperation, pattern: ResourcePatternType = LITERAL) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:alice", "*", operation, ALLOW)


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(30) for future in futures.values()]


def sent(producer: Producer, topic: str) -> KafkaError | None:
    """What became of one record."""
    seen: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: seen.append(error))
    except KafkaException as refused:  # it has heard already
        error: KafkaError = refused.args[0]
        return error
    tiers.until("the record's fate", lambda: producer.flush(1) == 0)
    return seen[0]


def _error(consumer: Consumer) -> int | None:
    message = consumer.poll(1)
    return None if message is None else code(message.error())


def code(error: KafkaError | None) -> int | None:
    return None if error is None else error.code()


@pytest.mark.parametrize("way", [("SASL", "SCRAM-SHA-256"), ("MUTUAL", None)])
def test_a_producer_hears_of_its_rights(tierd: Secured, boss: AdminClient, way: tuple[str, str | None]) -> None:
    topic = f"made-{way[0]}"
    conf = tierd.librdkafka(*way) | {"topic.metadata.refresh.interval.ms": 100, "topic.metadata.propagation.max.ms": 0}
    producer = Producer(conf | {"message.timeout.ms": 30_000})
    assert code(sent(producer, topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    done(boss.create_acls([rule(ResourceType.TOPIC, topic, AclOperation.WRITE)]))
    assert code(sent(producer, topic)) in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNKNOWN_TOPIC)
    done(boss.create_acls([rule(ResourceType.TOPIC, "made-", AclOperation.CREATE, ResourcePatternType.PREFIXED)]))
    tiers.until("a record that may be written", lambda: sent(producer, topic) is None)
    gone = AclBindingFilter(
        ResourceType.TOPIC, topic, LITERAL, "User:alice", None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert [len(found) for found in done(boss.delete_acls([gone]))] == [1]
    assert code(sent(producer, topic)) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_consumer_sees_what_it_may(tierd: Secured, boss: AdminClient) -> None:
    done(boss.create_topics([NewTopic("seen", 1), NewTopic("secret", 1)]))
    writer = Producer({"bootstrap.servers": tierd.daemon.address})
    for topic in ("seen", "secret"):
        assert sent(writer, topic) is None
    conf = tierd.librdkafka("BOTH", "PLAIN") | {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(conf)
    consumer.subscribe(["^se.*"])
    heard: list[int | None] = []
    tiers.until("an error", lambda: bool(heard.append(_error(consumer)) or heard[-1]))
    assert heard[-1] == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    done(boss.create_acls([rule(ResourceType.GROUP, "readers", READ), rule(ResourceType.TOPIC, "seen", READ)]))
    consumer = Consumer(conf)
    consumer.subscribe(["^se.*"])
    got = []
    tiers.until("a record that may be read", lambda: bool(got.append(consumer.poll(1)) or got[-1]))
    assert [(one.topic(), one.error()) for one in got if one] == [("seen", None)]
    assert {one.topic for one in consumer.assignment()} == {"seen"}
    shown = AdminClient(tierd.librdkafka("BOTH", "PLAIN")).list_topics(timeout=30).topics
    assert "seen" in shown
    assert "secret" not in shown
    consumer.close()


def test_an_administrator_needs_rights(tierd: Secured, boss: AdminClient) -> None:
    alice = AdminClient(tierd.librdkafka("BOTH", "SCRAM-SHA-512"))
    for act in (
        lambda: done(alice.create_topics([NewTopic("hers", 1)])),
        lambda: done(alice.create_acls([rule(ResourceType.TOPIC, "hers", READ)])),
    ):
        with pytest.raises(KafkaException) as refused:
            act()
        assert refused.value.args[0].code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
    assert alice.describe_acls(_every()).result(30) == []  # librdkafka says nothing of the error
    made = rule(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
    done(boss.create_acls([made]))
    assert made in alice.describe_acls(_every()).result(30)


def test_what_was_done_is_written_down(tierd: Secured, boss: AdminClient) -> None:
    """Also what is done by hand, beside all clients."""
    (tierd.folder / "password").write_text("another secret")
    tierd.daemon.verb("users", "add", "dave", "--password-file", str(tierd.folder / "password"))
    done(boss.create_topics([NewTopic("told", 1)]))
    text = (tierd.folder.parent / "audit.log").read_text()
    told = [json.loads(line) for line in text.splitlines()]
    (by_hand,) = [line for line in told if line["event"] == "alter user"]
    assert (by_hand["user"], by_hand["principal"], by_hand["outcome"]) == ("dave", None, "OK")
    (made,) = [line for line in told if line.get("topic") == "told"]
    assert (made["principal"], made["listener"], made["outcome"]) == ("User:ANONYMOUS", "PLAINTEXT", "OK")
    assert "another secret" not in text


def _every() -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
