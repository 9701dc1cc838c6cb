"""The consumer protocol, asked in any order by dynamic and static members: the answers of Kafka 4.3.1."""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.client import Client
from kit.daemon import running
from kit.kafka import running as kafka_running
from kit.mixed_group import MixedGroup, static, strangers, up_and_down
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 120
SEEDS = range(24, 34)
"""With others it comes to bear which partitions an assignor picks: which of them are free then, and which are not."""
TOPIC, PARTITIONS = "t", 12
INSTANCES = {"c": "ic", "d": "id"}
SETTINGS = {
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
"""Or Kafka would assign later."""
STARTING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Script:
    """Sends requests by the dice and writes down what came back; of partitions how many, brokers differ in which."""

    def __init__(self, client: Client, seed: int) -> None:
        self.said: list[tuple[Any, ...]] = []
        self._client = client
        self._group = f"g{seed}"
        self._dice = Random(seed)
        self._epochs: dict[str, int] = {}
        self._told: dict[str, tuple[Any, ...]] = {}
        self._reads: dict[str, tuple[Any, ...]] = {}

    def run(self) -> None:
        self._beat("z", 0, subscribed_topic_names=(), topic_partitions=())
        self._beat("z", -1)  # Kafka counts from 2 where the first member subscribes to something
        steps = {
            self.join: 12,
            self.beat: 60,
            self.leave: 4,
            self.again: 4,
            self.commit: 8,
            self.fetch: 5,
            self.look: 12,
        }
        for _ in range(STEPS):
            self._dice.choices(list(steps), list(steps.values()))[0]()

    def _note(self, what: str, *facts: Any) -> None:
        self.said.append((len(self.said), what, *facts))

    def _beat(self, name: str, epoch: int, **fields: Any) -> None:
        asked = {
            "group_id": self._group, "member_id": name, "member_epoch": epoch, "instance_id": INSTANCES.get(name[0]),
            "rack_id": None, "rebalance_timeout": datetime.timedelta(milliseconds=-1 if epoch else 60_000),
            "subscribed_topic_names": None, "subscribed_topic_regex": None, "server_assignor": None,
            "topic_partitions": None,
        }  # fmt: skip
        answer = self._client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **asked | fields)
        error = ErrorCode(answer.error_code)
        given = None
        if error is ErrorCode.NONE and epoch >= 0:
            self._epochs[name] = answer.member_epoch
            if answer.assignment is not None:
                given = sum(len(row.partitions) for row in answer.assignment.topic_partitions)
                self._told[name] = answer.assignment.topic_partitions
        told = {key: value if key != "topic_partitions" else value is not None for key, value in fields.items()}
        self._note(f"{name} beats {epoch} {told}", error.name, answer.member_id, answer.member_epoch, given)

    def _who(self) -> str:
        return self._dice.choice(sorted(self._epochs) or ["a"])

    # requests

    def join(self) -> None:
        name = self._dice.choice("abcd")
        if name in INSTANCES and name in self._epochs:
            name += "2"  # under its own id Kafka refuses it, tierd does not
        if name in self._epochs and name[0] in INSTANCES:
            return
        self._reads[name] = ()
        topics = self._dice.choice([(TOPIC,), (TOPIC,), (TOPIC,), ()])
        self._beat(name, 0, subscribed_topic_names=topics, topic_partitions=())

    def beat(self) -> None:
        name = self._who()
        if self._dice.random() < 0.8:
            self._reads[name] = self._told.get(name, ())
        fields: dict[str, Any] = {}
        if self._dice.random() < 0.8:
            rows = self._reads.get(name, ())
            fields["topic_partitions"] = [{"topic_id": row.topic_id, "partitions": row.partitions} for row in rows]
        if self._dice.random() < 0.05:
            fields["server_assignor"] = "uniform"
        # Not with the epoch before, which tierd takes for longer: who misses two answers is not fenced.
        epoch = max(self._epochs.get(name, 1) + self._dice.choice([0] * 12 + [1]), 1)
        self._beat(name, epoch, **fields)

    def leave(self) -> None:
        name = self._who()
        self._beat(name, -2 if name[0] in INSTANCES and self._dice.random() < 0.7 else -1)
        self._forget(name)

    def again(self) -> None:
        """A static member is away, and another process goes on as it."""
        name = self._dice.choice(sorted(INSTANCES))
        self._beat(name, -2)
        self._forget(name)
        self._beat(name + "3", 0, subscribed_topic_names=(TOPIC,), topic_partitions=())
        self._beat(name + "3", -2)
        self._forget(name + "3")
        self._beat(name, 0, subscribed_topic_names=(TOPIC,), topic_partitions=())

    def _forget(self, name: str) -> None:
        for known in (self._epochs, self._told, self._reads):
            known.pop(name, None)

    def commit(self) -> None:
        name, version = self._who(), self._dice.choice((8, 9))
        group = self._dice.choice((self._group, self._group, "none"))
        epoch = self._dice.choice((self._epochs.get(name, 0), self._epochs.get(name, 0) + 1, -1))
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = self._client.call(
            ApiKey.OFFSET_COMMIT, version, group_id=group if epoch >= 0 else self._group, member_id=name,
            generation_id_or_member_epoch=epoch, group_instance_id=None,
            topics=[{"name": TOPIC, "partitions": [partition]}],
        )  # fmt: skip
        self._note(f"{name} commits {version} {group} {epoch}", answer.topics[0].partitions[0].error_code)

    def fetch(self) -> None:
        name = self._dice.choice((self._who(), "", "nobody"))
        epoch = self._epochs.get(name, 0) + self._dice.choice((0, 0, 1, -1))
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        group = {"group_id": self._group, "member_id": name, "member_epoch": epoch, "topics": topics}
        answer = self._client.call(ApiKey.OFFSET_FETCH, 9, groups=[group], require_stable=False).groups[0]
        self._note(f"{name} asks {epoch}", answer.error_code, len(answer.topics))

    def look(self) -> None:
        asked = {"group_ids": [self._group], "include_authorized_operations": False}
        group = self._client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups[0]
        members = sorted(
            (
                member.member_id,
                member.instance_id or "",
                member.member_epoch,
                sorted(member.subscribed_topic_names),
                *(
                    sum(len(row.partitions) for row in places.topic_partitions)
                    for places in (member.assignment, member.target_assignment)
                ),
            )
            for member in group.members
        )
        self._note("look", group.group_state, group.group_epoch, group.assignment_epoch, members)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_running(tmp_path_factory.mktemp("kafka") / "kafka", SETTINGS) as started:
        yield started.address


@contextmanager
def asking(address: str) -> Iterator[Client]:
    host, port = address.rsplit(":", 1)
    with Client((host, int(port))) as client:
        client.create(TOPIC, PARTITIONS)
        asked = {"group_ids": ["g"], "include_authorized_operations": False}
        while client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]).coordinators[0].error_code:
            pass
        while client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups[0].error_code in STARTING:
            pass
        yield client


def told_by(address: str, seeds: range) -> list[list[tuple[Any, ...]]]:
    with asking(address) as client:
        scripts = [Script(client, seed) for seed in seeds]
        for script in scripts:
            script.run()
    return [script.said for script in scripts]


def told_of_both_protocols(address: str) -> list[list[tuple[Any, ...]]]:
    with asking(address) as client:
        groups = [MixedGroup(client, f"mixed-{n}", TOPIC, PARTITIONS) for n in range(4)]
        up_and_down(groups[0], eager=True)
        up_and_down(groups[1], eager=False)
        static(groups[2])
        strangers(groups[3])
    return [group.said for group in groups]


def test_a_group_changes_its_protocol_alike(kafka: str, tmp_path: Path) -> None:
    with running(tmp_path / "data", None) as tierd:
        ours = told_of_both_protocols(tierd.address)
        assert tierd.stop() == 0
    assert ours == told_of_both_protocols(kafka)


def test_any_order_is_answered_alike(kafka: str, tmp_path: Path) -> None:
    with running(tmp_path / "data", None) as tierd:
        ours = told_by(tierd.address, SEEDS)
        assert tierd.stop() == 0
    for seed, mine, its in zip(SEEDS, ours, told_by(kafka, SEEDS), strict=True):
        at = next((n for n, (one, other) in enumerate(zip(mine, its, strict=False)) if one != other), None)
        if at is not None:
            before = [str(facts) for facts in its[max(at - 8, 0) : at]]
            pytest.fail("\n".join([f"seed {seed}", *before, f"tierd {mine[at]}", f"Kafka {its[at]}"]))
        assert len(mine) == len(its) > STEPS // 2
