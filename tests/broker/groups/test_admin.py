"""ListGroups, DescribeGroups, DeleteGroups, OffsetDelete."""

import asyncio
import struct
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from tierd.wire.api import API, ApiKey
from tierd.wire.control import decode_control
from tierd.wire.errors import ErrorCode
from tierd.wire.header import parse_request_header
from wire.frames import recorded

from .rig import Rig, commit, error_of_commit, fetched, join, lonely_member, request, run, sync


def subscription(*topics: str) -> bytes:
    """As a Java consumer sends it: version 3, topics, no user data, nothing owned, generation -1, no rack."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 3, len(topics)) + names + struct.pack(">iiih", -1, 0, -1, -1)


async def member_reading(rig: Rig, *topics: str, kind: str = "consumer", group: str = "g") -> str:
    """A stable group of one that subscribes to *topics*."""
    said: Any = {"protocols": [{"name": "range", "metadata": subscription(*topics)}], "protocol_type": kind}
    answer = await rig.ask(ApiKey.JOIN_GROUP, 3, join(3, group_id=group, **said))
    member: str = answer.member_id
    await rig.ask(ApiKey.SYNC_GROUP, 3, sync(3, member, answer.generation_id, {member: b"work"}, group_id=group))
    return member


async def listed(rig: Rig, version: int = 5, **filters: Any) -> dict[str, Any]:
    answer = await rig.ask(ApiKey.LIST_GROUPS, version, request(ApiKey.LIST_GROUPS, version, **filters))
    assert getattr(answer, "error_code", ErrorCode.NONE) == ErrorCode.NONE
    return {group.group_id: group for group in answer.groups}


async def described(rig: Rig, name: str, version: int = 6, *, operations: bool = False) -> Any:
    message = request(ApiKey.DESCRIBE_GROUPS, version, groups=(name,), include_authorized_operations=operations)
    answer = await rig.ask(ApiKey.DESCRIBE_GROUPS, version, message)
    return answer.groups[0]


async def deleted(rig: Rig, name: str, version: int = 2) -> int:
    answer = await rig.ask(ApiKey.DELETE_GROUPS, version, request(ApiKey.DELETE_GROUPS, version, groups_names=(name,)))
    return int(answer.results[0].error_code)


async def offset_deleted(rig: Rig, topic: str, partition: int = 0) -> tuple[int, int | None]:
    """The error of the request and that of the partition."""
    topics = [{"name": topic, "partitions": [{"partition_index": partition}]}]
    message = request(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
    answer = await rig.ask(ApiKey.OFFSET_DELETE, 0, message)
    part = answer.topics[0].partitions[0].error_code if answer.topics else None
    return int(answer.error_code), None if part is None else int(part)


@pytest.mark.parametrize("version", range(API[ApiKey.LIST_GROUPS].last + 1))
def test_groups_are_listed_with_and_without_members(version: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        assert await listed(rig, version) == {}
        await lonely_member(rig)
        await error_of_commit(rig, commit(9, 5, group_id="alone"))
        for _ in range(2):
            groups = await listed(rig, version)
            assert {name: group.protocol_type for name, group in groups.items()} == {"g": "consumer", "alone": ""}
            if version >= 4:
                assert {name: row.group_state for name, row in groups.items()} == {"g": "Stable", "alone": "Empty"}
            if version >= 5:
                assert {row.group_type for row in groups.values()} == {"classic"}
            rig = rig.restart()
        rig.coordinator.close()

    run(scenario())


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"states_filter": ("stable",)}, {"g"}),
        ({"states_filter": ("Empty", "PreparingRebalance")}, {"alone"}),
        ({"states_filter": ("Assigning",)}, set()),
        ({"types_filter": ("Classic", "Consumer")}, {"g", "alone"}),
        ({"types_filter": ("consumer",)}, set()),
        ({"types_filter": ("classic",), "states_filter": ("EMPTY",)}, {"alone"}),
    ],
)
def test_states_and_types_are_told_apart(filters: dict[str, Any], found: set[str]) -> None:
    async def scenario() -> None:
        rig = Rig()
        await lonely_member(rig)
        await error_of_commit(rig, commit(9, 5, group_id="alone"))
        assert set(await listed(rig, **filters)) == found
        rig.coordinator.close()

    run(scenario())


def test_offsets_that_cannot_be_read_are_not_an_empty_list() -> None:
    async def scenario() -> None:
        rig = Rig()
        await lonely_member(rig)
        rig = rig.restart()
        rig.log.broken = True
        answer = await rig.ask(ApiKey.LIST_GROUPS, 5, request(ApiKey.LIST_GROUPS, 5))
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await described(rig, "g")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await deleted(rig, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await offset_deleted(rig, "t1") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)

    run(scenario())


@pytest.mark.parametrize("version", range(API[ApiKey.DESCRIBE_GROUPS].last + 1))
def test_a_group_is_described_in_each_state(version: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        missing = await described(rig, "g", version)
        assert (missing.group_state, missing.members) == ("Dead", ())
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
        if version >= 6:
            assert missing.error_message == "Group g not found."
        await error_of_commit(rig, commit(9, 5))
        assert (await described(rig, "g", version)).group_state == "Empty"
        answer = await rig.ask(ApiKey.JOIN_GROUP, 3, join(3), "cc")
        joining = await described(rig, "g", version)
        assert (joining.group_state, joining.protocol_data) == ("CompletingRebalance", "")
        assert [(row.member_id, row.member_metadata) for row in joining.members] == [(answer.member_id, b"")]
        await rig.ask(ApiKey.SYNC_GROUP, 3, sync(3, answer.member_id, 1, {answer.member_id: b"work"}))
        stable = await described(rig, "g", version)
        assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
        (member,) = stable.members
        assert (member.client_id, member.member_metadata, member.member_assignment) == ("cc", b"meta", b"work")
        second = asyncio.create_task(rig.ask(ApiKey.JOIN_GROUP, 3, join(3), "cc"))
        while (moving := await described(rig, "g", version)).group_state == "Stable":
            await asyncio.sleep(0)
        assert [row.member_assignment for row in moving.members] == [b"work", b""], "what they read still"
        second.cancel()
        rig.coordinator.close()

    run(scenario())


def test_operations_are_told_when_asked_for() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        assert (await described(rig, "g")).authorized_operations == -(1 << 31)
        asked = await described(rig, "g", operations=True)
        assert asked.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
        rig.coordinator.close()

    run(scenario())


def test_a_group_goes_with_its_offsets_once_it_is_empty_and_stays_away() -> None:
    async def scenario() -> None:
        rig = Rig()
        assert await deleted(rig, "g") == ErrorCode.GROUP_ID_NOT_FOUND
        member = await lonely_member(rig)
        await error_of_commit(rig, commit(9, 5, member_id=member, generation_id_or_member_epoch=1))
        assert await deleted(rig, "g") == ErrorCode.NON_EMPTY_GROUP
        leave = request(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": member}])
        await rig.ask(ApiKey.LEAVE_GROUP, 5, leave)
        rig.log.full = True
        assert await deleted(rig, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await fetched(rig))["t1", 0].committed_offset == 5
        rig.log.full = False
        assert await deleted(rig, "g") == ErrorCode.NONE
        assert rig.coordinator.held_bytes == 0
        for _ in range(2):
            assert await deleted(rig, "g") == ErrorCode.GROUP_ID_NOT_FOUND
            assert await fetched(rig) == {}
            rig = rig.restart()
        rig.coordinator.close()

    run(scenario())


@pytest.mark.parametrize("version", range(API[ApiKey.DELETE_GROUPS].last + 1))
def test_offsets_without_a_group_are_deleted_too(version: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        assert await deleted(rig, "g", version) == ErrorCode.NONE
        assert await listed(rig.restart()) == {}

    run(scenario())


def test_offsets_are_deleted_of_topics_that_nobody_reads() -> None:
    async def scenario() -> None:
        rig = Rig()
        assert await offset_deleted(rig, "t1") == (ErrorCode.GROUP_ID_NOT_FOUND, None)
        who: Any = {"member_id": await member_reading(rig, "t2"), "generation_id_or_member_epoch": 1}
        await error_of_commit(rig, commit(9, 5, **who))
        await error_of_commit(rig, commit(9, 6, topic="t2", **who))
        assert await offset_deleted(rig, "gone") == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await offset_deleted(rig, "t2") == (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        rig.log.full = True
        assert await offset_deleted(rig, "t1") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        rig.log.full = False
        for _ in range(2):  # that there is none any more is no error
            assert await offset_deleted(rig, "t1") == (ErrorCode.NONE, ErrorCode.NONE)
        rig = rig.restart()
        assert {place: row.committed_offset for place, row in (await fetched(rig)).items()} == {("t2", 0): 6}
        assert await offset_deleted(rig, "t2") == (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        rig.coordinator.close()

    run(scenario())


@pytest.mark.parametrize("kind", ["consumer", "connect"])
def test_what_members_say_in_unknown_words_keeps_their_offsets(kind: str) -> None:
    async def scenario() -> None:
        rig = Rig()
        protocols = [{"name": "range", "metadata": b"\0\3\0\0\0\1\0\7cut"}]
        member = (await rig.ask(ApiKey.JOIN_GROUP, 3, join(3, protocol_type=kind, protocols=protocols))).member_id
        await rig.ask(ApiKey.SYNC_GROUP, 3, sync(3, member, 1, {}))
        await error_of_commit(rig, commit(9, 5, member_id=member, generation_id_or_member_epoch=1))
        subscribed = ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert await offset_deleted(rig, "t1") == (
            subscribed if kind == "consumer" else (ErrorCode.NON_EMPTY_GROUP, None)
        )
        assert (await fetched(rig))["t1", 0].committed_offset == 5
        rig.coordinator.close()

    run(scenario())


def test_answers_have_the_recorded_shape() -> None:
    """An empty group `pc`, as Kafka's tool saw it, field by field."""

    async def scenario() -> None:
        rig = Rig()
        pc = {"group_id": "pc"}
        member = await member_reading(rig, "t1", group="pc")
        leave = request(ApiKey.LEAVE_GROUP, 5, **pc, members=[{"member_id": member}])
        await rig.ask(ApiKey.LEAVE_GROUP, 5, leave)
        frames = recorded("request", ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS)
        assert len(frames) == 4
        for frame in sorted(frames, key=lambda frame: frame.api_key):
            _, position = parse_request_header(memoryview(frame.raw))
            asked = decode_control(frame.api_key, frame.version, memoryview(frame.raw)[position:])
            answer: Any = await rig.ask(frame.api_key, frame.version, asked)
            kafka = response_to(frame.name)
            if frame.api_key == ApiKey.LIST_GROUPS:
                assert answer.groups == tuple(group for group in kafka.groups if group.group_id == "pc")
            else:
                assert answer == kafka
        rig.coordinator.close()

    run(scenario())


def response_to(name: str) -> Any:
    (frame,) = (frame for frame in recorded("response") if frame.name == name.replace(".request", ".response"))
    schema = load_response_schema(frame.api_key, frame.version)
    _, start = entity_reader(schema.__header_schema__)(frame.raw, 0)
    return entity_reader(schema)(frame.raw, start)[0]
