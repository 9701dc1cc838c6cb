"""Which committed offsets go, and when: offsets.retention.minutes."""

import asyncio
from typing import Any

import pytest

from tierd.broker.groups.codec import Commit, CommitKey
from tierd.broker.groups.expiry import OffsetsExpiry
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

from .rig import Rig, commit, error_of_commit, fetched, join, lonely_member, ms, request, run, sync
from .test_admin import listed, member_reading

DAY_MS = 86_400_000
KEEP_MS = 7 * DAY_MS


def expiry(rig: Rig) -> OffsetsExpiry:
    return OffsetsExpiry(rig.coordinator, keep_ms=KEEP_MS, every_ms=600_000)


async def offsets_after(rig: Rig, by_ms: int) -> set[tuple[str, int]]:
    """What is still there, now and to whoever reads the log again."""
    rig.clock.advance(by_ms)
    await expiry(rig).step()
    left = set(await fetched(rig))
    again = Rig(rig.log)
    assert set(await fetched(again)) == left
    assert set(await listed(again)) == set(await listed(rig))
    again.coordinator.close()
    return left


async def leave(rig: Rig, member: str) -> None:
    await rig.ask(ApiKey.LEAVE_GROUP, 5, request(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": member}]))


def test_offsets_of_nobody_go_by_their_own_age() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        rig.clock.advance(DAY_MS)
        await error_of_commit(rig, commit(9, 5, topic="t2"))
        assert await offsets_after(rig, 6 * DAY_MS - 1) == {("t1", 0), ("t2", 0)}
        assert await offsets_after(rig, 1) == {("t2", 0)}
        assert await offsets_after(rig, DAY_MS) == set()
        assert await listed(rig) == {}
        assert rig.coordinator.held_bytes == 0

    run(scenario())


def test_offsets_of_a_group_stay_until_long_after_the_last_member_left() -> None:
    async def scenario() -> None:
        rig = Rig()
        member = await lonely_member(rig)
        await error_of_commit(rig, commit(9, 5, member_id=member, generation_id_or_member_epoch=1))
        assert await offsets_after(rig, 30 * DAY_MS) == {("t1", 0)}
        await leave(rig, member)
        assert await offsets_after(rig, KEEP_MS - 1) == {("t1", 0)}
        assert set(await listed(rig)) == {"g"}
        assert await offsets_after(rig, 1) == set()
        assert await listed(rig) == {}
        assert rig.coordinator.held_bytes == 0

    run(scenario())


def test_what_an_administrator_set_since_is_kept_as_long() -> None:
    async def scenario() -> None:
        rig = Rig()
        member = await lonely_member(rig)
        await leave(rig, member)
        rig.clock.advance(KEEP_MS - 1)
        await error_of_commit(rig, commit(9, 5))
        assert await offsets_after(rig, KEEP_MS - 1) == {("t1", 0)}
        assert await offsets_after(rig, 1) == set()

    run(scenario())


def test_the_time_of_leaving_outlives_a_restart() -> None:
    async def scenario() -> None:
        rig = Rig()
        member = await lonely_member(rig)
        await error_of_commit(rig, commit(9, 5, member_id=member, generation_id_or_member_epoch=1))
        rig.clock.advance(KEEP_MS)
        await leave(rig, member)
        clock = rig.clock
        rig = rig.restart()
        rig.clock.step_wall(clock.now_ms() - rig.clock.now_ms())
        assert await offsets_after(rig, KEEP_MS - 1) == {("t1", 0)}
        assert await offsets_after(rig, 1) == set()

    run(scenario())


def test_a_group_that_left_while_the_disk_was_full_is_not_older_for_it() -> None:
    async def scenario() -> None:
        rig = Rig()
        member = await lonely_member(rig)
        await error_of_commit(rig, commit(9, 5, member_id=member, generation_id_or_member_epoch=1))
        rig.clock.advance(KEEP_MS)
        rig.log.full = True
        await leave(rig, member)
        rig.log.full = False
        await expiry(rig).step()
        assert set(await fetched(rig)) == {("t1", 0)}

    run(scenario())


@pytest.mark.parametrize("kind", ["consumer", "connect"])
def test_a_living_group_loses_only_offsets_of_topics_that_no_member_reads(kind: str) -> None:
    async def scenario() -> None:
        rig = Rig()
        member = await member_reading(rig, "t2", kind=kind)
        who: Any = {"member_id": member, "generation_id_or_member_epoch": 1}
        await error_of_commit(rig, commit(9, 5, **who))
        await error_of_commit(rig, commit(9, 5, topic="t2", **who))
        both = {("t1", 0), ("t2", 0)}
        assert await offsets_after(rig, KEEP_MS - 1) == both
        second = rig.start(ApiKey.JOIN_GROUP, 3, join(3, protocol_type=kind))
        await asyncio.sleep(0)
        assert await offsets_after(rig, 1) == both, "not while it rebalances"
        again = rig.start(ApiKey.JOIN_GROUP, 3, join(3, member, protocol_type=kind))
        await asyncio.sleep(0)
        assert (await second).error_code == (await again).error_code == ErrorCode.NONE
        rig.coordinator.close()

    run(scenario())


def test_a_stable_consumer_group_forgets_what_it_stopped_reading() -> None:
    async def scenario() -> None:
        rig = Rig()
        who: Any = {"member_id": await member_reading(rig, "t2"), "generation_id_or_member_epoch": 1}
        await error_of_commit(rig, commit(9, 5, **who))
        await error_of_commit(rig, commit(9, 5, topic="t2", **who))
        assert await offsets_after(rig, KEEP_MS) == {("t2", 0)}
        assert set(await listed(rig)) == {"g"}
        rig.coordinator.close()

    run(scenario())


def test_a_client_may_name_its_own_time() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(2, 5, retention_time=ms(1_000)), version=2)
        await error_of_commit(rig, commit(2, 5, topic="t2", retention_time=ms(2 * KEEP_MS)), version=2)
        assert await offsets_after(rig, 999) == {("t1", 0), ("t2", 0)}
        assert await offsets_after(rig, 1) == {("t2", 0)}
        assert await offsets_after(rig, 2 * KEEP_MS - 1_001) == {("t2", 0)}
        assert await offsets_after(rig, 1) == set()

    run(scenario())


def test_an_open_transaction_keeps_what_it_is_about_to_move() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        shard = await rig.coordinator.shard("g")
        key = CommitKey("g", "t1", 0)
        open_one = Commit(offset=6, leader_epoch=None, metadata="", commit_ms=rig.clock.now_ms())
        shard.pending.put(1, [(key, open_one)])
        rig.clock.advance(KEEP_MS)
        await expiry(rig).step()
        assert set(await fetched(rig)) == {("t1", 0)}
        shard.pending.take(1)
        assert await offsets_after(rig, 0) == set()

    run(scenario())


def test_an_empty_group_without_offsets_goes_at_the_next_look() -> None:
    async def scenario() -> None:
        rig = Rig()
        asked = await rig.ask(ApiKey.JOIN_GROUP, 9, join(9))
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        await offsets_after(rig, 0)
        assert set(await listed(rig)) == {"g"}, "somebody is about to join"
        joined = await rig.ask(ApiKey.JOIN_GROUP, 9, join(9, asked.member_id))
        await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, joined.member_id, 1, {}))
        await leave(rig, joined.member_id)
        await offsets_after(rig, 0)
        assert await listed(rig) == {}

    run(scenario())


def test_nothing_goes_that_cannot_be_written_and_the_next_look_tries_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        rig.clock.advance(KEEP_MS)
        rig.log.full = True
        await expiry(rig).step()
        assert set(await fetched(rig)) == {("t1", 0)}
        rig.log.full = False
        assert await offsets_after(rig, 0) == set()

    run(scenario())


def test_looks_come_by_the_clock_until_it_is_stopped() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        rig.clock.advance(KEEP_MS)
        written = asyncio.Event()
        rig.log.on_append = written.set
        looker = OffsetsExpiry(rig.coordinator, keep_ms=KEEP_MS, every_ms=1)
        task = asyncio.create_task(looker.run())
        async with asyncio.timeout(60):
            await written.wait()
            looker.stop()
            await task
        assert await fetched(rig) == {}

    run(scenario())
