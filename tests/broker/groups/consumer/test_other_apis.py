"""What commits, tools for administrators, the classic protocol and expiry make of consumer groups."""

from typing import Any

from broker.groups.consumer.member import Consumer, shown
from broker.groups.rig import Rig, commit, error_of_commit, fetched, join, lonely_member, request, run
from broker.groups.test_admin import deleted, described, listed, offset_deleted
from broker.groups.test_expiry import KEEP_MS, expiry
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode


def test_only_members_in_their_epoch_may_commit_and_ask() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1")
        await one.beat()
        who = {"member_id": "one", "generation_id_or_member_epoch": 1}
        for changed, version, error in (
            ({}, 9, ErrorCode.NONE),
            ({"generation_id_or_member_epoch": 2}, 9, ErrorCode.STALE_MEMBER_EPOCH),
            ({"generation_id_or_member_epoch": 0}, 9, ErrorCode.STALE_MEMBER_EPOCH),
            ({"member_id": "two"}, 9, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "", "generation_id_or_member_epoch": -1}, 9, ErrorCode.UNKNOWN_MEMBER_ID),
            ({}, 8, ErrorCode.UNSUPPORTED_VERSION),
            ({"generation_id_or_member_epoch": 2}, 8, ErrorCode.UNSUPPORTED_VERSION),
            ({"member_id": "two"}, 8, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            asked: Any = who | changed
            assert await error_of_commit(rig, commit(version, 5, **asked), version) == error, (changed, version)
        for member, epoch, code in (("one", 1, 0), ("one", 0, 113), ("two", 1, 25), ("", -1, 25), (None, -1, 0)):
            rows: Any = [{"name": "t1", "partition_indexes": (0,)}]
            group = {"group_id": "g", "topics": rows, "member_id": member, "member_epoch": epoch}
            message = request(ApiKey.OFFSET_FETCH, 9, groups=[group], require_stable=True)
            told = (await rig.ask(ApiKey.OFFSET_FETCH, 9, message)).groups[0]
            assert (told.error_code, len(told.topics)) == (code, 0 if code else 1), (member, epoch)
        await one.beat(member_epoch=-1)
        assert await error_of_commit(rig, commit(9, 6)) == ErrorCode.NONE, "an administrator, nobody is in it"
        assert (await fetched(rig))["t1", 0].committed_offset == 6
        rig.close()

    run(scenario())


def test_a_commit_that_crosses_a_new_epoch_holds_for_what_was_kept() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1")
        await one.beat()
        one.topics = ("t1", "t2")
        await one.beat()
        assert one.epoch == 2
        rig = one.rig = rig.restart()
        for epoch, topic, error in (
            (1, "t1", ErrorCode.NONE),
            (2, "t2", ErrorCode.NONE),
            (1, "t2", ErrorCode.STALE_MEMBER_EPOCH),
            (0, "t1", ErrorCode.STALE_MEMBER_EPOCH),
            (3, "t1", ErrorCode.STALE_MEMBER_EPOCH),
        ):
            who: Any = {"member_id": "one", "generation_id_or_member_epoch": epoch}
            assert await error_of_commit(rig, commit(9, 5, topic=topic, **who)) == error, (epoch, topic)
        rig.close()

    run(scenario())


def test_a_group_is_shown_to_administrators() -> None:
    async def scenario() -> None:
        rig = Rig()
        await Consumer(rig, "one", "t1", "t2", rack_id="r", instance_id="i").beat()
        row = (await listed(rig))["g"]
        assert (row.protocol_type, row.group_state, row.group_type) == ("consumer", "Stable", "consumer")
        assert set(await listed(rig, types_filter=("consumer",))) == {"g"}
        assert await listed(rig, types_filter=("classic",)) == {}
        group = await shown(rig)
        assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (1, 1, "uniform")
        (member,) = group.members
        assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("one", "i", "r", 1)
        assert (member.client_id, member.subscribed_topic_names, member.member_type) == ("client", ("t1", "t2"), 1)
        assert member.assignment == member.target_assignment
        assert {row.topic_name: row.partitions for row in member.assignment.topic_partitions} == {
            "t1": (0, 1, 2),
            "t2": (0, 1, 2),
        }
        classic = await described(rig, "g")
        assert (classic.error_code, classic.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group g is not a classic group.",
        )
        assert await deleted(rig, "g") == ErrorCode.NON_EMPTY_GROUP
        assert await offset_deleted(rig, "t1") == (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        rig.close()

    run(scenario())


def test_the_two_protocols_take_turns_where_members_do_not_understand_each_other() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1")
        await one.beat()
        await error_of_commit(rig, commit(9, 5, member_id="one", generation_id_or_member_epoch=1))
        refused = await rig.ask(ApiKey.JOIN_GROUP, 3, join(3))
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await one.beat(member_epoch=-1)
        member = await lonely_member(rig)
        one.epoch, one.reads = 0, {}
        answer = await one.beat(obey=False)
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "can not be taken along" in answer.error_message
        assert await one.error(member_epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND
        rig = one.rig = rig.restart()
        assert (await listed(rig))["g"].group_type == "classic"
        leave = request(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": member}])
        await rig.ask(ApiKey.LEAVE_GROUP, 5, leave)
        assert await one.error() == ErrorCode.NONE
        rig = one.rig = rig.restart()
        assert (await listed(rig))["g"].group_type == "consumer"
        assert (await fetched(rig))["t1", 0].committed_offset == 5, "offsets stay through all that"
        rig.close()

    run(scenario())


def test_offsets_expire_after_the_group_is_left() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t2")
        await one.beat()
        who: Any = {"member_id": "one", "generation_id_or_member_epoch": 1}
        await error_of_commit(rig, commit(9, 5, **who))
        await error_of_commit(rig, commit(9, 5, topic="t2", **who))
        for _ in range(KEEP_MS // 40_000_000):
            rig.clock.advance(40_000_000)
            await one.beat()
        rig.clock.advance(KEEP_MS % 40_000_000)
        await expiry(rig).step()
        assert set(await fetched(rig)) == {("t2", 0)}, "it is not read any more"
        await one.beat(member_epoch=-1)
        rig.clock.advance(KEEP_MS - 1)
        await expiry(rig).step()
        assert set(await fetched(rig)) == {("t2", 0)}
        rig.clock.advance(1)
        await expiry(rig).step()
        assert await fetched(rig) == {}
        assert await listed(rig) == await listed(rig.restart()) == {}

    run(scenario())


def test_an_administrator_sends_members_away() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1", instance_id="i")
        await one.beat()
        await two.beat()
        for member_id, instance_id, error in (
            ("three", None, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", "other", ErrorCode.UNKNOWN_MEMBER_ID),
            ("one", "i", ErrorCode.FENCED_INSTANCE_ID),
            ("one", None, ErrorCode.NONE),
            ("", "i", ErrorCode.NONE),
        ):
            who = {"member_id": member_id, "group_instance_id": instance_id, "reason": None}
            answer = await rig.ask(ApiKey.LEAVE_GROUP, 5, request(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[who]))
            assert [row.error_code for row in answer.members] == [error]
        assert (await shown(rig)).group_state == "Empty"
        assert await one.error() == ErrorCode.UNKNOWN_MEMBER_ID
        rig.close()

    run(scenario())
