"""The transaction coordinator, asked in any order by several producers of one id: the answers of Kafka 4.3.1."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from broker.client import Client
from kit.daemon import running
from kit.kafka import running as kafka_running
from kit.transactions import SMALL
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.schema import Input, reader

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 400
STARTING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
Producer = tuple[int, int]


class Script:
    """Sends requests by the dice, and writes down what came back; producer ids by the order in which they came."""

    def __init__(self, client: Client, name: str, dice: Random, *, newest: bool) -> None:
        """*newest*: transaction version 2."""
        self.said: list[tuple[Any, ...]] = []
        self._client = client
        self._name = name
        self._dice = dice
        self._newest = newest
        self._ids: list[int] = []
        self._known: list[Producer] = [(12345, 0)]

    def starting(self) -> bool:
        return self._described().error_code in STARTING

    def run(self) -> None:
        steps = [self.init, self.go_on, self.add, self.verify, self.add_offsets, self.end, self.end, self.look]
        for _ in range(STEPS):
            self._dice.choice(steps)()
            self._settle()

    def _note(self, what: str, *facts: Any) -> None:
        self.said.append((len(self.said), what, *facts))

    def _number(self, producer_id: int) -> int:
        if producer_id >= 0 and producer_id not in self._ids:
            self._ids.append(producer_id)
        return self._ids.index(producer_id) if producer_id >= 0 else -1

    def _who(self) -> Producer:
        """One of the newest, or an epoch that nobody was given."""
        producer_id, epoch = self._dice.choice(self._known[-4:])
        return producer_id, epoch + (self._dice.random() < 0.1)

    def _told(self, what: str, asked: Producer | None, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        told = (answer.producer_id, answer.producer_epoch)
        self._note(what, asked and asked[1], error.name, self._number(told[0]), told[1])
        if error is ErrorCode.NONE:
            self._known.append(told)

    # requests

    def init(self) -> None:
        self._ask_init(None, 5)

    def go_on(self) -> None:
        self._ask_init(self._who(), self._dice.choice((3, 5)))

    def _ask_init(self, given: Producer | None, version: int) -> None:
        producer_id, epoch = given or (-1, -1)
        while True:
            answer = self._client.call(
                ApiKey.INIT_PRODUCER_ID, version, transactional_id=self._name, transaction_timeout=60_000,
                producer_id=producer_id, producer_epoch=epoch,
            )  # fmt: skip
            if answer.error_code not in STARTING:
                break
        self._told(f"init {version}", given, answer)

    def add(self) -> None:
        topic, partition = self._dice.choice((("t", 0), ("t", 1), ("t", 9), ("none", 0)))
        self._ask_add(self._who(), topic, partition, verify=False)

    def verify(self) -> None:
        self._ask_add(self._who(), "t", self._dice.choice((0, 1)), verify=True)

    def _ask_add(self, producer: Producer, topic: str, partition: int, *, verify: bool) -> None:
        topics = [{"name": topic, "partitions": [partition]}]
        if not self._newest and not verify:
            version = self._dice.choice((0, 1, 2, 3))
            answer = self._client.call(
                ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=producer[0], v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=topics,
            )  # fmt: skip
            rows = answer.results_by_topic_v3_and_below
        else:
            version = self._dice.choice((4, 5))
            asked = {
                "transactional_id": self._name, "producer_id": producer[0], "producer_epoch": producer[1],
                "verify_only": verify, "topics": topics,
            }  # fmt: skip
            answer = self._client.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[asked])
            rows = answer.results_by_transaction[0].topic_results
        error = ErrorCode(rows[0].results_by_partition[0].partition_error_code)
        self._note(f"add {version} {topic}-{partition} {verify}", producer[1], error.name)

    def add_offsets(self) -> None:
        producer = self._who()
        version = self._dice.choice((0, 1, 2, 4))
        if self._newest:  # They make it a transaction of the older protocol.
            return
        answer = self._client.call(
            ApiKey.ADD_OFFSETS_TO_TXN, version, transactional_id=self._name, producer_id=producer[0],
            producer_epoch=producer[1], group_id="g",
        )  # fmt: skip
        self._note(f"offsets {version}", producer[1], ErrorCode(answer.error_code).name)

    def end(self) -> None:
        producer, commit = self._who(), self._dice.random() < 0.5
        version = 5 if self._newest else self._dice.choice((0, 1, 2, 4))
        answer = self._client.call(
            ApiKey.END_TXN, version, transactional_id=self._name, producer_id=producer[0],
            producer_epoch=producer[1], committed=commit,
        )  # fmt: skip
        if self._newest:
            self._told(f"end {commit}", producer, answer)
        else:
            self._note(f"end {version} {commit}", producer[1], ErrorCode(answer.error_code).name)

    def look(self) -> None:
        found = self._described()
        own = [topic for topic in found.topics if topic.topic == "t"]  # offsets: by the number of partitions
        places = sorted(number for topic in own for number in topic.partitions), len(found.topics)
        begun = None if found.transaction_start_time is None else found.transaction_start_time.timestamp() > 0
        error = ErrorCode(found.error_code)
        number = -1 if error else self._number(found.producer_id)
        self._note("look", error.name, found.transaction_state, number, found.producer_epoch, places, begun)
        for filters in (
            {"state_filters": ["Ongoing", "Nothing"]},
            {"producer_id_filters": [self._known[-1][0]]},
            {"duration_filter": 3_600_000},
            {"transactional_id_pattern": self._name[:2] + ".*"},
        ):
            asked = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1, **filters}
            told = self._client.call(ApiKey.LIST_TRANSACTIONS, 2, **asked)
            names = [row.transactional_id for row in told.transaction_states if row.transactional_id == self._name]
            self._note(f"list {list(filters)}", int(told.error_code), names, list(told.unknown_state_filters))

    # what is there

    def _described(self) -> Any:
        """By our own reader: kio's refuses a time of -1."""
        self._client.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self._name])
        raw = self._client.frame()
        schema = load_response_schema(ApiKey.DESCRIBE_TRANSACTIONS, 0)
        _, position = entity_reader(schema.__header_schema__)(raw, 0)
        return reader(schema)(Input(memoryview(raw), position)).transaction_states[0]

    def _settle(self) -> None:
        """Wait until no transaction is being ended."""
        while self._described().transaction_state.startswith("Prepare"):
            pass


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_running(tmp_path_factory.mktemp("kafka") / "kafka") as kafka:
        yield kafka.address


def told_by(address: str, *, newest: bool, seed: int) -> list[tuple[Any, ...]]:
    host, port = address.rsplit(":", 1)
    with Client((host, int(port))) as client:
        client.create("t", 2)
        for kind in (0, 1):  # Kafka makes its topics now
            asked = {"key_type": kind, "coordinator_keys": ["x"]}
            while client.call(ApiKey.FIND_COORDINATOR, 4, **asked).coordinators[0].error_code:
                pass
        script = Script(client, f"{'new' if newest else 'old'}{seed}", Random(seed), newest=newest)
        while script.starting():
            pass
        script.run()
        return script.said


@pytest.mark.parametrize("newest", [True, False])
def test_any_order_is_answered_alike(kafkas: str, tmp_path: Path, newest: bool) -> None:
    with running(tmp_path / "data", None, *SMALL) as tierd:
        ours = [told_by(tierd.address, newest=newest, seed=seed) for seed in range(3)]
        assert tierd.stop() == 0
    theirs = [told_by(kafkas, newest=newest, seed=seed) for seed in range(3)]
    for mine, its in zip(ours, theirs, strict=True):
        differ = [f"tierd {one}, Kafka {other}" for one, other in zip(mine, its, strict=False) if one != other]
        assert not differ, "\n".join(differ[:5])
        assert len(mine) == len(its) > STEPS
