"""ConsumerGroupHeartbeat and ConsumerGroupDescribe as clients see them: answers, refusals, limits."""

import dataclasses
import datetime
from typing import Any

import pytest

from broker.groups.consumer.member import BEAT, DESCRIBE, Consumer, shown
from broker.groups.rig import Rig, commit, error_of_commit, ms, run
from broker.groups.test_admin import deleted, listed, response_to
from tierd.base.ids import Uuid
from tierd.broker.groups.model import GroupLimits
from tierd.wire.control import decode_control
from tierd.wire.errors import ErrorCode
from tierd.wire.header import parse_request_header
from wire.frames import recorded


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
        ({"subscribed_topic_regex": "t("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
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
