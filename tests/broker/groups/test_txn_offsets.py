"""TxnOffsetCommit through the handlers: who may, what is seen when, and the same after a restart."""

from typing import Any

import pytest

from tierd.broker.groups.codec import CommitKey, encode_commit_key
from tierd.broker.groups.model import GroupLimits
from tierd.broker.groups.txn_store import TransactionalOffsets
from tierd.storage.batch import ControlType, encode_control_batch, walk
from tierd.storage.records import iter_records
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

from .fake_log import FakeLog
from .fake_verifier import OneTransaction
from .rig import Rig, commit, error_of_commit, fetched, lonely_member, request, run

PRODUCER = 7


def txn_commit(version: int, offset: int, *, topic: str = "t1", producer: int = PRODUCER, **who: Any) -> Any:
    part = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": 4,
        "committed_metadata": "m",
    }
    values: dict[str, Any] = {
        "transactional_id": "x",
        "group_id": "g",
        "producer_id": producer,
        "producer_epoch": 0,
        "topics": [{"name": topic, "partitions": [part]}],
    }
    return request(ApiKey.TXN_OFFSET_COMMIT, version, **(values | who))


async def tried(rig: Rig, message: Any, version: int = 5) -> ErrorCode:
    answer = await rig.ask(ApiKey.TXN_OFFSET_COMMIT, version, message)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def shown(rig: Rig) -> tuple[int, ErrorCode]:
    row = (await fetched(rig, [{"name": "t1", "partition_indexes": [0]}]))["t1", 0]
    return row.committed_offset, ErrorCode(row.error_code)


async def end(rig: Rig, *, commit: bool, producer: int = PRODUCER) -> None:
    store = TransactionalOffsets(rig.coordinator)
    index = (await rig.coordinator.shard("g")).index
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    rig.log.append(
        index,
        encode_control_batch(0, kind, producer_id=producer, producer_epoch=1, timestamp_ms=1, coordinator_epoch=0),
    )
    assert await store.ready(index)
    store.ended(index, producer, commit=commit)


@pytest.mark.parametrize("version", range(6))
def test_an_offset_is_seen_once_its_transaction_is(version: int) -> None:
    async def scenario() -> None:
        verifier = OneTransaction()
        rig = Rig(verifier=verifier)
        await error_of_commit(rig, commit(9, 3))
        assert await tried(rig, txn_commit(version, 8), version) is ErrorCode.NONE
        index = (await rig.coordinator.shard("g")).index
        assert verifier.asked == [(f"__consumer_offsets-{index}", version >= 5)]
        held = rig.coordinator.held_bytes
        for again in (rig, rig.restart()):
            assert await shown(again) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            rows = await fetched(again, [{"name": "t1", "partition_indexes": [0]}], 6)  # cannot ask for stable ones
            assert rows["t1", 0].committed_offset == 3
            assert again.coordinator.held_bytes == held
        rig = again
        await end(rig, commit=True)
        for again in (rig, rig.restart()):
            assert await shown(again) == (8, ErrorCode.NONE)
        await error_of_commit(again, commit(9, 9))
        assert await shown(again) == (9, ErrorCode.NONE)
        assert again.coordinator.held_bytes == rig.coordinator.held_bytes

    run(scenario())


def test_an_aborted_offset_leaves_nothing() -> None:
    async def scenario() -> None:
        rig = Rig(verifier=OneTransaction())
        await tried(rig, txn_commit(5, 8))
        await tried(rig, txn_commit(5, 9, producer=11))
        await end(rig, commit=False)
        assert await shown(rig) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await end(rig, commit=False, producer=11)
        assert await shown(rig) == (-1, ErrorCode.NONE)
        assert rig.coordinator.held_bytes == 0
        assert await shown(rig.restart()) == (-1, ErrorCode.NONE)

    run(scenario())


def test_what_is_written_is_a_transactional_batch_of_the_producer() -> None:
    async def scenario() -> None:
        log = FakeLog()
        rig = Rig(log, verifier=OneTransaction())
        await tried(rig, txn_commit(5, 8))
        raw = bytes(log.batches[(await rig.coordinator.shard("g")).index])
        [(_, header)] = walk(raw)
        assert (header.transactional, header.control, header.producer_id, header.producer_epoch) == (True, False, 7, 0)
        assert header.base_sequence == 0
        [record] = iter_records(raw, header)
        assert record.key == encode_commit_key(CommitKey("g", "t1", 0))

    run(scenario())


@pytest.mark.parametrize(
    ("found", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 5, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_the_transaction_does_not_allow(found: ErrorCode, version: int, told: ErrorCode) -> None:
    async def scenario() -> None:
        rig = Rig(verifier=OneTransaction(found))
        assert await tried(rig, txn_commit(version, 8), version) is told
        assert await shown(rig) == (-1, ErrorCode.NONE)
        assert not rig.log.batches

    run(scenario())


def test_what_the_group_does_not_allow() -> None:
    async def scenario() -> None:
        rig = Rig(verifier=OneTransaction())
        assert await tried(rig, txn_commit(5, 8, group_id="")) is ErrorCode.INVALID_GROUP_ID
        assert await tried(rig, txn_commit(5, 8, topic="nope")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await tried(rig, txn_commit(5, 8, generation_id=3, member_id="m")) is ErrorCode.ILLEGAL_GENERATION
        member = await lonely_member(rig)
        assert await tried(rig, txn_commit(2, 8), 2) is ErrorCode.NONE  # too old to say who it is
        assert await tried(rig, txn_commit(5, 8, generation_id=1, member_id="m")) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await tried(rig, txn_commit(5, 8, generation_id=9, member_id=member)) is ErrorCode.ILLEGAL_GENERATION
        assert await tried(rig, txn_commit(5, 8, generation_id=1, member_id=member)) is ErrorCode.NONE
        rig.coordinator.close()

    run(scenario())


def test_a_full_disk_and_too_many_offsets() -> None:
    async def scenario() -> None:
        rig = Rig(limits=GroupLimits(memory_bytes=700), verifier=OneTransaction())
        rig.log.full = True
        assert await tried(rig, txn_commit(5, 8)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.coordinator.held_bytes == 0
        rig.log.full = False
        assert await tried(rig, txn_commit(5, 8)) is ErrorCode.NONE
        assert await tried(rig, txn_commit(5, 9)) is ErrorCode.NONE  # takes the place of the first
        assert await tried(rig, txn_commit(5, 9, topic="t2")) is ErrorCode.POLICY_VIOLATION

    run(scenario())


def test_offsets_of_open_transactions_go_with_their_topic() -> None:
    async def scenario() -> None:
        rig = Rig(verifier=OneTransaction())
        await tried(rig, txn_commit(5, 8))
        assert await rig.coordinator.forget_topic("t1", rig.topics.ids["t1"]) == 1
        await end(rig, commit=True)
        for again in (rig, rig.restart()):
            assert await shown(again) == (-1, ErrorCode.NONE)

    run(scenario())
