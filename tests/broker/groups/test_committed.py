"""Committed offsets through the handlers: every version, what is refused, what goes with its topic."""

import pytest

from tierd.broker.groups.model import GroupLimits
from tierd.wire.errors import ErrorCode

from .rig import Rig, commit, error_of_commit, fetched, lonely_member, ms, run


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_and_fetch_in_every_version(version: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        assert await error_of_commit(rig, commit(version, 77), version) == ErrorCode.NONE
        for fetch_version in range(1, 10):
            rows = await fetched(rig, [{"name": "t1", "partition_indexes": [0, 2]}], fetch_version)
            assert rows["t1", 0].committed_offset == 77
            assert rows["t1", 0].metadata == "m"
            assert rows["t1", 2].committed_offset == -1
            if fetch_version >= 5:
                assert rows["t1", 0].committed_leader_epoch == (4 if version >= 6 else -1)
            if fetch_version >= 2:
                assert list(await fetched(rig, None, fetch_version)) == [("t1", 0)]
        rig.coordinator.close()

    run(scenario())


def test_what_may_not_be_committed() -> None:
    async def scenario() -> None:
        rig = Rig()
        for version, error in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
            message = commit(version, 5, generation_id_or_member_epoch=3)
            assert await error_of_commit(rig, message, version) == error, version
        assert await error_of_commit(rig, commit(9, 5, topic="nope")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await error_of_commit(rig, commit(9, 5, partition=3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        long = "x" * (GroupLimits().offset_metadata + 1)
        assert await error_of_commit(rig, commit(9, 5, metadata=long)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await error_of_commit(rig, commit(9, 5, metadata=long[1:])) == ErrorCode.NONE
        await lonely_member(rig)
        assert await error_of_commit(rig, commit(9, 5)) == ErrorCode.UNKNOWN_MEMBER_ID
        rig.coordinator.close()

    run(scenario())


def test_what_does_not_fit_a_batch_is_refused_as_kafka_does() -> None:
    """A real Kafka 4.3.1: 200 offsets with 4,000 bytes of metadata each hold, 300 get UNKNOWN_SERVER_ERROR."""

    async def scenario() -> None:
        rig = Rig()
        assert await error_of_commit(rig, commit(9, 4)) == ErrorCode.NONE
        held = rig.coordinator.held_bytes
        for rig.log.max_batch_bytes in (41, 130):  # there is no need to write it out for the first
            assert await error_of_commit(rig, commit(9, 5, metadata="m" * 80)) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert rig.coordinator.held_bytes == held
        rows = await fetched(rig, [{"name": "t1", "partition_indexes": [0]}], 9)
        assert rows["t1", 0].committed_offset == 4
        rig.coordinator.close()

    run(scenario())


def test_a_retention_time_of_the_clients_own_is_kept() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(4, 5, retention_time=ms(1_000)), 4)
        rig = rig.restart()
        shard = await rig.coordinator.shard("g")
        assert shard.commits["g"]["t1", 0].expire_ms == rig.clock.now_ms() + 1_000

    run(scenario())


def test_offsets_go_with_their_topic() -> None:
    async def scenario() -> None:
        rig = Rig()
        old = rig.topics.ids["t1"]
        await error_of_commit(rig, commit(9, 5))
        await error_of_commit(rig, commit(9, 6, topic="t2"))
        rig.topics.ids["t1"] = rig.topics.ids["t2"]
        rows = await fetched(rig, [{"name": "t1", "partition_indexes": [0]}])
        assert rows["t1", 0].committed_offset == -1  # made again: another topic of the same name
        assert await rig.coordinator.forget_topic("t1", old) == 1
        assert list(await fetched(rig)) == [("t2", 0)]
        rig = rig.restart()
        assert list(await fetched(rig)) == [("t2", 0)]

    run(scenario())
