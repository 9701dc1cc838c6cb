"""The group APIs end to end without a socket: every version, recorded requests, restarts, full disks."""

import asyncio
import datetime
import importlib
import itertools
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from kit.clock import FakeClock
from kit.golden import golden
from tierd.broker.groups.coordinator import Coordinator
from tierd.broker.groups.handlers import GroupHandlers
from tierd.broker.groups.model import GroupTimes
from tierd.broker.groups.offset_handlers import MAX_METADATA_BYTES
from tierd.wire.api import API, ApiKey
from tierd.wire.control import decode_control, make_response
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader, parse_request_header

from .fake_log import FakeLog, FakeNodes, FakeTopics


class Rig:
    """Handlers over a fake log; `restart` begins again with the same log."""

    def __init__(self, log: FakeLog | None = None, times: GroupTimes | None = None) -> None:
        self.log = log or FakeLog()
        self.clock = FakeClock()
        self.topics = FakeTopics()
        self.nodes = FakeNodes()
        self.coordinator = Coordinator(self.log, self.clock, times=times)
        ids = itertools.count(1)
        handlers = GroupHandlers(self.coordinator, self.topics, self.nodes, new_id=lambda: f"id{next(ids)}")
        self._table = handlers.table()

    def restart(self) -> "Rig":
        self.coordinator.close()
        return Rig(self.log)

    async def ask(self, api_key: int, version: int, request: Any, client_id: str = "c") -> Any:
        header = RequestHeader(api_key, version, 1, client_id)
        fields = await self._table[ApiKey(api_key)](header, request)
        return make_response(api_key, version, **fields)

    def start(self, *args: Any) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.ask(*args))

    async def pass_time(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.coordinator.run_due()
        await asyncio.sleep(0)


def ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def build(entity: Any, **values: Any) -> Any:
    """An entity with those of *values* that its version has; lists become tuples of nested entities."""
    module = importlib.import_module(entity.__module__)
    fields = entity.__dataclass_fields__
    ready = {}
    for name, value in values.items():
        if name not in fields:
            continue
        if isinstance(value, list):
            nested = _nested(module, str(fields[name].type))
            value = tuple(build(nested, **item) if isinstance(item, dict) else item for item in value)
        ready[name] = value
    return entity(**ready)


def _nested(module: Any, hint: str) -> Any:
    return next((cls for name, cls in vars(module).items() if isinstance(cls, type) and f".{name}," in hint), None)


def request(api_key: int, version: int, **values: Any) -> Any:
    return build(load_request_schema(api_key, version), **values)


def join(version: int = 9, member_id: str = "", **extra: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": ms(10_000),
        "rebalance_timeout": ms(60_000),
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"meta"}],
    }
    return request(ApiKey.JOIN_GROUP, version, **(values | extra))


def sync(version: int, member_id: str, generation: int, assignments: dict[str, bytes], **extra: Any) -> Any:
    rows = [{"member_id": member, "assignment": work} for member, work in assignments.items()]
    values = {"group_id": "g", "generation_id": generation, "member_id": member_id, "assignments": rows}
    return request(ApiKey.SYNC_GROUP, version, **(values | extra))


def commit(version: int, offset: int, *, topic: str = "t1", metadata: str = "m", partition: int = 0, **who: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time": ms(-1),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": 4,
                        "committed_metadata": metadata,
                    }
                ],
            }
        ],
    }
    return request(ApiKey.OFFSET_COMMIT, version, **(values | who))


async def fetched(rig: Rig, topics: Any = None, version: int = 9) -> dict[tuple[str, int], Any]:
    group = {"group_id": "g", "topics": topics, "member_id": None, "member_epoch": -1}
    values: dict[str, Any] = group | {"groups": [group], "require_stable": True}
    answer = await rig.ask(ApiKey.OFFSET_FETCH, version, request(ApiKey.OFFSET_FETCH, version, **values))
    rows = answer.groups[0].topics if version >= 8 else answer.topics
    return {(topic.name, part.partition_index): part for topic in rows for part in topic.partitions}


async def error_of_commit(rig: Rig, message: Any, version: int = 9) -> int:
    answer = await rig.ask(ApiKey.OFFSET_COMMIT, version, message)
    return int(answer.topics[0].partitions[0].error_code)


async def lonely_member(rig: Rig, version: int = 9) -> str:
    """One member in a stable group."""
    answer = await rig.ask(ApiKey.JOIN_GROUP, version, join(version))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await rig.ask(ApiKey.JOIN_GROUP, version, join(version, answer.member_id))
    assert answer.error_code == ErrorCode.NONE
    member: str = answer.member_id
    await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, member, answer.generation_id, {member: b"work"}))
    return member


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


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


def recorded_groups() -> Iterator[tuple[str, int, int, bytes]]:
    for path in sorted(golden("wire").rglob("*.request")):
        key, version = path.name.split(".")[:2]
        api_key, number = int(key), int(version[1:])
        group_api = api_key in {int(key) for key in GROUP_APIS}
        if group_api and number <= API[api_key].last:
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


def test_the_real_clock_ends_sessions() -> None:
    """The timer itself, with sessions of a few milliseconds."""

    async def scenario() -> None:
        rig = Rig(times=GroupTimes(min_session_timeout_ms=1))
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
        assert (await fetched(rig))["t1", 0].committed_offset == 5

    run(scenario())


def test_what_may_not_be_committed() -> None:
    async def scenario() -> None:
        rig = Rig()
        assert await error_of_commit(rig, commit(9, 5, generation_id_or_member_epoch=3)) == ErrorCode.ILLEGAL_GENERATION
        assert await error_of_commit(rig, commit(9, 5, topic="nope")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await error_of_commit(rig, commit(9, 5, partition=3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        long = "x" * (MAX_METADATA_BYTES + 1)
        assert await error_of_commit(rig, commit(9, 5, metadata=long)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await error_of_commit(rig, commit(9, 5, metadata=long[1:])) == ErrorCode.NONE
        await lonely_member(rig)
        assert await error_of_commit(rig, commit(9, 5)) == ErrorCode.UNKNOWN_MEMBER_ID
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
