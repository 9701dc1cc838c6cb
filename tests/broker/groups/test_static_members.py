"""Members that keep their place through a restart (KIP-345)."""

import pytest

from tierd.broker.groups.model import (
    State,
)
from tierd.wire.errors import ErrorCode

from .cluster import SESSION, Cluster


@pytest.mark.parametrize("knows_skip", [True, False])
def test_a_static_leader_that_restarts_disturbs_nobody(knows_skip: bool) -> None:
    cluster = Cluster()
    old = cluster.joined(cluster.join(instance="i")).member_id
    cluster.sync(old, {old: b"work"}, instance="i")
    persisted = cluster.persisted
    answer = cluster.joined(cluster.join(instance="i", knows_skip=knows_skip))
    assert cluster.group.state is State.STABLE
    assert answer.generation == 1
    assert answer.member_id != old
    assert answer.skip_assignment is knows_skip
    assert answer.leader == (answer.member_id if knows_skip else old)
    assert len(answer.members) == int(knows_skip)
    assert cluster.persisted == persisted + 1
    assert cluster.synced(cluster.sync(answer.member_id, instance="i")).assignment == b"work"
    assert cluster.beat(old, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert cluster.beat(old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.synced(cluster.sync(old, instance="i")).error is ErrorCode.FENCED_INSTANCE_ID
    assert cluster.joined(cluster.join(old, instance="i")).error is ErrorCode.FENCED_INSTANCE_ID
    assert cluster.joined(cluster.join(old, instance="unknown")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    cluster = Cluster()
    static = cluster.joined(cluster.join(instance="i")).member_id
    newcomer = cluster.join()
    cluster.join(static, instance="i")
    leader, dynamic = static, cluster.joined(newcomer).member_id
    cluster.sync(leader, {}, instance="i")
    cluster.sync(dynamic)
    assert cluster.group.leave("", "i", cluster.now)[0] is ErrorCode.NONE
    assert list(cluster.group.members) == [dynamic]
    assert cluster.group.leave("", "i", cluster.now)[0] is ErrorCode.UNKNOWN_MEMBER_ID


def test_only_static_members_that_are_away_are_waited_for() -> None:
    cluster = Cluster()
    static = cluster.joined(cluster.join(instance="i")).member_id
    cluster.sync(static, {}, instance="i")
    newcomer = cluster.join()
    cluster.did(cluster.group.leave(next(m for m in cluster.group.members if m != static), None, cluster.now)[1])
    assert cluster.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    cluster.pass_time(SESSION)
    assert cluster.group.state is State.EMPTY
