"""A group of the consumer protocol handed over while a member is in it: from Kafka to tierd, and on to Kafka."""

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.client import Client
from kit.daemon import running
from kit.kafka import opened
from kit.kafka import running as kafka_running
from tierd.wire.api import ApiKey

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(300)]

TOPIC, GROUP, PARTITIONS = "handed", "g", 3
TOOL = "consumer.group.ConsumerGroupCommand"
SETTINGS = {"group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "500"}
OURS = ("--set", "group.consumer.heartbeat.interval.ms=500ms")


def described(address: str) -> Any:
    host, _, port = address.rpartition(":")
    with Client((host, int(port))) as client:
        asked = {"group_ids": [GROUP], "include_authorized_operations": False}
        return client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups[0]


def joined(address: str, **config: str) -> confluent_kafka.Consumer:
    settings = {"bootstrap.servers": address, "group.id": GROUP, "group.protocol": "consumer"}
    consumer = confluent_kafka.Consumer({**settings, "reconnect.backoff.max.ms": 200, **config})
    consumer.subscribe([TOPIC])
    return consumer


def commit(consumer: confluent_kafka.Consumer, offset: int) -> None:
    places = [confluent_kafka.TopicPartition(TOPIC, number, offset) for number in range(PARTITIONS)]
    while True:
        consumer.poll(0.2)
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            stale = error.args[0].code() == confluent_kafka.KafkaError.STALE_MEMBER_EPOCH
            if not stale and not error.args[0].retriable():
                raise
        else:
            return


def test_the_member_reads_on_and_is_not_fenced(tmp_path: Path) -> None:
    with kafka_running(tmp_path / "kafka", SETTINGS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        consumer = joined(kafka.address, **{"group.instance.id": "i", "client.id": "c"})
        while len(consumer.assignment()) < PARTITIONS:
            consumer.poll(0.2)
        commit(consumer, 0)
        before = described(kafka.address)
        kafka.kill()
        with running(kafka.data, None, "--listen", kafka.address, *OURS) as tierd:
            while (after := described(tierd.address)).group_epoch == before.group_epoch:
                consumer.poll(0.2)  # Kafka has another way to tell that topics have changed: the epoch rises once
            (was,), (now,) = before.members, after.members
            assert (now.member_id, now.instance_id, now.assignment) == (was.member_id, was.instance_id, was.assignment)
            assert now.member_epoch == after.group_epoch == after.assignment_epoch == before.group_epoch + 1
            commit(consumer, 0)
            assert len(consumer.assignment()) == PARTITIONS
            assert [member.member_id for member in described(tierd.address).members] == [was.member_id]
            assert tierd.stop() == 0
        consumer.close()
        with opened(tmp_path / "again", kafka.data, [TOPIC, "__consumer_offsets"]) as again:
            said = again.tool(TOOL, "--describe", "--group", GROUP, "--members", "--verbose")
            assert was.member_id in said
            assert f"{TOPIC}:0,1,2" in said
            assert not [line for line in again.complaints() if "GroupCoordinator" in line or "GroupMetadata" in line]
