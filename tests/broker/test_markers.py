"""Ends of transactions as the broker writes them: readers wake, answers wait for the disk, what is refused."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch, offsets_of
from broker.file_tier import FileTier
from broker.running import Running, running
from tierd.base.ids import TopicPartition
from tierd.broker.markers import Markers
from tierd.broker.transactions.model import State
from tierd.broker.transactions.ports import Marker
from tierd.remote.view import Claim, ClaimState
from tierd.storage.log import Log
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

T = TopicPartition("t", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)


def begin(client: Client, **config: str) -> tuple[int, int]:
    """A topic with a transaction of two records; its producer."""
    assert client.create("t", **config).error_code == 0
    told = client.call(
        ApiKey.INIT_PRODUCER_ID, 5, transactional_id="x", transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    producer = told.producer_id, told.producer_epoch
    records = batch(2, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, attributes=0x10)
    assert client.produce("t", records, version=12, transactional_id="x").error_code == 0
    return producer


def marker(
    client: Client, producer: tuple[int, int], *, topic: str = "t", commit: bool = True, coordinator_epoch: int = 9
) -> int:
    written = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
    }
    told = client.call(ApiKey.WRITE_TXN_MARKERS, 1, markers=[written])
    return int(told.markers[0].topics[0].partitions[0].error_code)


def test_a_reader_of_committed_records_wakes_at_the_end(broker: Running, client: Client) -> None:
    producer = begin(client)
    with Client(broker.address) as reader:
        reader.send_fetch([("t", 0, 0, 1 << 20)], max_wait=15_000, isolation_level=1)
        assert marker(client, producer) == 0
        [row] = reader.fetched()
    assert (offsets_of(row.records), row.last_stable_offset, row.high_watermark) == ([0, 1, 2], 3, 3)


def test_an_end_that_is_there_already_is_not_written_again(broker: Running, client: Client) -> None:
    producer = begin(client)
    for _ in range(2):
        assert marker(client, producer, commit=False) == 0
        assert broker.log("t").log_end == 3


def test_the_answer_waits_for_the_disk_where_the_topic_asks_for_it(broker: Running, client: Client) -> None:
    producer = begin(client, tierd_acks_durability="disk")
    log = broker.log("t")
    assert (log.last_stable, log.recovery_point) == (0, 2)
    row = _status(broker)
    assert (row["last_stable"], row["log_end"]) == (0, 2)
    assert row["open_transaction"] == f"producer {producer[0]} has had a transaction open since offset 0"
    assert marker(client, producer) == 0
    assert (log.last_stable, log.recovery_point, log.log_end) == (3, 3, 3)
    assert _status(broker)["open_transaction"] is None


def _status(broker: Running) -> dict[str, Any]:
    document: dict[str, Any] = broker.run(broker.broker.status())
    return next(row for row in document["partitions"] if row["topic"] == "t")


@pytest.mark.parametrize("writes_on", [True, False])
def test_a_tools_marker_of_a_later_epoch_does_not_keep_the_coordinators_out(
    broker: Running, client: Client, writes_on: bool
) -> None:
    producer_id, epoch = begin(client)
    assert marker(client, (producer_id, epoch), commit=False, coordinator_epoch=1_000_000) == 0
    if writes_on:
        more = batch(2, producer_id=producer_id, producer_epoch=epoch, base_sequence=2, attributes=0x10)
        assert client.produce("t", more, version=12, transactional_id="x").error_code == 0
    asked = {"transactional_id": "x", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    assert client.call(ApiKey.END_TXN, 5, **asked).error_code == 0

    async def ended() -> None:
        while broker.log("t").last_stable < broker.log("t").log_end or (await state()) is not State.COMPLETE_COMMIT:
            await asyncio.sleep(0)

    async def state() -> State | None:
        found = await broker.broker.parts.transactions.describe("x")
        return None if found is None else found.state

    broker.run(asyncio.wait_for(ended(), 60))


def test_refusals(broker: Running, client: Client) -> None:
    producer_id, epoch = begin(client)
    assert marker(client, (producer_id, epoch), topic="nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert marker(client, (producer_id, epoch - 1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    broker.log("t").failed = "an fsync failed"
    assert marker(client, (producer_id, epoch)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.log("t").last_stable == 0


@pytest.mark.parametrize("asks", ["produce", "marker"])
def test_a_failing_disk_that_an_append_meets_first_is_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    with running(tmp_path, data_dirs=(tmp_path / "a", tmp_path / "b")) as broker, Client(broker.address) as client:
        producer = begin(client)
        directory = broker.log("t").directory.parent

        def fails(*args: object, **more: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as disk:
            disk.setattr(Log, "append", fails)
            told = client.produce("t", batch()).error_code if asks == "produce" else marker(client, producer)
        assert told == ErrorCode.KAFKA_STORAGE_ERROR
        bad = {home.path: home.directory.health.reason for home in broker.partitions.homes if home.directory}
        assert [path for path, reason in bad.items() if reason] == [directory]


def offset(client: Client) -> tuple[int, int]:
    group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    told = client.call(ApiKey.OFFSET_FETCH, 9, groups=[group], require_stable=True)
    row = told.groups[0].topics[0].partitions[0]
    return row.committed_offset, int(row.error_code)


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_that_hangs_are_let_go(tmp_path: Path, commit: bool) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        producer_id, epoch = begin(client)
        part = {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": -1, "committed_metadata": ""}
        told = client.call(
            ApiKey.TXN_OFFSET_COMMIT,
            5,
            transactional_id="x",
            group_id="g",
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[{"name": "t", "partitions": [part]}],
        )
        assert told.topics[0].partitions[0].error_code == 0
        assert offset(client) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        held = [p for p in broker.partitions if p.internal and p.log.in_transaction(producer_id, epoch)]
        [place] = [p.name for p in held]
        assert place.topic == OFFSETS.topic
        asked = {"name": place.topic, "partition_indexes": [place.partition]}
        written = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "topics": [asked],
            "coordinator_epoch": 9,
        }
        told = client.call(ApiKey.WRITE_TXN_MARKERS, 1, markers=[written])
        assert told.markers[0].topics[0].partitions[0].error_code == 0
        seen = offset(client)
    assert seen == ((2, 0) if commit else (-1, 0))
    with running(tmp_path) as broker, Client(broker.address) as client:
        assert offset(client) == seen


class UnreadableOffsets:
    async def ready(self, partition: int) -> bool:
        return False

    def ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        raise AssertionError("nothing was written")


def test_offsets_that_cannot_be_read_wait_and_the_rest_goes_on(broker: Running, client: Client) -> None:
    producer_id, epoch = begin(client)
    markers = Markers(
        broker.partitions,
        None,
        broker.clock,
        broker.broker.commits,
        UnreadableOffsets(),
        appended=broker.broker.housekeeping.appended,
    )
    done = broker.run(markers.write(Marker(producer_id, epoch, 0, commit=True), [OFFSETS, T]))
    assert done == {OFFSETS: ErrorCode.NOT_LEADER_OR_FOLLOWER, T: ErrorCode.NONE}
    assert broker.log("t").last_stable == 3


def test_who_has_lost_the_bucket_ends_nothing(tmp_path: Path) -> None:
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier) as broker, Client(broker.address) as client:
        producer = begin(client)
        tier.claim = Claim(state=ClaimState.LOST, epoch=1, detail="somebody else")
        assert marker(client, producer) == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.log("t").log_end == 2
