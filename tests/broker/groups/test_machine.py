"""The state machine: what each request is answered, in each state."""

from tierd.broker.groups.model import (
    Protocols,
    State,
)
from tierd.wire.errors import ErrorCode

from .cluster import SESSION, Cluster


def test_a_single_member_joins_and_syncs() -> None:
    cluster = Cluster()
    answer = cluster.joined(cluster.join())
    assert (answer.error, answer.generation, answer.protocol) == (ErrorCode.NONE, 1, "range")
    assert answer.leader == answer.member_id
    assert [(member.id, member.metadata) for member in answer.members] == [(answer.member_id, b"r")]
    assert cluster.beat(answer.member_id) is ErrorCode.NONE
    assert cluster.synced(cluster.sync(answer.member_id, {answer.member_id: b"all"})).assignment == b"all"
    assert cluster.persisted == 1


def test_a_new_client_first_gets_its_id() -> None:
    cluster = Cluster()
    answer = cluster.joined(cluster.join(id_required=True))
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert cluster.group.state is State.EMPTY
    assert cluster.joined(cluster.join(answer.member_id, id_required=True)).error is ErrorCode.NONE
    cluster.pass_time(SESSION)
    lapsed = cluster.joined(cluster.join(id_required=True)).member_id
    cluster.pass_time(SESSION)
    assert cluster.joined(cluster.join(lapsed, id_required=True)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_was_given_an_id_and_never_came_back_keeps_no_first_member_waiting() -> None:
    cluster = Cluster()
    cluster.joined(cluster.join(id_required=True))
    first = cluster.joined(cluster.join())
    assert (first.error, first.generation, cluster.group.state) == (ErrorCode.NONE, 1, State.COMPLETING)


def test_a_second_member_makes_all_join_again() -> None:
    cluster = Cluster()
    members = cluster.settle(3)
    generation = cluster.group.generation
    newcomer = cluster.join()
    assert newcomer not in cluster.answers
    for member in members:
        assert cluster.beat(member) is ErrorCode.REBALANCE_IN_PROGRESS
        assert cluster.synced(cluster.sync(member)).error is ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [cluster.join(member) for member in members]
    assert cluster.joined(newcomer).generation == generation + 1
    assert cluster.joined(newcomer).members == ()
    assert len(cluster.joined(tickets[0]).members) == 4
    assert cluster.group.heartbeat(members[0], None, generation, cluster.now) is ErrorCode.ILLEGAL_GENERATION


def test_leaving() -> None:
    cluster = Cluster()
    leader, other = cluster.settle(2)
    error, actions = cluster.group.leave(leader, None, cluster.now)
    cluster.did(actions)
    assert error is ErrorCode.NONE
    assert cluster.group.state is State.PREPARING
    assert cluster.group.leader == other
    assert cluster.group.leave(leader, None, cluster.now)[0] is ErrorCode.UNKNOWN_MEMBER_ID
    before = cluster.persisted
    cluster.did(cluster.group.leave(other, None, cluster.now)[1])
    assert cluster.group.state is State.EMPTY
    assert cluster.persisted == before + 1


def test_leaving_while_waiting_answers_the_request() -> None:
    cluster = Cluster()
    leader, _ = cluster.settle(2)
    ticket = cluster.join(leader)
    cluster.did(cluster.group.leave(leader, None, cluster.now)[1])
    assert cluster.joined(ticket).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_protocols_must_agree() -> None:
    cluster = Cluster()
    assert cluster.joined(cluster.join(protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    cluster.settle(1)
    assert cluster.joined(cluster.join(kind="connect")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other: Protocols = (("other", b""),)
    assert cluster.joined(cluster.join(protocols=other)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_favourite_that_all_speak_wins() -> None:
    cluster = Cluster()
    first = cluster.joined(cluster.join(protocols=(("a", b""), ("b", b""), ("c", b"")))).member_id
    cluster.join(protocols=(("c", b"x"), ("b", b"")))
    cluster.join(protocols=(("c", b"x"), ("b", b"")))
    answer = cluster.joined(cluster.join(first, protocols=(("a", b""), ("b", b""), ("c", b"mine"))))
    assert answer.protocol == "c"
    assert sorted(member.metadata for member in answer.members) == [b"mine", b"x", b"x"]


def test_who_has_left_or_said_something_else_since_has_no_vote() -> None:
    cluster = Cluster()
    a, b, c = ("a", b""), ("b", b""), ("c", b"")
    first = cluster.joined(cluster.join(protocols=(a, b))).member_id
    second = cluster.join(protocols=(b, c))
    cluster.join(first, protocols=(a, b))
    assert cluster.joined(second).protocol == "b"
    assert cluster.joined(cluster.join(protocols=(a,))).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    _, actions = cluster.group.leave(cluster.joined(second).member_id, None, cluster.now)
    cluster.did(actions)
    third = cluster.join(protocols=(c, a))
    cluster.join(first, protocols=(c, a))
    assert cluster.joined(third).protocol == "c"
    assert cluster.joined(cluster.join(protocols=(b,))).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_changed_metadata_makes_a_rebalance() -> None:
    cluster = Cluster()
    leader, other = cluster.settle(2)
    ticket = cluster.join(other, protocols=(("range", b"more topics"), ("sticky", b"s")))
    assert ticket not in cluster.answers
    assert cluster.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert cluster.joined(cluster.join(leader)).generation == 3


def test_a_lost_join_answer_is_given_again() -> None:
    cluster = Cluster()
    first = cluster.joined(cluster.join())
    again = cluster.joined(cluster.join(first.member_id))
    assert again == first


def test_a_second_join_of_the_same_member_sends_the_first_away() -> None:
    cluster = Cluster()
    leader, _ = cluster.settle(2)
    old = cluster.join(leader)
    cluster.join(leader)
    assert cluster.joined(old).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_is_checked() -> None:
    cluster = Cluster()
    (member,) = cluster.settle(1)
    assert cluster.synced(cluster.sync("nobody")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert cluster.synced(cluster.sync(member, generation=9)).error is ErrorCode.ILLEGAL_GENERATION
    assert cluster.synced(cluster.sync(member, protocol="x")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert cluster.synced(cluster.sync(member, protocol="range")).assignment == member.encode()


def test_who_may_commit() -> None:
    cluster = Cluster()
    commit = cluster.group.may_commit
    assert commit("", None, -1, 0) is ErrorCode.NONE
    leader = cluster.joined(cluster.join()).member_id
    assert commit(leader, None, 1, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    cluster.sync(leader, {})
    assert commit(leader, None, 1, 0) is ErrorCode.NONE
    assert commit(leader, None, 0, 0) is ErrorCode.ILLEGAL_GENERATION
    assert commit("x", None, 1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    cluster.join()
    assert commit(leader, None, 1, 0) is ErrorCode.NONE  # before it joins again it may save its place
    cluster.did(cluster.group.die())
    assert commit(leader, None, 1, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_stored_group_comes_back() -> None:
    cluster = Cluster()
    members = cluster.settle(2)
    stored = cluster.group.stored()
    again = Cluster()
    again.group.load(stored, 0)
    assert again.group.state is State.STABLE
    assert again.group.stored() == stored
    assert again.beat(members[1]) is ErrorCode.NONE
    assert again.synced(again.sync(members[1])).assignment == members[1].encode()
    again.pass_time(SESSION)
    assert again.group.state is State.EMPTY


def test_what_was_not_stored_is_decided_again() -> None:
    cluster = Cluster()
    members = cluster.settle(2)
    cluster.did(cluster.group.start_over(cluster.now))
    assert cluster.beat(members[0]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_death_answers_everybody() -> None:
    cluster = Cluster()
    leader, _ = cluster.settle(2)
    ticket = cluster.join(leader)
    cluster.did(cluster.group.die())
    assert cluster.joined(ticket).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.joined(cluster.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.beat(leader) is ErrorCode.COORDINATOR_NOT_AVAILABLE
