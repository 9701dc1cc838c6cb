"""Produce, Fetch and committed offsets by topic name and id, in sessions and without: the answers of Kafka 4.3.1."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from broker.client import Client, batch
from broker.running import running
from kit.kafka import running as kafka_running
from tierd.wire.errors import ErrorCode

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 400
NAMES = ("a", "b", "c")
PARTITIONS = 2
NOBODY = UUID(int=1 << 77)
PRODUCE, FETCH, METADATA, COMMIT, OFFSETS, COORDINATOR, CREATE, DELETE = 0, 1, 3, 8, 9, 10, 19, 20


class Reader:
    """What one client thinks of its session."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.session = self.epoch = 0


class Script:
    """Sends requests by the dice, and writes down what came back, with ids told by whose they are."""

    def __init__(self, client: Client, dice: Random) -> None:
        self.said: list[tuple[Any, ...]] = []
        self._client = client
        self._dice = dice
        self._ids: dict[str, list[UUID]] = {name: [] for name in NAMES}
        self._labels: dict[UUID, str] = {NOBODY: "nobody"}
        self._readers = [Reader(version) for version in (7, 11, 12, 13, 16, 17, 18, 18)]
        self._made = 0

    def run(self) -> None:
        for name in NAMES:
            self._create(name)
        self._wait(lambda: self._committed_to("a", 0) == 0)
        steps = [self.produce, self.produce, self.commit, self.offsets, *[self.fetch] * 12]
        for number in range(STEPS):
            if number % 100 == 99:
                self.renew()
            else:
                self._dice.choice(steps)()

    def _note(self, what: str, *facts: Any) -> None:
        self.said.append((len(self.said), what, *facts))

    # Topics.

    def _shown(self, name: str) -> Any:
        return self._client.call(
            METADATA, 12, topics=[{"name": name, "topic_id": None}], allow_auto_topic_creation=False
        ).topics[0]

    def _wait(self, until: Callable[[], bool]) -> None:
        for _ in range(100_000):
            if until():
                return
        raise AssertionError("the broker does not settle")

    def _create(self, name: str) -> None:
        self._made += 1
        assert not self._client.create(name, PARTITIONS).error_code
        self._wait(lambda: self._leads(name))
        topic_id = self._shown(name).topic_id
        self._ids[name].append(topic_id)
        self._labels[topic_id] = f"{name}{self._made}"
        self._wait(lambda: all(self._read_alone(topic_id, n) == 0 for n in range(PARTITIONS)))

    def _leads(self, name: str) -> bool:
        shown = self._shown(name)
        return len(shown.partitions) == PARTITIONS and not any(row.error_code for row in shown.partitions)

    def _read_alone(self, topic_id: UUID, partition: int) -> int:
        got = self._ask(Reader(17), [(topic_id, partition, 0)], [], session=0, epoch=-1)
        return int(got.responses[0].partitions[0].error_code)

    def renew(self) -> None:
        """A topic goes; sometimes another one gets its name."""
        name = self._dice.choice(NAMES)
        if self._shown(name).error_code:
            self._create(name)
            return
        old = self._ids[name][-1]
        self._client.call(DELETE, 6, topics=[{"name": name, "topic_id": None}], timeout=5000)
        self._wait(lambda: bool(self._shown(name).error_code))
        self._wait(lambda: self._read_alone(old, 0) == ErrorCode.UNKNOWN_TOPIC_ID)
        self._wait(lambda: self._has_no_offsets(name))
        if self._dice.random() < 0.7:
            self._create(name)

    def _topic(self, *, by_id: bool) -> Any:
        """A topic's name or id; now and then an older one, or none at all."""
        name = self._dice.choice(NAMES)
        if not by_id:
            return "nobody" if self._dice.random() < 0.05 else name
        ids = self._ids[name]
        luck = self._dice.random()
        return NOBODY if luck < 0.05 else ids[0] if luck < 0.15 else ids[-1]

    def _label(self, topic: Any) -> str:
        return topic if isinstance(topic, str) else self._labels[topic]

    # Requests.

    def produce(self) -> None:
        version = self._dice.choice((9, 12, 13, 13))
        topic, partition = self._topic(by_id=version >= 13), self._dice.choice((0, 0, 1, 9))
        key = "topic_id" if version >= 13 else "name"
        rows = [{key: topic, "partition_data": [{"index": partition, "records": batch(self._dice.randint(1, 3))}]}]
        got = self._client.call(PRODUCE, version, transactional_id=None, acks=-1, timeout=5000, topic_data=rows)
        answer = got.responses[0].partition_responses[0]
        told = self._label(getattr(got.responses[0], key))
        self._note("produce", version, told, partition, ErrorCode(answer.error_code).name, answer.base_offset)

    def fetch(self) -> None:
        reader = self._dice.choice(self._readers)
        by_id = reader.version >= 13
        wanted = {
            (self._topic(by_id=by_id), self._dice.choice((0, 1, 1, 7))): self._dice.choice((0, 0, 1, 4, 90))
            for _ in range(self._dice.choice((0, 0, 1, 2, 3)))
        }
        forgotten = [(self._topic(by_id=by_id), n) for n in range(2) if self._dice.random() < 0.1]
        luck = self._dice.random()
        session, epoch = reader.session, reader.epoch
        if luck < 0.05:
            epoch = self._dice.choice((epoch + 1, epoch - 1, 2**31 - 1, -3, 0, -1))
        elif luck < 0.08:
            session = self._dice.choice((0, 1))
        elif luck < 0.1:
            session, epoch = 0, -1
        version = self._dice.choice((12, 17)) if luck > 0.98 else reader.version
        if (version >= 13) != by_id:
            wanted, forgotten = {}, []
        asked = Reader(version)
        got = self._ask(asked, [(*place, at) for place, at in wanted.items()], forgotten, session, epoch)
        self._told(reader, asked, session, epoch, got)

    def _ask(self, reader: Reader, wanted: Any, forgotten: Any, session: int, epoch: int) -> Any:
        key, old = ("topic_id", {}) if reader.version >= 13 else ("topic", {"replica_id": -1})
        topics = [
            {key: topic, "partitions": [{"partition": n, "fetch_offset": at, "partition_max_bytes": 1 << 20}]}
            for topic, n, at in wanted
        ]
        leaving = [{key: topic, "partitions": [n]} for topic, n in forgotten]
        asked = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "rack_id": "", "isolation_level": 0, **old}
        asked |= {} if reader.version >= 15 else {"replica_id": -1}
        return self._client.call(
            FETCH,
            reader.version,
            **asked,
            session_id=session,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=leaving,
        )

    def _told(self, reader: Reader, asked: Reader, session: int, epoch: int, got: Any) -> None:
        key = "topic_id" if asked.version >= 13 else "topic"
        rows = sorted(
            (
                self._label(getattr(topic, key)),
                row.partition_index,
                ErrorCode(row.error_code).name,
                row.high_watermark,
                row.last_stable_offset,
                row.log_start_offset,
                len(row.records or b""),
            )
            for topic in got.responses
            for row in topic.partitions
        )
        error = ErrorCode(got.error_code)
        kept = "none" if not got.session_id else "same" if got.session_id == session else "new"
        self._note("fetch", asked.version, epoch, session != 0, error.name, kept, rows)
        if error is ErrorCode.NONE:
            reader.session = got.session_id
            reader.epoch = 0 if not got.session_id else 1 if kept == "new" else max(epoch, 0) % (2**31 - 1) + 1
        elif self._dice.random() < 0.7:
            reader.epoch = 0

    def commit(self) -> None:
        version = self._dice.choice((8, 9, 10, 10))
        topic, partition = self._topic(by_id=version >= 10), self._dice.choice((0, 1, 1, 9))
        key = "topic_id" if version >= 10 else "name"
        offset = self._dice.randrange(100)
        rows = [{key: topic, "partitions": [{"partition_index": partition, "committed_offset": offset}]}]
        got = self._client.call(COMMIT, version, **ALONE, topics=rows)
        told = [
            (self._label(getattr(topic, key)), row.partition_index, ErrorCode(row.error_code).name)
            for topic in got.topics
            for row in topic.partitions
        ]
        self._note("commit", version, offset, told)

    def _committed_to(self, name: str, partition: int) -> int:
        self._client.call(COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        rows = [{"name": name, "partitions": [{"partition_index": partition, "committed_offset": 1}]}]
        return int(self._client.call(COMMIT, 9, **ALONE, topics=rows).topics[0].partitions[0].error_code)

    def _has_no_offsets(self, name: str) -> bool:
        asked = [{"group_id": "g", "topics": [{"name": name, "partition_indexes": [0, 1]}]}]
        (got,) = self._client.call(OFFSETS, 9, groups=asked, require_stable=False).groups
        return all(row.committed_offset < 0 for row in got.topics[0].partitions)

    def offsets(self) -> None:
        version = self._dice.choice((8, 9, 10, 10))
        key = "topic_id" if version >= 10 else "name"
        topics = None
        if self._dice.random() < 0.8:
            topics = [{key: self._topic(by_id=version >= 10), "partition_indexes": [0, 1, 9]}]
        asked = [{"group_id": "g", "topics": topics}]
        (got,) = self._client.call(OFFSETS, version, groups=asked, require_stable=False).groups
        told = sorted(
            (
                self._label(getattr(topic, key)),
                row.partition_index,
                row.committed_offset,
                ErrorCode(row.error_code).name,
            )
            for topic in got.topics
            for row in topic.partitions
        )
        self._note("offsets", version, ErrorCode(got.error_code).name, told)


ALONE = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}


def test_the_same_answers_to_the_same_requests(tmp_path: Path) -> None:
    said = []
    with kafka_running(tmp_path / "kafka") as kafka:
        host, port = kafka.address.rsplit(":", 1)
        with Client((host, int(port))) as client:
            script = Script(client, Random(11))
            script.run()
            said.append(script.said)
    with running(tmp_path / "tierd") as broker, Client(broker.address) as client:
        script = Script(client, Random(11))
        script.run()
        said.append(script.said)
    for kafkas, ours in zip(*said, strict=True):
        assert ours == kafkas
