"""What the offsets topic keeps: restarts, full disks, a topic that is not there; and the timer."""

import asyncio

from tierd.broker.groups.model import GroupLimits
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

from .rig import Rig, commit, error_of_commit, fetched, join, lonely_member, ms, request, run, sync


def test_the_real_clock_ends_sessions() -> None:
    """The timer itself, with sessions of a few milliseconds."""

    async def scenario() -> None:
        rig = Rig(limits=GroupLimits(min_session_timeout_ms=1))
        answer = await rig.ask(ApiKey.JOIN_GROUP, 3, join(3, session_timeout=ms(5), rebalance_timeout=ms(5)))
        group = (await rig.coordinator.shard("g")).groups["g"]
        written = asyncio.Event()
        rig.log.on_append = written.set
        rig.clock.advance(5)
        async with asyncio.timeout(10):
            await written.wait()
        assert answer.generation_id == 1
        assert group.generation == 2
        assert not group.members
        rig.coordinator.close()

    run(scenario())


def test_a_restart_forgets_nothing_that_was_answered() -> None:
    async def scenario() -> None:
        rig = Rig()
        member = await lonely_member(rig)
        who = {"member_id": member, "generation_id_or_member_epoch": 1}
        assert await error_of_commit(rig, commit(9, 5, **who)) == ErrorCode.NONE
        assert await error_of_commit(rig, commit(9, 6, **who)) == ErrorCode.NONE
        assert await error_of_commit(rig, commit(9, 9, topic="t2", **who)) == ErrorCode.NONE
        rig = rig.restart()
        rows = await fetched(rig)
        assert {place: row.committed_offset for place, row in rows.items()} == {("t1", 0): 6, ("t2", 0): 9}
        beat = request(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id=member)
        assert (await rig.ask(ApiKey.HEARTBEAT, 4, beat)).error_code == ErrorCode.NONE
        answer = await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, member, 1, {}))
        assert answer.assignment == b"work"
        rig.coordinator.close()

    run(scenario())


def test_a_partition_is_read_once_however_many_ask() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        rig = rig.restart()
        rig.log.read = 0
        first = asyncio.create_task(fetched(rig))
        others = [asyncio.create_task(fetched(rig)) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        rows = await asyncio.gather(*others)
        assert {row["t1", 0].committed_offset for row in rows} == {5}
        assert rig.log.read == 1

    run(scenario())


def test_a_full_disk_loses_nothing_and_promises_nothing() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.full = True
        answer = await rig.ask(ApiKey.JOIN_GROUP, 9, join())
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await error_of_commit(rig, commit(9, 5)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await fetched(rig) == {}
        rig.log.full = False
        answer = await rig.ask(ApiKey.JOIN_GROUP, 3, join(3))
        member = answer.member_id
        rig.log.full = True
        answer = await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, member, 1, {member: b"work"}))
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.log.full = False
        beat = request(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id=member)
        assert (await rig.ask(ApiKey.HEARTBEAT, 4, beat)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        answer = await rig.ask(ApiKey.JOIN_GROUP, 9, join(9, member))
        assert answer.generation_id == 2
        answer = await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, member, 2, {member: b"work"}))
        assert answer.assignment == b"work"
        rig.coordinator.close()

    run(scenario())


def test_without_the_topic_clients_are_told_to_look_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.unreadable = True
        no = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await rig.ask(ApiKey.JOIN_GROUP, 9, join())).error_code == no
        assert (await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, "m", 1, {}))).error_code == no
        who = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        assert (await rig.ask(ApiKey.HEARTBEAT, 4, request(ApiKey.HEARTBEAT, 4, **who))).error_code == no
        assert (await rig.ask(ApiKey.LEAVE_GROUP, 2, request(ApiKey.LEAVE_GROUP, 2, **who))).error_code == no
        assert await error_of_commit(rig, commit(9, 5)) == no
        rows = await fetched(rig, [{"name": "t1", "partition_indexes": [0]}], 1)
        assert rows["t1", 0].error_code == no
        message = request(ApiKey.OFFSET_FETCH, 2, group_id="g", topics=[{"name": "t1", "partition_indexes": [0]}])
        answer = await rig.ask(ApiKey.OFFSET_FETCH, 2, message)
        assert (answer.error_code, answer.topics) == (no, ()), "now the group has its own error"

    run(scenario())


def test_a_partition_that_cannot_be_read_is_tried_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        rig = rig.restart()
        rig.log.broken = True
        asked = asyncio.create_task(fetched(rig))
        await asyncio.sleep(0)
        asked.cancel()
        assert await error_of_commit(rig, commit(9, 6)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.log.broken = False
        rig.clock.advance(100)
        assert (await fetched(rig))["t1", 0].committed_offset == 5

    run(scenario())
