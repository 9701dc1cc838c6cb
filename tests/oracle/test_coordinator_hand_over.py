"""A directory goes from tierd to Kafka, or back, with a transaction open: its producer ends it there."""

import time
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from kit.daemon import running
from kit.kafka import opened
from kit.kafka import running as kafka_running
from kit.transactions import AGAIN, SMALL, values
from tierd.storage.header import TRANSACTIONAL
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

pytestmark = [pytest.mark.kafka, pytest.mark.e2e, pytest.mark.timeout(300)]

FIRST, SECOND, THIRD, ABORTED = range(1, 5)
"""Sizes of the values that tell transactions apart."""
STATE = "__transaction_state"
NOT_YET = (*AGAIN, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The broker begins, or a transaction is being ended."""


class Producers:
    """Of two transactional ids: one has ended its transactions, the other one is in its second."""

    def __init__(self) -> None:
        self.of: dict[str, tuple[int, int]] = {}

    def begin(self, address: str) -> None:
        with _client(address) as client:
            client.create("t", 2)
            _patiently(client, ApiKey.FIND_COORDINATOR, 2, key="open", key_type=1)  # Kafka makes its topic now
            for name in ("ended", "open"):
                self._init(client, name)
                self._produce(client, name, FIRST)
                self._end(client, name, commit=True)
            self._produce(client, "ended", ABORTED)
            self._end(client, "ended", commit=False)
            self._produce(client, "open", SECOND)

    def go_on(self, address: str) -> None:
        with _client(address) as client:
            self._end(client, "open", commit=True)
            self._produce(client, "ended", THIRD)
            self._end(client, "ended", commit=True)
            before = self.of["open"]
            self._init(client, "open")
            assert self.of["open"] == (before[0], before[1] + 1)
            told = _patiently(client, ApiKey.LIST_TRANSACTIONS, 0, state_filters=(), producer_id_filters=())
            found = {row.transactional_id: (row.producer_id, row.transaction_state) for row in told.transaction_states}
            assert found == {
                "ended": (self.of["ended"][0], "CompleteCommit"),
                "open": (self.of["open"][0], "Empty"),
            }

    def _init(self, client: Client, name: str) -> None:
        told = _patiently(client, ApiKey.INIT_PRODUCER_ID, 5, transactional_id=name, transaction_timeout=600_000)
        self.of[name] = told.producer_id, told.producer_epoch

    def _produce(self, client: Client, name: str, size: int) -> None:
        producer_id, epoch = self.of[name]
        for partition in (0, 1):
            raw = batch(
                1, t0=time.time_ns() // 1_000_000, size=size, producer_id=producer_id, producer_epoch=epoch,
                base_sequence=0, attributes=TRANSACTIONAL,
            )  # fmt: skip
            for _ in range(2000):
                error = client.produce("t", raw, partition, version=12, transactional_id=name).error_code
                if error not in NOT_YET:
                    break
            assert error == ErrorCode.NONE

    def _end(self, client: Client, name: str, *, commit: bool) -> None:
        producer_id, epoch = self.of[name]
        told = _patiently(
            client, ApiKey.END_TXN, 5, transactional_id=name, producer_id=producer_id, producer_epoch=epoch,
            committed=commit,
        )  # fmt: skip
        assert told.producer_epoch == epoch + 1
        self.of[name] = told.producer_id, told.producer_epoch


def _client(address: str) -> Client:
    host, port = address.rsplit(":", 1)
    return Client((host, int(port)))


def _patiently(client: Client, key: ApiKey, version: int, /, **fields: Any) -> Any:
    for _ in range(2000):
        told = client.call(key, version, **fields)
        if told.error_code not in NOT_YET:
            assert told.error_code == ErrorCode.NONE, ErrorCode(told.error_code)
            return told
    pytest.fail(f"always {ErrorCode(told.error_code).name}")


def check(address: str) -> None:
    sizes = sorted(len(value) for value in values(address, "t", partitions=2))
    assert sizes == [FIRST] * 4 + [SECOND] * 2 + [THIRD] * 2


def test_from_tierd_to_kafka(tmp_path: Path) -> None:
    producers = Producers()
    with running(tmp_path / "data", None, *SMALL) as tierd:
        producers.begin(tierd.address)
        assert tierd.stop() == 0
    many = {"transaction.state.log.num.partitions": "3"}
    with opened(tmp_path / "kafka", tmp_path / "data", ["t", STATE], many) as kafka:
        producers.go_on(kafka.address)
        check(kafka.address)


def test_from_kafka_to_tierd(tmp_path: Path) -> None:
    producers = Producers()
    with kafka_running(tmp_path / "kafka") as kafka:
        producers.begin(kafka.address)
        kafka.stop()
        with running(kafka.data, None, *SMALL) as tierd:
            producers.go_on(tierd.address)
            check(tierd.address)
            assert tierd.stop() == 0
