"""A group that goes from the classic protocol to the consumer protocol and back, with its members in it."""

from typing import Any

import pytest

from broker.groups.rig import Rig, commit, error_of_commit, fetched, join, run
from kit.mixed_group import subscription
from tierd.broker.groups.embedded import encode_assignment
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

from .classic import ClassicConsumer
from .member import Consumer, shown

BEHIND = ErrorCode.REBALANCE_IN_PROGRESS


def all_once(*members: Any) -> bool:
    """Whether together they read each partition of t1, none of them twice."""
    return sorted(n for member in members for n in member.reads.get("t1", ())) == [0, 1, 2]


async def settle(*members: ClassicConsumer | Consumer) -> None:
    """Until nobody is told anything new."""
    for _ in range(10):
        moved = False
        for member in members:
            if isinstance(member, ClassicConsumer):
                if await member.heartbeat() == BEHIND:
                    assert (await member.join()).error_code == ErrorCode.NONE
                    moved = True
            else:
                before = member.epoch, member.reads
                await member.beat()
                moved |= before != (member.epoch, member.reads)
        if not moved:
            return
    raise AssertionError("they do not come to rest")


@pytest.mark.parametrize("eager", [True, False])
def test_up_and_down_with_every_partition_read_by_one(eager: bool) -> None:
    async def scenario() -> None:
        rig = Rig()
        old = ClassicConsumer(rig, "t1", eager=eager)
        await old.join()
        assert all_once(old)
        await error_of_commit(rig, commit(9, 5, member_id=old.id, generation_id_or_member_epoch=old.generation))
        new = Consumer(rig, "new", "t1")
        answer = await new.beat()
        assert answer.error_code == ErrorCode.NONE
        assert new.reads == {}, "what the other reads is not given away yet"
        group = await shown(rig)
        assert {member.member_id: member.member_type for member in group.members} == {old.id: 0, "new": 1}
        rig = old.rig = new.rig = rig.restart()
        await settle(old, new)
        assert all_once(old, new)
        assert old.reads
        assert new.reads
        await new.beat(member_epoch=-1)
        assert (await shown(rig)).error_code == ErrorCode.GROUP_ID_NOT_FOUND, "it is a classic one again"
        rig = old.rig = rig.restart()
        assert await old.heartbeat() == ErrorCode.NONE, "after a start it goes on with what it reads"
        await old.join()
        assert all_once(old)
        assert (await fetched(rig))["t1", 0].committed_offset == 5
        rig.close()

    run(scenario())


def test_the_last_consumer_leaves_and_the_others_are_called_back() -> None:
    async def scenario() -> None:
        rig = Rig()
        old, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1")
        await old.join()
        await settle(old, new)
        await new.beat(member_epoch=-1)
        assert await old.heartbeat() == BEHIND
        await old.join()
        assert all_once(old)
        rig.close()

    run(scenario())


def test_new_members_of_both_kinds_come_to_a_mixed_group() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1")
        await one.join()
        await new.beat()
        two = ClassicConsumer(rig, "t1", eager=False, protocol="range")
        await settle(one, two, new) if (await two.join()).error_code == ErrorCode.NONE else None
        assert all_once(one, two, new)
        assert all(len(member.reads["t1"]) == 1 for member in (one, two, new))
        assert await two.leave() == ErrorCode.NONE
        await settle(one, new)
        assert all_once(one, new)
        rig.close()

    run(scenario())


def test_a_classic_member_commits_by_its_generation() -> None:
    async def scenario() -> None:
        rig = Rig()
        old, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1")
        await old.join()
        await settle(old, new)
        who: Any = {"member_id": old.id, "generation_id_or_member_epoch": old.generation}
        assert await error_of_commit(rig, commit(8, 7, **who), version=8) == ErrorCode.NONE
        for later, error in ((-1, ErrorCode.NONE), (1, ErrorCode.ILLEGAL_GENERATION)):  # it has read that since then
            other: Any = who | {"generation_id_or_member_epoch": old.generation + later}
            assert await error_of_commit(rig, commit(9, 7, **other)) == error
        assert await old.heartbeat(old.generation + 1) == ErrorCode.ILLEGAL_GENERATION
        old.generation += 1
        assert await old.sync() == ErrorCode.ILLEGAL_GENERATION
        old.generation -= 1
        assert await old.sync(protocol_name="other") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        rig.close()

    run(scenario())


def test_who_does_not_come_back_is_sent_away() -> None:
    async def scenario() -> None:
        rig = Rig()
        old, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1")
        await old.join()
        await new.beat()
        assert await old.heartbeat() == BEHIND
        for _ in range(12):  # alive, but it never joins: its rebalance time-out is a minute
            await rig.pass_time(6_000)
            await old.heartbeat()
            await new.beat()
        assert await old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert all_once(new)
        rig.close()

    run(scenario())


def test_silence_is_measured_by_its_own_session() -> None:
    async def scenario() -> None:
        rig = Rig()
        old, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1")
        await old.join()
        await settle(old, new)
        await rig.pass_time(9_000)
        assert await old.heartbeat() == ErrorCode.NONE
        await rig.pass_time(11_000)
        assert await old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        rig.close()

    run(scenario())


def test_a_static_member_changes_its_protocol_and_keeps_its_place() -> None:
    async def scenario() -> None:
        rig = Rig()
        old = ClassicConsumer(rig, "t1", group_instance_id="i")
        await old.join()
        new = Consumer(rig, "new", "t1", instance_id="i")
        await new.beat()
        await settle(new)
        assert all_once(new)
        assert await old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        assert {member.member_id for member in (await shown(rig)).members} == {"new"}
        back = ClassicConsumer(rig, "t1", group_instance_id="i")
        await back.join()
        assert all_once(back)
        assert (await shown(rig)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await new.error() in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID)
        rig.close()

    run(scenario())


def test_what_is_no_consumer_or_speaks_in_riddles_stays_as_it_is() -> None:
    async def scenario() -> None:
        rig = Rig()
        first = await rig.ask(ApiKey.JOIN_GROUP, 3, join(3))
        new = Consumer(rig, "new", "t1")
        assert await new.error() == ErrorCode.GROUP_ID_NOT_FOUND, "its subscription is not understood"
        assert first.error_code == ErrorCode.NONE
        rig.close()
        rig = Rig()
        await rig.ask(ApiKey.JOIN_GROUP, 3, join(3, protocol_type="connect"))
        assert await Consumer(rig, "new", "t1").error() == ErrorCode.GROUP_ID_NOT_FOUND
        rig.close()
        rig = Rig()
        await Consumer(rig, "new", "t1").beat()
        for wrong in ({"protocol_type": "connect"}, {}):
            answer = await rig.ask(ApiKey.JOIN_GROUP, 3, join(3, **wrong))
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        old = ClassicConsumer(rig, "t1")
        await old.join()
        odd = ClassicConsumer(rig, "t1", protocol="mine")
        odd.id = "odd"
        assert (await odd.ask_to_join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        rig.close()

    run(scenario())


def test_a_join_that_waits_is_told_to_come_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = ClassicConsumer(rig, "t1")
        await one.join()
        two = ClassicConsumer(rig, "t1")
        two.id = (await two.ask_to_join()).member_id
        waits = rig.start(ApiKey.JOIN_GROUP, 9, join(9, two.id))  # for `one`, which has not heard of it
        await rig.pass_time(0)
        assert not waits.done()
        new = Consumer(rig, "new", "t1")
        assert await new.error() in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        await rig.pass_time(0)
        rig.close()
        waits.cancel()

    run(scenario())


def test_what_waited_in_the_classic_group_is_counted_no_more() -> None:
    async def scenario() -> None:
        rig = Rig()
        await ClassicConsumer(rig, "t1").join()
        waits = []
        for _ in range(3):
            one = ClassicConsumer(rig, "t1")
            one.id = (await one.ask_to_join()).member_id
            said = [{"name": "range", "metadata": subscription("t1", owned={}) + bytes(5_000)}]
            waits.append(rig.start(ApiKey.JOIN_GROUP, 9, join(9, one.id, protocols=said)))
            await rig.pass_time(0)
        await Consumer(rig, "new", "t1").beat()
        assert {int((await one).error_code) for one in waits} == {int(BEHIND)}
        (group,) = (await rig.coordinator.shard("g")).consumers.values()
        assert rig.coordinator.held_bytes == group.held_bytes()
        rig.close()

    run(scenario())


def test_a_fenced_static_member_does_not_take_its_place_back() -> None:
    async def scenario() -> None:
        rig = Rig()
        old, new = ClassicConsumer(rig, "t1", group_instance_id="i"), Consumer(rig, "new", "t1")
        await old.join()
        await new.beat()
        again = ClassicConsumer(rig, "t1", group_instance_id="i")
        assert (await again.ask_to_join()).error_code == ErrorCode.NONE
        assert (await old.ask_to_join()).error_code == ErrorCode.FENCED_INSTANCE_ID
        old.id = "nobody"
        old.more = {"group_instance_id": "another"}
        assert (await old.ask_to_join()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        rig.close()

    run(scenario())


def test_a_static_member_that_comes_back_hears_the_protocol_of_the_group() -> None:
    async def scenario() -> None:
        rig = Rig()
        said = subscription("t1", owned={})
        both = [{"name": "range", "metadata": said}, {"name": "coop", "metadata": said}]
        old, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1", instance_id="i")
        old.id = (await old.ask_to_join(protocols=both)).member_id
        old.generation = (await old.ask_to_join(protocols=both)).generation_id
        everything = [("t1", n) for n in range(3)]
        await old.sync({old.id: encode_assignment(1, everything)})
        for _ in range(4):
            await new.beat()
            if await old.heartbeat():
                old.generation = (await old.ask_to_join(protocols=both)).generation_id
                await old.sync()
        back = ClassicConsumer(rig, "t1", group_instance_id="i")
        answer = await back.ask_to_join(protocols=both[::-1])
        back.id, back.generation = answer.member_id, answer.generation_id
        assert await back.sync(protocol_name=answer.protocol_name) == ErrorCode.NONE
        assert await old.heartbeat() == ErrorCode.NONE
        assert all_once(old, back)
        rig.close()

    run(scenario())


def test_members_that_do_not_fit_one_record_stay_in_a_group_of_the_newer_protocol() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1")
        await one.join()
        await new.beat()
        rig.log.max_batch_bytes = 8_000
        for _ in range(3):
            more = ClassicConsumer(rig, "t1")
            said = [{"name": "range", "metadata": subscription("t1", owned={}) + bytes(3_000)}]
            more.id = (await more.ask_to_join(protocols=said)).member_id
            assert (await more.ask_to_join(protocols=said)).error_code == ErrorCode.NONE
        assert await new.error(member_epoch=-1) == ErrorCode.NONE
        assert len((await shown(rig)).members) == 4
        await rig.pass_time(11_000)  # and their sessions end as ever
        assert (await shown(rig)).members == ()
        rig.close()

    run(scenario())


def test_a_static_member_that_comes_back_in_the_middle_lets_all_join() -> None:
    async def scenario() -> None:
        rig = Rig()
        old, new = ClassicConsumer(rig, "t1"), Consumer(rig, "new", "t1", instance_id="i")
        await old.join()
        await new.beat()  # it is to read what the other still does
        back = ClassicConsumer(rig, "t1", group_instance_id="i")
        waits = rig.start(ApiKey.JOIN_GROUP, 9, join(9, "", **back.said()))
        await rig.pass_time(0)
        assert await old.heartbeat() == ErrorCode.ILLEGAL_GENERATION, "it never came to the latest"
        await old.ask_to_join()
        assert (await waits).error_code == ErrorCode.NONE
        rig.close()

    run(scenario())
