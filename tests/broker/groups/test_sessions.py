"""The state machine: what time does, and silence."""

import random

import pytest

from tierd.broker.groups.model import (
    GroupLimits,
    State,
)
from tierd.wire.errors import ErrorCode

from .cluster import REBALANCE, SESSION, Cluster


def test_an_id_given_out_holds_the_rebalance_until_it_lapses() -> None:
    cluster = Cluster()
    (member,) = cluster.settle(1)
    waiting = cluster.joined(cluster.join(id_required=True)).member_id
    other = cluster.join()
    again = cluster.join(member)
    assert other not in cluster.answers
    cluster.pass_time(SESSION)
    assert cluster.joined(again).error is ErrorCode.NONE
    assert waiting not in cluster.group.members


def test_who_does_not_join_again_in_time_is_out() -> None:
    cluster = Cluster()
    leader, lazy = cluster.settle(2)
    newcomer = cluster.join()
    ticket = cluster.join(leader)
    for _ in range(REBALANCE // SESSION * 2):
        cluster.pass_time(SESSION // 2)
        if lazy in cluster.group.members:
            assert cluster.beat(lazy) is ErrorCode.REBALANCE_IN_PROGRESS
    assert cluster.joined(ticket).error is ErrorCode.NONE
    assert cluster.joined(newcomer).error is ErrorCode.NONE
    assert lazy not in cluster.group.members
    assert cluster.joined(cluster.join(lazy)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_again_is_replaced() -> None:
    cluster = Cluster()
    _, other = cluster.settle(2)
    ticket = cluster.join(other)
    assert ticket in cluster.answers  # a follower with the same metadata gets the same answer again
    cluster.join()
    ticket = cluster.join(other)
    cluster.pass_time(SESSION)
    assert cluster.joined(ticket).leader == other
    assert len(cluster.joined(ticket).members) == 2


def test_silence_ends_a_session() -> None:
    cluster = Cluster()
    members = cluster.settle(2)
    cluster.pass_time(SESSION - 1)
    assert cluster.beat(members[0]) is ErrorCode.NONE
    cluster.pass_time(1)
    assert list(cluster.group.members) == members[:1]
    assert cluster.group.state is State.PREPARING
    cluster.pass_time(SESSION)
    assert cluster.group.state is State.EMPTY
    assert cluster.group.wake_ms is None
    assert cluster.group.stored().members == ()


def test_a_member_that_waits_is_not_silent() -> None:
    cluster = Cluster()
    leader, follower = cluster.settle(2)
    newcomer = cluster.join()
    cluster.join(follower)
    cluster.join(leader)
    ticket = cluster.sync(follower)
    assert cluster.joined(newcomer).error is ErrorCode.NONE
    while cluster.now < REBALANCE - SESSION:
        cluster.pass_time(SESSION // 2)
        cluster.beat(leader)
        cluster.beat(cluster.joined(newcomer).member_id)
    assert follower in cluster.group.members
    assert ticket not in cluster.answers


def test_who_never_syncs_is_out_after_the_rebalance_time() -> None:
    cluster = Cluster()
    leader = cluster.joined(cluster.join()).member_id
    other = cluster.join()
    cluster.join(leader)
    lazy = cluster.joined(other).member_id
    cluster.sync(leader, {})
    for _ in range(2 * REBALANCE // SESSION):
        cluster.pass_time(SESSION // 2)
        cluster.beat(leader)
        if lazy in cluster.group.members:
            assert cluster.beat(lazy) is ErrorCode.NONE
    assert lazy not in cluster.group.members


def test_the_first_rebalance_can_wait_for_more_members() -> None:
    cluster = Cluster(GroupLimits(initial_delay_ms=3_000))
    first = cluster.join()
    cluster.pass_time(2_000)
    second = cluster.join()
    cluster.pass_time(1_000)
    assert first not in cluster.answers
    cluster.pass_time(3_000)
    assert cluster.joined(first).generation == cluster.joined(second).generation == 1
    assert len(cluster.joined(first).members) == 2


def test_a_new_member_whose_join_takes_for_ever_is_forgotten() -> None:
    cluster = Cluster(GroupLimits(new_member_join_timeout_ms=20_000))
    cluster.settle(2)
    newcomer = cluster.join()
    while cluster.now < 20_000:
        cluster.pass_time(SESSION // 2)
        for member in list(cluster.group.members):
            cluster.beat(member)
    assert cluster.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_hangs_up_while_waiting_falls_silent() -> None:
    cluster = Cluster()
    leader, _ = cluster.settle(2)
    ticket = cluster.join(leader)
    cluster.group.abandon(ticket, cluster.now)
    cluster.pass_time(SESSION)
    assert leader not in cluster.group.members
    assert ticket not in cluster.answers


def test_who_hangs_up_while_waiting_keeps_nobody_else_waiting_and_does_not_lead() -> None:
    cluster = Cluster()
    leader, second, third = cluster.settle(3)
    before = cluster.group.generation
    cluster.group.abandon(cluster.join(leader), cluster.now)
    tickets = [cluster.join(member) for member in (second, third)]
    answers = [cluster.joined(ticket) for ticket in tickets]
    assert {answer.generation for answer in answers} == {before + 1}
    assert answers[0].leader in (second, third)
    led = next(answer for answer in answers if answer.members)
    assert leader in [member.id for member in led.members], "it may come back"
    for member in (second, third):
        cluster.sync(member, dict.fromkeys((leader, second, third), b"w") if member == led.member_id else {})
    cluster.pass_time(SESSION - 1)
    for member in (second, third):
        cluster.beat(member)
    cluster.pass_time(1)
    assert leader not in cluster.group.members


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_every_request_is_answered_and_silence_ends_it(seed: int) -> None:
    """Random clients join, sync, beat, leave, hang up; then all are silent and the group is empty."""
    dice = random.Random(seed)
    cluster = Cluster(GroupLimits(initial_delay_ms=dice.choice([0, 500])))
    waiting: set[str] = set()
    hung_up: set[str] = set()
    for _ in range(300):
        known = [*cluster.group.members]
        pick = dice.choice(known) if known else ""
        instance = cluster.group.members[pick].instance_id if pick else None
        match dice.randrange(8):
            case 0:
                waiting.add(cluster.join(instance=dice.choice([None, None, "i1", "i2"])))
            case 1 | 2:
                waiting.add(cluster.join(pick, instance=instance, id_required=dice.random() < 0.5))
            case 3 | 4:
                waiting.add(cluster.sync(pick, dict.fromkeys(known, b"w"), instance=instance))
            case 5:
                cluster.beat(pick, instance)
            case 6:
                cluster.did(cluster.group.leave(pick, instance, cluster.now)[1])
            case _:
                cluster.pass_time(dice.randrange(4_000))
        if waiting and dice.random() < 0.1:
            ticket = dice.choice(sorted(waiting))
            if ticket not in cluster.answers:
                cluster.group.abandon(ticket, cluster.now)
                cluster.did(cluster.group.tick(cluster.now))
                hung_up.add(ticket)
        assert cluster.group.leader is None or cluster.group.leader in cluster.group.members
    cluster.pass_time(2 * GroupLimits().new_member_join_timeout_ms)
    assert waiting - set(cluster.answers) <= hung_up
    assert not cluster.group.members
    assert cluster.group.state is State.EMPTY
