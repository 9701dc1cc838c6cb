"""OffsetCommit and OffsetFetch 10: the same offsets whether topics go by name or by id."""

from typing import Any
from uuid import UUID

import pytest

from broker.client import Client
from tierd.wire.errors import ErrorCode

COMMIT, FETCH, METADATA, FIND = 8, 9, 3, 10
UNKNOWN = UUID(int=77)


@pytest.fixture
def group(client: Client) -> Client:
    """The coordinator of group `g` is ready."""
    for topic in ("t", "u"):
        client.create(topic, 2)
    client.call(FIND, 4, key_type=0, coordinator_keys=["g"])
    return client


def ident(client: Client, name: str) -> Any:
    return client.call(METADATA, 12, topics=[{"name": name, "topic_id": None}]).topics[0].topic_id


def commit(client: Client, topics: dict[Any, dict[int, int]], version: int = 10) -> dict[tuple[Any, int], int]:
    key = "topic_id" if version >= 10 else "name"
    rows = [
        {key: topic, "partitions": [{"partition_index": n, "committed_offset": at} for n, at in offsets.items()]}
        for topic, offsets in topics.items()
    ]
    asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    got = client.call(COMMIT, version, **asked, topics=rows)
    return {(getattr(t, key), p.partition_index): int(p.error_code) for t in got.topics for p in t.partitions}


def fetch(client: Client, topics: dict[Any, list[int]] | None, version: int = 10) -> dict[Any, tuple[int, int]]:
    key = "topic_id" if version >= 10 else "name"
    rows = None if topics is None else [{key: t, "partition_indexes": indexes} for t, indexes in topics.items()]
    asked = [{"group_id": "g", "member_id": None, "member_epoch": -1, "topics": rows}]
    (got,) = client.call(FETCH, version, groups=asked, require_stable=False).groups
    assert not got.error_code
    return {
        (getattr(t, key), p.partition_index): (p.committed_offset, int(p.error_code))
        for t in got.topics
        for p in t.partitions
    }


def test_offsets_by_id_and_by_name_are_the_same(group: Client) -> None:
    t, u = ident(group, "t"), ident(group, "u")
    assert commit(group, {t: {0: 5, 1: 6}, u: {1: 7}}) == {(t, 0): 0, (t, 1): 0, (u, 1): 0}
    assert fetch(group, {"t": [0, 1], "u": [1]}, 9) == {("t", 0): (5, 0), ("t", 1): (6, 0), ("u", 1): (7, 0)}
    assert commit(group, {"t": {0: 8}}, 9) == {("t", 0): 0}
    assert fetch(group, {t: [0], u: [0, 1]}) == {(t, 0): (8, 0), (u, 0): (-1, 0), (u, 1): (7, 0)}
    assert fetch(group, None) == {(t, 0): (8, 0), (t, 1): (6, 0), (u, 1): (7, 0)}


def test_an_id_that_nobody_has_is_said_and_the_others_are_kept(group: Client) -> None:
    t, unknown = ident(group, "t"), int(ErrorCode.UNKNOWN_TOPIC_ID)
    assert commit(group, {UNKNOWN: {0: 1, 1: 2}, t: {0: 5, 9: 1}}) == {
        (t, 0): 0,
        (t, 9): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (UNKNOWN, 0): unknown,
        (UNKNOWN, 1): unknown,
    }
    assert fetch(group, {UNKNOWN: [3], t: [0]}) == {(t, 0): (5, 0), (UNKNOWN, 3): (-1, unknown)}


def test_a_topic_made_again_begins_without_offsets(group: Client) -> None:
    old = ident(group, "t")
    commit(group, {old: {0: 5}})
    group.call(20, 6, topics=[{"name": "t", "topic_id": None}], timeout=5000)
    assert fetch(group, None) == {}
    group.create("t", 2)
    assert commit(group, {old: {0: 6}}) == {(old, 0): ErrorCode.UNKNOWN_TOPIC_ID}
    assert fetch(group, {ident(group, "t"): [0]}) == {(ident(group, "t"), 0): (-1, 0)}
