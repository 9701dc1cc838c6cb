"""The state machine: what each request is answered, in each state, and what time does."""

import itertools
import random

import pytest

from tierd.broker.groups.machine import Group
from tierd.broker.groups.model import (
    Action,
    GroupTimes,
    Join,
    JoinAnswer,
    Persist,
    Protocols,
    State,
    Sync,
    SyncAnswer,
)
from tierd.wire.errors import ErrorCode

RANGE: Protocols = (("range", b"r"), ("sticky", b"s"))
SESSION, REBALANCE = 10_000, 60_000
_ids = itertools.count(1)


class Cluster:
    """A group and a clock; answers are kept by ticket."""

    def __init__(self, times: GroupTimes | None = None) -> None:
        self.group = Group("g", times or GroupTimes())
        self.now = 0
        self.answers: dict[object, JoinAnswer | SyncAnswer] = {}
        self.persisted = 0

    def did(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Persist):
                self.persisted += 1
            else:
                assert action.ticket not in self.answers, "answered twice"
                self.answers[action.ticket] = action.answer

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        kind: str = "consumer",
        id_required: bool = False,
        knows_skip: bool = True,
    ) -> str:
        """The ticket."""
        ticket = f"join{next(_ids)}"
        ask = Join(
            ticket=ticket,
            member_id=member_id,
            fresh_id=f"m{next(_ids)}",
            instance_id=instance,
            client_id="c",
            client_host="/",
            session_timeout_ms=SESSION,
            rebalance_timeout_ms=REBALANCE,
            protocol_type=kind,
            protocols=protocols,
            id_required=id_required,
            knows_skip=knows_skip,
        )
        self.did(self.group.join(ask, self.now))
        return ticket

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> str:
        ticket = f"sync{next(_ids)}"
        ask = Sync(
            ticket=ticket,
            member_id=member_id,
            instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=None,
            protocol=protocol,
            assignments=assignments or {},
        )
        self.did(self.group.sync(ask, self.now))
        return ticket

    def pass_time(self, by_ms: int) -> None:
        """Tick whenever the group wants to be woken."""
        end = self.now + by_ms
        while self.group.wake_ms is not None and self.group.wake_ms <= end:
            self.now = max(self.now, self.group.wake_ms)
            self.did(self.group.tick(self.now))
            assert self.group.wake_ms is None or self.group.wake_ms > self.now, "would tick for ever"
        self.now = end

    def joined(self, ticket: object) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: object) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def beat(self, member_id: str, instance: str | None = None) -> ErrorCode:
        return self.group.heartbeat(member_id, instance, self.group.generation, self.now)

    def settle(self, size: int = 2) -> list[str]:
        """A stable group of *size* dynamic members; the leader comes first."""
        first = self.joined(self.join()).member_id
        members = [first]
        tickets = [self.join() for _ in range(size - 1)]
        again = self.join(first)
        members += [self.joined(ticket).member_id for ticket in tickets]
        assert self.joined(again).leader == first
        syncs = [self.sync(member) for member in members[1:]]
        assert not any(ticket in self.answers for ticket in syncs)
        self.sync(first, {member: member.encode() for member in members})
        assert [self.synced(ticket).assignment for ticket in syncs] == [member.encode() for member in members[1:]]
        assert self.group.state is State.STABLE
        return members


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


def test_the_first_rebalance_can_wait_for_more_members() -> None:
    cluster = Cluster(GroupTimes(initial_delay_ms=3_000))
    first = cluster.join()
    cluster.pass_time(2_000)
    second = cluster.join()
    cluster.pass_time(1_000)
    assert first not in cluster.answers
    cluster.pass_time(3_000)
    assert cluster.joined(first).generation == cluster.joined(second).generation == 1
    assert len(cluster.joined(first).members) == 2


def test_a_new_member_whose_join_takes_for_ever_is_forgotten() -> None:
    cluster = Cluster(GroupTimes(new_member_join_timeout_ms=20_000))
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
    cluster.did(cluster.group.store_failed(cluster.now))
    assert cluster.beat(members[0]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_death_answers_everybody() -> None:
    cluster = Cluster()
    leader, _ = cluster.settle(2)
    ticket = cluster.join(leader)
    cluster.did(cluster.group.die())
    assert cluster.joined(ticket).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.joined(cluster.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.beat(leader) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_every_request_is_answered_and_silence_ends_it(seed: int) -> None:
    """Random clients join, sync, beat, leave, hang up; then all are silent and the group is empty."""
    dice = random.Random(seed)
    cluster = Cluster(GroupTimes(initial_delay_ms=dice.choice([0, 500])))
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
                hung_up.add(ticket)
        assert cluster.group.leader is None or cluster.group.leader in cluster.group.members
    cluster.pass_time(2 * GroupTimes().new_member_join_timeout_ms)
    assert waiting - set(cluster.answers) <= hung_up
    assert not cluster.group.members
    assert cluster.group.state is State.EMPTY
