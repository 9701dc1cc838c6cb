"""`kill -9` at each write of a transaction: whole or unseen afterwards, in every partition and for its offsets."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from kit.daemon import Daemon
from kit.mined import BROKER, MINE, Mine, hit_file
from kit.transactions import SMALL, values
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WRITES = r"^pwrite .*/(t-\d|__transaction_state-\d|__consumer_offsets-\d)/.*\.log$"
PARTITIONS = 3
RECORDS = 3
GROUP = "group"
STEPS = 16
"""More than a transaction has writes: added partitions, batches, offsets, the decision, markers, the end."""


@dataclass
class Writer:
    """A client of the newest protocol, request by request."""

    client: Client
    producer_id: int = -1
    epoch: int = -1

    def init(self) -> None:
        """Ends whatever transaction is open, as every client does when it begins."""
        while True:
            told = self.client.call(
                ApiKey.INIT_PRODUCER_ID, 5, transactional_id="x", transaction_timeout=60_000, producer_id=-1,
                producer_epoch=-1,
            )  # fmt: skip
            if told.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                assert told.error_code == ErrorCode.NONE
                self.producer_id, self.epoch = told.producer_id, told.producer_epoch
                return

    def transaction(self, number: int, *, commit: bool) -> None:
        """Returns once its end is acknowledged. Raises ConnectionError when the broker dies first."""
        for partition in range(PARTITIONS):
            self._produce(number, partition)
        self._offsets(number)
        told = self.client.call(
            ApiKey.END_TXN, 5, transactional_id="x", producer_id=self.producer_id, producer_epoch=self.epoch,
            committed=commit,
        )  # fmt: skip
        assert told.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = told.producer_id, told.producer_epoch

    def _produce(self, number: int, partition: int) -> None:
        records = batch(
            RECORDS, size=number, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=0,
            attributes=0x10,
        )  # fmt: skip
        while True:  # the end of the last transaction may still be on its way
            error = self.client.produce("t", records, partition, version=12, transactional_id="x").error_code
            if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                assert error == ErrorCode.NONE
                return

    def _offsets(self, number: int) -> None:
        part = {
            "partition_index": 0, "committed_offset": number, "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip
        told = self.client.call(
            ApiKey.TXN_OFFSET_COMMIT, 5, transactional_id="x", group_id=GROUP, producer_id=self.producer_id,
            producer_epoch=self.epoch, topics=[{"name": "t", "partitions": [part]}],
        )  # fmt: skip
        assert told.topics[0].partitions[0].error_code == ErrorCode.NONE


@dataclass
class World:
    """A mined tierd and what its transactions promised: the number of one is the length of its records."""

    tierd: Daemon
    mine: Path
    promised: int = 0
    """The last one whose end was acknowledged as a commit."""

    def connect(self) -> Client:
        host, port = self.tierd.address.rsplit(":", 1)
        return Client((host, int(port)))

    def die_at(self, number: int, step: Mine, *, commit: bool) -> bool:
        """Run transaction *number* until the mine goes off; False when it never did."""
        with self.connect() as client:
            writer = Writer(client)
            writer.init()
            step.lay(self.mine)
            try:
                writer.transaction(number, commit=commit)
                self.promised = number if commit else self.promised
                self._after(client)
            except ConnectionError:
                pass
        self.mine.unlink(missing_ok=True)
        self.tierd.kill()
        self.tierd.start()
        return hit_file(self.mine).exists()

    def _after(self, client: Client) -> None:
        """The markers may follow the answer: let the mine have its chance until they are there."""
        while self._open(client):
            pass

    def _open(self, client: Client) -> bool:
        ends = [self._ends(client, partition) for partition in range(PARTITIONS)]
        return any(stable != end for stable, end in ends)

    def _ends(self, client: Client, partition: int) -> tuple[int, int]:
        asked = [{"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}]
        both = [
            client.call(2, 8, replica_id=-1, isolation_level=level, topics=[{"name": "t", "partitions": asked}])
            for level in (1, 0)
        ]
        stable, end = (told.topics[0].partitions[0].offset for told in both)
        return stable, end

    def check(self, number: int, *, commit: bool) -> None:
        """Transaction *number* is whole or unseen, the ones before it are what they were, nothing hangs."""
        with self.connect() as client:
            Writer(client).init()
            assert not self._open(client)
            offset = self._offset(client)
        seen = [len(value) for value in values(self.tierd.address, "t", partitions=PARTITIONS)]
        whole = seen.count(number) == RECORDS * PARTITIONS
        assert whole or number not in seen
        assert not whole or commit
        assert whole or self.promised != number
        assert offset == (number if whole else self.last)
        self.last = offset
        before = [size for size in seen if size != number]
        assert all(before.count(size) == RECORDS * PARTITIONS for size in set(before))
        assert {size for size in before} == self.whole
        self.whole |= {number} if whole else set()

    def _offset(self, client: Client) -> int:
        group = {"group_id": GROUP, "topics": [{"name": "t", "partition_indexes": [0]}]}
        told: Any = client.call(ApiKey.OFFSET_FETCH, 9, groups=[group], require_stable=True)
        row = told.groups[0].topics[0].partitions[0]
        assert row.error_code == ErrorCode.NONE
        offset: int = row.committed_offset
        return offset

    def __post_init__(self) -> None:
        self.last = -1
        self.whole: set[int] = set()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    mine = tmp_path / "mine"
    tierd = Daemon(
        tmp_path / "data", None, None, SMALL, {MINE: str(mine), "PYTHONPATH": os.pathsep.join(_paths())},
        program=("-m", "kit.mined"),
    )  # fmt: skip
    try:
        tierd.start()
        host, port = tierd.address.rsplit(":", 1)
        with Client((host, int(port))) as client:
            assert client.create("t", PARTITIONS).error_code == 0
        yield World(tierd, mine)
    finally:
        tierd.kill()


def _paths() -> list[str]:
    tests = Path(__file__).parents[1]
    return [str(tests), str(tests.parent)]


def rounds(world: World, steps: list[tuple[int, bool, bool]]) -> int:
    """How many of *steps* (nth write, whether after it, whether to commit) have killed the broker."""
    hits = 0
    for number, (nth, after, commit) in enumerate(steps, 1):
        mine = Mine(role=BROKER, step=WRITES, nth=nth, after=after, victims=(BROKER,))
        hits += world.die_at(number, mine, commit=commit)
        world.check(number, commit=commit)
    return hits


def test_some_kills_leave_transactions_whole_or_unseen(world: World) -> None:
    steps = [(3, True, True), (9, True, True), (10, True, True), (11, True, False), (12, False, True)]
    assert rounds(world, steps) == len(steps)


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_kill_at_every_write_leaves_transactions_whole_or_unseen(world: World, after: bool, commit: bool) -> None:
    hits = rounds(world, [(nth, after, commit) for nth in range(1, STEPS + 1)])
    assert 12 <= hits < STEPS
