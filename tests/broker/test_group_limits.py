"""What groups may take: over a real socket, each refused with a code, and the broker's memory stays what it is."""

import asyncio
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client
from broker.running import Running, running
from tierd.broker.groups.coordinator import Coordinator
from tierd.config.coordination import Groups
from tierd.config.topic import MIB
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

JOIN, SYNC, COMMIT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP
V3 = 3
"""A version of JoinGroup that needs no id first."""


def started(root: Path, **limits: Any) -> Any:
    return running(root, offsets_topic_partitions=1, groups=Groups(**limits))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with started(tmp_path) as made:
        yield made


def coordinator(broker: Running) -> Coordinator:
    return broker.broker.parts.coordinator


def asked(group: str = "g", metadata: bytes = b"meta", member_id: str = "", **extra: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "group_id": group,
        "session_timeout": datetime.timedelta(seconds=10),
        "rebalance_timeout": datetime.timedelta(seconds=60),
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    return values | extra


def join(client: Client, *args: Any, **values: Any) -> Any:
    return client.call(int(JOIN), V3, **asked(*args, **values))


def commit(client: Client, group: str, metadata: str = "") -> int:
    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": metadata}
    who = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = client.call(int(COMMIT), 9, **who, topics=[{"name": "t", "partitions": [part]}])
    return int(answer.topics[0].partitions[0].error_code)


def leave(client: Client, group: str, member_id: str) -> None:
    client.call(int(LEAVE), 2, group_id=group, member_id=member_id)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_member_that_no_record_could_hold_is_refused_and_nothing_of_it_kept(broker: Running) -> None:
    large = b"x" * (40 * MIB)
    before = resident_bytes()
    with Client(broker.address) as client:
        for number in range(12):
            answer = join(client, f"g{number}", large)
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert resident_bytes() - before < 300 * MIB  # what one request needs on both sides of the socket
    assert coordinator(broker).held_bytes == 0
    assert not broker.call(lambda: next(iter(coordinator(broker)._shards.ready.values())).groups)


def test_a_newcomer_that_makes_the_group_too_large_leaves_it_as_it_is(broker: Running) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        member = join(one, "g", b"x" * 600_000).member_id
        assert one.call(int(SYNC), 3, **sync(member, b"work")).error_code == ErrorCode.NONE
        assert join(other, "g", b"x" * 600_000).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        beat = {"group_id": "g", "generation_id": 1, "member_id": member}
        assert one.call(int(ApiKey.HEARTBEAT), 3, **beat).error_code == ErrorCode.NONE


def sync(member: str, work: bytes) -> dict[str, Any]:
    rows = [{"member_id": member, "assignment": work}]
    return {"group_id": "g", "generation_id": 1, "member_id": member, "assignments": rows}


def test_an_assignment_that_no_record_could_hold_is_refused_as_by_kafka(broker: Running) -> None:
    with Client(broker.address) as client:
        member = join(client).member_id
        answer = client.call(int(SYNC), 3, **sync(member, b"x" * (2 * MIB)))
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        again = join(client, member_id=member)
        assert (again.error_code, again.generation_id) == (ErrorCode.NONE, 2)


def test_a_follower_may_not_leave_assignments_with_the_broker(broker: Running) -> None:
    with Client(broker.address) as one, Client(broker.address) as other:
        leader = join(one).member_id
        other.send(int(JOIN), V3, **asked())
        broker.run(_members(broker, 2))
        assert join(one, member_id=leader).error_code == ErrorCode.NONE
        follower = other.answer(int(JOIN), V3).member_id
        asked_sync = sync(follower, b"x" * 100_000) | {"generation_id": 2}
        assert other.call(int(SYNC), 3, **asked_sync).error_code == ErrorCode.INVALID_REQUEST


async def _members(broker: Running, count: int) -> None:
    """Wait until the group has *count* members."""

    shard = await coordinator(broker).shard("g")
    while len(shard.groups["g"].members) < count:
        await asyncio.sleep(0)


def test_a_full_group_takes_nobody_more(tmp_path: Path) -> None:
    with started(tmp_path, max_size=1) as broker, Client(broker.address) as one, Client(broker.address) as other:
        member = join(one).member_id
        refused = join(other)
        assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert join(one, member_id=member).error_code == ErrorCode.NONE
        leave(one, "g", member)
        assert join(other).error_code == ErrorCode.NONE


def test_metadata_of_an_offset_has_the_length_that_is_set(tmp_path: Path) -> None:
    with started(tmp_path, offset_metadata=10) as broker, Client(broker.address) as client:
        client.create("t")
        assert commit(client, "g", "x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert commit(client, "g", "x" * 10) == ErrorCode.NONE


def test_all_groups_together_keep_to_their_memory(tmp_path: Path) -> None:
    with started(tmp_path, memory_bytes=MIB) as broker, Client(broker.address) as client:
        client.create("t")
        assert commit(client, "early") == ErrorCode.NONE
        members = {}
        while (answer := join(client, f"g{len(members)}", b"x" * 100_000)).error_code == ErrorCode.NONE:
            members[f"g{len(members)}"] = answer.member_id
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert 8 <= len(members) <= 10
        number = 0
        while (error := commit(client, f"c{number}")) == ErrorCode.NONE:
            number += 1
        assert error == ErrorCode.POLICY_VIOLATION
        assert commit(client, "early") == ErrorCode.NONE
        for group, member in members.items():
            assert join(client, group, b"x" * 100_000, member_id=member).error_code == ErrorCode.NONE
        leave(client, "g0", members["g0"])
        assert commit(client, f"c{number}") == ErrorCode.NONE
        assert join(client, "g0", b"x" * 10_000).error_code == ErrorCode.NONE


def test_groups_with_neither_members_nor_offsets_make_room(tmp_path: Path) -> None:
    with started(tmp_path, memory_bytes=MIB) as broker, Client(broker.address) as client:
        client.create("t")
        commit(client, "kept")
        leave(client, "kept", join(client, "kept").member_id)
        for number in range(1100):
            answer = join(client, f"g{number}")
            assert answer.error_code == ErrorCode.NONE
            leave(client, f"g{number}", answer.member_id)
        groups = broker.call(lambda: sorted(next(iter(coordinator(broker)._shards.ready.values())).groups))
        assert "kept" in groups
        assert len(groups) < 1000
    with started(tmp_path, memory_bytes=MIB) as broker, Client(broker.address) as client:
        assert join(client, "g0", member_id="gone").error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.call(lambda: sorted(next(iter(coordinator(broker)._shards.ready.values())).groups)) == groups


def test_what_is_refused_takes_no_room(tmp_path: Path) -> None:
    with started(tmp_path, memory_bytes=MIB) as broker, Client(broker.address) as client:
        join(client)
        for _ in range(20):
            answer = join(client, "g", b"x" * 100_000, member_id="stranger")
            assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert join(client, "h").error_code == ErrorCode.NONE


def test_members_that_start_together_are_gathered_when_asked_for(tmp_path: Path) -> None:
    with (
        started(tmp_path, initial_delay_ms=300) as broker,
        Client(broker.address) as one,
        Client(broker.address) as two,
    ):
        one.send(int(JOIN), V3, **asked())
        two.send(int(JOIN), V3, **asked())
        answers = [one.answer(int(JOIN), V3), two.answer(int(JOIN), V3)]
        assert [answer.generation_id for answer in answers] == [1, 1]
        assert sorted(len(answer.members) for answer in answers) == [0, 2]
