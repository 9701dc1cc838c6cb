"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as clients see them, and what other APIs make of such groups."""

import dataclasses
import datetime
import importlib
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema

from broker.groups.rig import Rig, build, commit, error_of_commit, fetched, join, lonely_member, ms, request, run
from broker.groups.test_admin import deleted, described, listed, offset_deleted, response_to
from broker.groups.test_expiry import KEEP_MS, expiry
from tierd.base.ids import Uuid
from tierd.broker.groups.model import GroupLimits
from tierd.wire.api import ApiKey
from tierd.wire.control import decode_control
from tierd.wire.errors import ErrorCode
from tierd.wire.header import parse_request_header
from wire.frames import recorded

BEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE
SESSION_MS = 45_000


class Consumer:
    """A member that does what it is told; `reads` is by topic name."""

    def __init__(self, rig: Rig, name: str, *topics: str, version: int = 1, **more: Any) -> None:
        self.rig, self.name, self.epoch, self.version = rig, name, 0, version
        self.reads: dict[str, set[int]] = {}
        self.topics = topics
        self.more = more

    async def beat(self, *, obey: bool = True, **fields: Any) -> Any:
        """Says what it reads; unless *obey* it then does not do what it is told."""
        values = {"group_id": "g", "member_id": self.name, "member_epoch": self.epoch, "rebalance_timeout": ms(60_000)}
        owned = [
            {"topic_id": uuid_of(self.rig, topic), "partitions": tuple(sorted(parts))}
            for topic, parts in self.reads.items()
        ]
        told = {
            "instance_id": None,
            "rack_id": None,
            "subscribed_topic_names": self.topics or None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": rows(owned, self.version),
        }
        asked = build(load_request_schema(BEAT, self.version), **(values | told | self.more | fields))
        answer = await self.rig.ask(BEAT, self.version, asked, "client")
        if answer.error_code == ErrorCode.NONE and obey:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.reads = named(self.rig, answer.assignment)
        return answer

    async def error(self, **fields: Any) -> int:
        return int((await self.beat(obey=False, **fields)).error_code)


def rows(owned: list[dict[str, Any]], version: int) -> Any:
    module = importlib.import_module(load_request_schema(BEAT, version).__module__)
    return tuple(module.TopicPartitions(**row) for row in owned)


def uuid_of(rig: Rig, topic: str) -> uuid.UUID:
    return uuid.UUID(bytes=rig.topics.ids[topic].raw)


def named(rig: Rig, assignment: Any) -> dict[str, set[int]]:
    names = {uuid_of(rig, name): name for name in rig.topics.ids}
    return {names[row.topic_id]: set(row.partitions) for row in assignment.topic_partitions}


async def shown(rig: Rig, version: int = 1, group: str = "g") -> Any:
    message = request(DESCRIBE, version, group_ids=(group,), include_authorized_operations=False)
    answer = await rig.ask(DESCRIBE, version, message)
    return answer.groups[0]


@pytest.mark.parametrize("version", [0, 1])
def test_a_lonely_member_reads_everything_at_once(version: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one" if version else "", "t1", "t2", "absent", version=version)
        answer = await one.beat()
        assert (answer.error_code, answer.error_message, answer.member_epoch) == (ErrorCode.NONE, None, 1)
        assert answer.member_id == ("one" if version else "id1")
        assert answer.heartbeat_interval == datetime.timedelta(seconds=5)
        assert one.reads == {"t1": {0, 1, 2}, "t2": {0, 1, 2}}
        one.name = answer.member_id
        quiet = await one.beat(subscribed_topic_names=None, rebalance_timeout=ms(-1), topic_partitions=None)
        assert (quiet.member_epoch, quiet.assignment) == (1, None)
        rig.close()

    run(scenario())


def test_the_recorded_consumer_gets_the_recorded_answers() -> None:
    """But for the epoch, with which Kafka begins at 2."""

    async def scenario() -> None:
        rig = Rig()
        first, second = recorded("request", BEAT)
        for frame in (first, second):
            _, position = parse_request_header(memoryview(frame.raw))
            asked: Any = decode_control(frame.api_key, frame.version, memoryview(frame.raw)[position:])
            kafka = response_to(frame.name)
            if frame is first:
                rig.topics.ids = {"jt": Uuid(kafka.assignment.topic_partitions[0].topic_id.bytes)}
            asked = dataclasses.replace(asked, member_epoch=0 if frame is first else 1)
            assert await rig.ask(BEAT, frame.version, asked) == dataclasses.replace(kafka, member_epoch=1)
        rig.close()

    run(scenario())


def test_what_was_recorded_of_a_classic_group() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5, group_id="pc"))
        for frame in recorded("request", DESCRIBE):
            _, position = parse_request_header(memoryview(frame.raw))
            asked = decode_control(frame.api_key, frame.version, memoryview(frame.raw)[position:])
            assert await rig.ask(DESCRIBE, frame.version, asked) == response_to(frame.name)
        assert (await shown(rig)).error_message == "Group g not found."

    run(scenario())


def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        answer = await two.beat()
        assert (answer.member_epoch, two.reads) == (2, {})
        assert (await shown(rig)).group_state == "Reconciling"
        before = dict(one.reads)
        told = await one.beat(obey=False)
        assert (told.member_epoch, len(named(rig, told.assignment)["t1"])) == (1, 2)
        await two.beat()
        assert two.reads == {}, "the first still reads it"
        one.reads = before
        assert (await one.beat(obey=False)).assignment is not None, "said again while it reads what it must not"
        one.reads = named(rig, told.assignment)
        assert (await one.beat()).member_epoch == 2
        await two.beat()
        assert sorted(one.reads["t1"] | two.reads["t1"]) == [0, 1, 2]
        assert (await shown(rig)).group_state == "Stable"
        rig.close()

    run(scenario())


def test_the_middle_of_a_rebalance_outlives_a_restart() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        told = await one.beat(obey=False)
        before = await shown(rig)
        rig = one.rig = two.rig = rig.restart()
        assert await shown(rig) == before
        await two.beat()
        assert two.reads == {}
        one.reads = named(rig, told.assignment)
        assert (await one.beat()).member_epoch == 2
        await two.beat()
        assert sorted(one.reads["t1"] | two.reads["t1"]) == [0, 1, 2]
        rig = one.rig = two.rig = rig.restart()
        assert (await shown(rig)).group_epoch == 2, "nothing has changed, nobody is disturbed"
        assert (await one.beat()).member_epoch == 2
        await rig.pass_time(SESSION_MS)
        assert await one.error() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await shown(rig)).group_state == "Empty"
        rig.close()

    run(scenario())


def test_who_is_silent_is_sent_away_and_the_other_reads_on() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        await one.beat()
        await rig.pass_time(SESSION_MS - 1)
        await one.beat()
        rig.log.full = True
        await rig.pass_time(1)
        assert len((await shown(rig)).members) == 2, "it cannot be written"
        rig.log.full = False
        await rig.pass_time(1_000)
        assert [member.member_id for member in (await shown(rig)).members] == ["one"]
        await one.beat()
        assert one.reads == {"t1": {0, 1, 2}}
        assert await two.error() == ErrorCode.UNKNOWN_MEMBER_ID
        rig.close()

    run(scenario())


def test_who_does_not_give_up_in_time_is_sent_away() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1", rebalance_timeout=ms(20_000)), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        for _ in range(2):
            await one.beat(obey=False)
            await two.beat()
            await rig.pass_time(10_000)
        assert await one.error() == ErrorCode.UNKNOWN_MEMBER_ID
        await two.beat()
        assert two.reads == {"t1": {0, 1, 2}}
        rig.close()

    run(scenario())


def test_epochs_fence_and_a_lost_answer_is_forgiven() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1")
        await one.beat()
        assert await one.error(member_epoch=2) == ErrorCode.FENCED_MEMBER_EPOCH
        assert await Consumer(rig, "two", "t1").error(member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
        one.topics = ("t1", "t2")
        lost = await one.beat(obey=False)
        assert lost.member_epoch == 2
        again = await one.beat(obey=False)
        assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, 2)
        one.reads = {"t2": {0, 9}}
        assert await one.error() == ErrorCode.FENCED_MEMBER_EPOCH
        one.reads = {}
        back = await one.beat(member_epoch=0)
        assert (back.error_code, one.reads) == (ErrorCode.NONE, {"t1": {0, 1, 2}, "t2": {0, 1, 2}})
        rig.close()

    run(scenario())


def test_leaving_gives_everything_free_at_once() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        answer = await one.beat(obey=False, member_epoch=-1)
        assert (answer.error_code, answer.member_epoch, answer.member_id) == (ErrorCode.NONE, -1, "one")
        await two.beat()
        assert two.reads == {"t1": {0, 1, 2}}
        assert await one.error(member_epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID
        await two.beat(obey=False, member_epoch=-1)
        assert (await shown(rig)).group_state == "Empty"
        assert (await shown(rig.restart())).group_state == "Empty"

    run(scenario())


def test_a_static_member_comes_back_to_its_place() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1", instance_id="i")
        two = Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        await one.beat()
        await one.beat()
        await two.beat()
        place, epoch = one.reads, one.epoch
        newer = Consumer(rig, "newer", "t1", instance_id="i")
        assert await newer.error() == ErrorCode.UNRELEASED_INSTANCE_ID
        assert (await one.beat(obey=False, member_epoch=-2)).member_epoch == -2
        rig = one.rig = two.rig = newer.rig = rig.restart()
        assert (await two.beat()).member_epoch == epoch, "nobody else is disturbed"
        answer = await newer.beat()
        assert (answer.member_epoch, newer.reads) == (epoch, place)
        assert await one.error() == ErrorCode.FENCED_INSTANCE_ID
        assert await one.error(member_epoch=-1) == ErrorCode.FENCED_INSTANCE_ID
        assert await Consumer(rig, "x", "t1", instance_id="j").error(member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
        await newer.beat(member_epoch=-2)
        await rig.pass_time(SESSION_MS)
        assert [member.member_id for member in (await shown(rig)).members] == []
        rig.close()

    run(scenario())


def test_topics_that_grow_come_and_go_are_noticed() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1", "t2")
        await one.beat()
        rig.topics.partitions["t1"] = 5
        await rig.pass_time(1_000)
        await one.beat()
        assert (one.epoch, one.reads["t1"]) == (2, {0, 1, 2, 3, 4})
        rig.topics.partitions["t2"] = 0
        await rig.pass_time(1_000)
        told = await one.beat(obey=False)
        assert [row.topic_id for row in told.assignment.topic_partitions] == [uuid_of(rig, "t1")]
        rig.close()

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout": ms(-1)}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "t.*"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_bad_heartbeats_are_told_why_and_make_no_group(fields: dict[str, Any], error: ErrorCode) -> None:
    async def scenario() -> None:
        rig = Rig()
        answer = await Consumer(rig, "one", "t1").beat(obey=False, **fields)
        assert answer.error_code == error
        assert answer.error_message
        assert await listed(rig) == {}
        assert rig.coordinator.held_bytes == 0

    run(scenario())


def test_a_group_has_its_limits() -> None:
    async def scenario() -> None:
        rig = Rig(limits=GroupLimits(consumer_max_size=1))
        await Consumer(rig, "one", "t1").beat()
        assert await Consumer(rig, "two", "t1").error() == ErrorCode.GROUP_MAX_SIZE_REACHED
        rig.close()
        rig = Rig()
        rig.log.max_batch_bytes = 500
        names = tuple(f"topic-{n}" for n in range(100))
        assert await Consumer(rig, "one", *names).error() == ErrorCode.POLICY_VIOLATION
        assert await listed(rig) == {}
        rig = Rig(limits=GroupLimits(memory_bytes=7_000))
        assert await Consumer(rig, "one", *names).error() == ErrorCode.POLICY_VIOLATION
        one = Consumer(rig, "one", "t1")
        await one.beat()
        assert await Consumer(rig, "two", "t1").error() == ErrorCode.POLICY_VIOLATION
        assert len((await shown(rig)).members) == 1
        held = rig.coordinator.held_bytes
        await one.beat(member_epoch=-1)
        assert 0 < rig.coordinator.held_bytes < held
        assert await deleted(rig, "g") == ErrorCode.NONE
        assert rig.coordinator.held_bytes == 0

    run(scenario())


def test_nothing_changes_that_cannot_be_written() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        rig.log.full = True
        before = await shown(rig)
        assert await two.error() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await one.error(member_epoch=-1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await one.error() == ErrorCode.NONE, "nothing to write"
        assert await shown(rig) == before
        rig.close()

    run(scenario())


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
        ):
            asked: Any = who | changed
            assert await error_of_commit(rig, commit(version, 5, **asked), version) == error, (changed, version)
        for member, epoch, code in (("one", 1, 0), ("one", 0, 113), ("two", 1, 25), (None, -1, 0)):
            group = {"group_id": "g", "topics": None, "member_id": member, "member_epoch": epoch}
            message = request(ApiKey.OFFSET_FETCH, 9, groups=[group], require_stable=True)
            assert (await rig.ask(ApiKey.OFFSET_FETCH, 9, message)).groups[0].error_code == code, (member, epoch)
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


def test_the_two_protocols_take_turns_but_never_mix() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1")
        await one.beat()
        await error_of_commit(rig, commit(9, 5, member_id="one", generation_id_or_member_epoch=1))
        refused = await rig.ask(ApiKey.JOIN_GROUP, 9, join(9))
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await one.beat(member_epoch=-1)
        member = await lonely_member(rig)
        one.epoch, one.reads = 0, {}
        answer = await one.beat(obey=False)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group g is not a consumer group.",
        )
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
