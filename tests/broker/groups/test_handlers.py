"""The group APIs end to end without a socket: every version, recorded requests, who is told what."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from kit.golden import golden
from tierd.wire.api import API, ApiKey
from tierd.wire.control import decode_control
from tierd.wire.errors import ErrorCode
from tierd.wire.header import parse_request_header

from .rig import Rig, join, lonely_member, ms, request, run, sync


@pytest.mark.parametrize("version", range(10))
def test_join_in_every_version(version: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        answer = await rig.ask(ApiKey.JOIN_GROUP, version, join(version))
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            answer = await rig.ask(ApiKey.JOIN_GROUP, version, join(version, answer.member_id))
        assert answer.error_code == ErrorCode.NONE
        assert answer.generation_id == 1
        assert answer.leader == answer.member_id == "c-id1"
        assert [member.metadata for member in answer.members] == [b"meta"]
        rig.coordinator.close()

    run(scenario())


@pytest.mark.parametrize("version", range(6))
def test_sync_heartbeat_and_leave_in_every_version(version: int) -> None:
    async def scenario() -> None:
        rig = Rig()
        member = await lonely_member(rig)
        who = {"group_id": "g", "generation_id": 1, "member_id": member}
        answer = await rig.ask(ApiKey.SYNC_GROUP, version, sync(version, member, 1, {}))
        assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"work")
        beat = min(version, API[ApiKey.HEARTBEAT].last)
        answer = await rig.ask(ApiKey.HEARTBEAT, beat, request(ApiKey.HEARTBEAT, beat, **who))
        assert answer.error_code == ErrorCode.NONE
        leave = request(ApiKey.LEAVE_GROUP, version, **who, members=[{"member_id": member, "group_instance_id": None}])
        answer = await rig.ask(ApiKey.LEAVE_GROUP, version, leave)
        assert answer.error_code == ErrorCode.NONE
        answer = await rig.ask(ApiKey.LEAVE_GROUP, version, leave)
        error = answer.error_code if version < 3 else answer.members[0].error_code
        assert error == ErrorCode.UNKNOWN_MEMBER_ID
        rig.coordinator.close()

    run(scenario())


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_in_every_version(version: int) -> None:
    async def find(rig: Rig, key: str, key_type: int = 0) -> Any:
        message = request(ApiKey.FIND_COORDINATOR, version, key=key, key_type=key_type, coordinator_keys=[key])
        answer = await rig.ask(ApiKey.FIND_COORDINATOR, version, message)
        return answer.coordinators[0] if version >= 4 else answer

    async def scenario() -> None:
        rig = Rig()
        found = await find(rig, "g")
        assert (found.node_id, found.host, found.port, found.error_code) == (1, "127.0.0.1", 19094, ErrorCode.NONE)
        if version >= 1:
            assert found.error_message == ("NONE" if version < 4 else "")
            assert (await find(rig, "g", 2)).error_code == ErrorCode.INVALID_REQUEST
        assert (await find(rig, "")).error_code == ErrorCode.INVALID_GROUP_ID
        rig.nodes.there = False
        assert (await find(rig, "g")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario())


GROUP_APIS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
]

OFFSET_APIS = {int(ApiKey.OFFSET_COMMIT), int(ApiKey.OFFSET_FETCH)}
TOPIC_IDS_FROM = 10


def recorded_groups() -> Iterator[tuple[str, int, int, bytes]]:
    for path in sorted(golden("wire").rglob("*.request")):
        key, version = path.name.split(".")[:2]
        api_key, number = int(key), int(version[1:])
        group_api = api_key in {int(key) for key in GROUP_APIS}
        by_id = api_key in OFFSET_APIS and number >= TOPIC_IDS_FROM  # another handler makes names of them
        if group_api and number <= API[api_key].last and not by_id:
            yield path.name, api_key, number, path.read_bytes()


@pytest.mark.parametrize("case", list(recorded_groups()), ids=lambda case: case[0])
def test_recorded_requests_get_an_answer_of_the_recorded_kind(case: tuple[str, int, int, bytes]) -> None:
    """Alone and without state: the answer encodes, and has the shape that Kafka's had where no state is needed."""
    name, api_key, version, raw = case

    async def scenario() -> None:
        rig = Rig()
        header, position = parse_request_header(memoryview(raw))
        message = decode_control(api_key, version, memoryview(raw)[position:])
        answer = await rig.ask(api_key, version, message, header.client_id or "")
        rig.coordinator.close()
        path = next(golden("wire").rglob(name.replace(".request", ".response")))
        schema = load_response_schema(api_key, version)
        recorded = path.read_bytes()
        _, start = entity_reader(schema.__header_schema__)(recorded, 0)
        kafka: Any
        kafka, _ = entity_reader(schema)(recorded, start)
        if api_key == ApiKey.FIND_COORDINATOR:
            assert answer == kafka
        if api_key == ApiKey.JOIN_GROUP and kafka.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert answer.member_id.removesuffix("id1") == kafka.member_id[:-36]
            assert (answer.protocol_name, answer.leader, answer.members) == (kafka.protocol_name, "", ())
        if api_key == ApiKey.OFFSET_FETCH and ".groups-describe" not in name:
            assert answer == kafka

    run(scenario())


def test_two_members_share_and_one_falls_silent() -> None:
    async def scenario() -> None:
        rig = Rig()
        first = await lonely_member(rig, 3)
        second = rig.start(ApiKey.JOIN_GROUP, 3, join(3))
        await asyncio.sleep(0)
        again = await rig.ask(ApiKey.JOIN_GROUP, 9, join(9, first))
        other = (await second).member_id
        assert again.leader == first
        waiting = rig.start(ApiKey.SYNC_GROUP, 5, sync(5, other, 2, {}))
        await asyncio.sleep(0)
        assert not waiting.done()
        await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, first, 2, {first: b"a", other: b"b"}))
        assert (await waiting).assignment == b"b"
        await rig.pass_time(9_999)
        beat = request(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=2, member_id=first)
        assert (await rig.ask(ApiKey.HEARTBEAT, 4, beat)).error_code == ErrorCode.NONE
        await rig.pass_time(1)
        assert (await rig.ask(ApiKey.HEARTBEAT, 4, beat)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        again = await rig.ask(ApiKey.JOIN_GROUP, 9, join(9, first))
        assert [member.member_id for member in again.members] == [first]
        rig.coordinator.close()

    run(scenario())


def test_bad_requests_are_told_why() -> None:
    async def scenario() -> None:
        rig = Rig()
        for extra, error in (
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"session_timeout": ms(5_999)}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"session_timeout": ms(1_800_001)}, ErrorCode.INVALID_SESSION_TIMEOUT),
            ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            assert (await rig.ask(ApiKey.JOIN_GROUP, 9, join(**extra))).error_code == error
        assert (await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, "x", 1, {}))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        empty = sync(5, "x", 1, {}, group_id="")
        assert (await rig.ask(ApiKey.SYNC_GROUP, 5, empty)).error_code == ErrorCode.INVALID_GROUP_ID
        for missing in ("protocol_type", "protocol_name"):  # Kafka looks for them first
            answer = await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, "x", 1, {}, **{missing: None}, group_id=""))
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        for key, version in ((ApiKey.HEARTBEAT, 4), (ApiKey.LEAVE_GROUP, 2)):
            message = request(key, version, group_id="", generation_id=1, member_id="x")
            assert (await rig.ask(key, version, message)).error_code == ErrorCode.INVALID_GROUP_ID
            message = request(key, version, group_id="none", generation_id=1, member_id="x")
            assert (await rig.ask(key, version, message)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario())


def test_a_client_that_hangs_up_is_not_waited_for() -> None:
    async def scenario() -> None:
        rig = Rig()
        first = await lonely_member(rig)
        second = rig.start(ApiKey.JOIN_GROUP, 3, join(3))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        waiting = rig.start(ApiKey.JOIN_GROUP, 9, join(9, first))
        await asyncio.sleep(0)
        await rig.pass_time(10_000)
        assert [member.member_id for member in (await waiting).members] == [first]
        rig.coordinator.close()

    run(scenario())
