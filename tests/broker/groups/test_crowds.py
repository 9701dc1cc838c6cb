"""A thousand members: storms of rebalances, static ones that all restart, and a broker that restarts in the middle."""

import asyncio

from tierd.broker.groups.model import GroupLimits
from tierd.wire.errors import ErrorCode

from .consumer.member import Consumer
from .crowd import Crowd
from .rig import Rig, commit, error_of_commit, fetched, run

MEMBERS = 1_000
DELAY_MS = 3_000
LIMITS = GroupLimits(initial_delay_ms=DELAY_MS)


async def gathered(crowd: Crowd, *, static: bool = False) -> None:
    """A thousand members in their first generation."""
    crowd.come(MEMBERS, static=static)
    await crowd.round()
    await crowd.rig.pass_time(DELAY_MS)
    await crowd.rig.pass_time(DELAY_MS)
    await crowd.calm()


def test_storms_of_rebalances_end_with_everything_read_once() -> None:
    async def scenario() -> None:
        crowd = Crowd(Rig(limits=LIMITS))
        await gathered(crowd)
        for size in (300, 1, 500):
            await crowd.go(crowd.members[::2][:size])
            crowd.come(size)
            await crowd.calm()
            assert len(crowd.members) == MEMBERS
        crowd.rig.close()

    run(scenario())


def test_a_thousand_static_members_restart_and_nobody_is_disturbed() -> None:
    async def scenario() -> None:
        crowd = Crowd(Rig(limits=LIMITS))
        await gathered(crowd, static=True)
        before = {member.instance_id: (member.generation, member.work) for member in crowd.members}
        for member in crowd.members:
            member.id = ""
        await asyncio.gather(*[member.settle() for member in crowd.members])
        assert {member.instance_id: (member.generation, member.work) for member in crowd.members} == before
        crowd.rig.close()

    run(scenario())


def test_a_restart_in_the_middle_of_a_rebalance_loses_nobody_and_no_offset() -> None:
    async def scenario() -> None:
        crowd = Crowd(Rig(limits=LIMITS))
        await gathered(crowd)
        one = crowd.members[0]
        who = {"member_id": one.id, "generation_id_or_member_epoch": one.generation}
        assert await error_of_commit(crowd.rig, commit(9, 42, **who)) == ErrorCode.NONE
        crowd.come(1)
        late = crowd.members[: MEMBERS // 2]
        del crowd.members[: MEMBERS // 2]
        assert await crowd.round()
        assert await crowd.round(), "half of them have joined again and wait for the others"
        crowd.restart()
        crowd.members += late
        await crowd.calm()
        assert len(crowd.members) == MEMBERS + 1
        assert (await fetched(crowd.rig))["t1", 0].committed_offset == 42
        crowd.rig.close()

    run(scenario())


def test_a_thousand_members_of_the_consumer_protocol_share_and_outlive_a_restart() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.topics.partitions["t1"] = 1_500
        members = [Consumer(rig, f"m{number:04}", "t1") for number in range(MEMBERS)]
        for member in members[:-1]:
            await member.beat()
        rounds = 0
        while rounds < 2 or sum(len(member.reads.get("t1", ())) for member in members) < 1_500:
            for member in members:
                await member.beat()
            rounds += 1
            assert rounds < 10
            if rounds == 1:
                topics = rig.topics
                rig = rig.restart()
                rig.topics.partitions.update(topics.partitions)
                for member in members:
                    member.rig = rig
        places = [place for member in members for place in member.reads["t1"]]
        assert sorted(places) == list(range(1_500))
        assert {len(member.reads["t1"]) for member in members} == {1, 2}
        rig.close()

    run(scenario())
