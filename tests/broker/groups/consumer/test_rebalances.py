"""Who reads what while members come, go, fall silent and come back."""

from broker.groups.consumer.member import Consumer, named, shown, uuid_of
from broker.groups.rig import Rig, ms, run
from tierd.wire.errors import ErrorCode

SESSION_MS = 45_000


def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        answer = await two.beat()
        assert (answer.member_epoch, two.reads) == (2, {})
        assert (await shown(rig)).group_state == "Reconciling"
        before = dict(one.reads)
        told = await one.beat(obey=False)
        assert (told.member_epoch, len(named(rig, told.assignment)["t1"])) == (1, 2)
        first, _ = (await shown(rig)).members
        assert named(rig, first.assignment) == before, "it is shown with what it has not given up yet"
        await two.beat()
        assert two.reads == {}, "the first still reads it"
        one.reads = before
        assert (await one.beat(obey=False)).assignment is not None, "said again while it reads what it must not"
        one.reads = named(rig, told.assignment)
        assert (await one.beat()).member_epoch == 2
        await two.beat()
        assert sorted(one.reads["t1"] | two.reads["t1"]) == [0, 1, 2]
        assert (await shown(rig)).group_state == "Stable"
        rig.close()

    run(scenario())


def test_the_middle_of_a_rebalance_outlives_a_restart() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        told = await one.beat(obey=False)
        before = await shown(rig)
        rig = one.rig = two.rig = rig.restart()
        assert await shown(rig) == before
        await two.beat()
        assert two.reads == {}
        one.reads = named(rig, told.assignment)
        assert (await one.beat()).member_epoch == 2
        await two.beat()
        assert sorted(one.reads["t1"] | two.reads["t1"]) == [0, 1, 2]
        rig = one.rig = two.rig = rig.restart()
        assert (await shown(rig)).group_epoch == 2, "nothing has changed, nobody is disturbed"
        assert (await one.beat()).member_epoch == 2
        await rig.pass_time(SESSION_MS)
        assert await one.error() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await shown(rig)).group_state == "Empty"
        rig.close()

    run(scenario())


def test_who_is_silent_is_sent_away_and_the_other_reads_on() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        await one.beat()
        await rig.pass_time(SESSION_MS - 1)
        await one.beat()
        rig.log.full = True
        await rig.pass_time(1)
        assert len((await shown(rig)).members) == 2, "it cannot be written"
        rig.log.full = False
        await rig.pass_time(1_000)
        assert [member.member_id for member in (await shown(rig)).members] == ["one"]
        await one.beat()
        assert one.reads == {"t1": {0, 1, 2}}
        assert await two.error() == ErrorCode.UNKNOWN_MEMBER_ID
        rig.close()

    run(scenario())


def test_who_does_not_give_up_in_time_is_sent_away() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1", rebalance_timeout=ms(20_000)), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        for _ in range(2):
            await one.beat(obey=False)
            await two.beat()
            await rig.pass_time(10_000)
        assert await one.error() == ErrorCode.UNKNOWN_MEMBER_ID
        await two.beat()
        assert two.reads == {"t1": {0, 1, 2}}
        rig.close()

    run(scenario())


def test_leaving_gives_everything_free_at_once() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1"), Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        answer = await one.beat(obey=False, member_epoch=-1)
        assert (answer.error_code, answer.member_epoch, answer.member_id) == (ErrorCode.NONE, -1, "one")
        await two.beat()
        assert two.reads == {"t1": {0, 1, 2}}
        assert await one.error(member_epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID
        await two.beat(obey=False, member_epoch=-1)
        assert (await shown(rig)).group_state == "Empty"
        assert (await shown(rig.restart())).group_state == "Empty"

    run(scenario())


def test_a_static_member_comes_back_to_its_place() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1", instance_id="i")
        two = Consumer(rig, "two", "t1")
        await one.beat()
        await two.beat()
        await one.beat()
        await one.beat()
        await two.beat()
        place, epoch = one.reads, one.epoch
        newer = Consumer(rig, "newer", "t1", instance_id="i")
        assert await newer.error() == ErrorCode.UNRELEASED_INSTANCE_ID
        assert (await one.beat(obey=False, member_epoch=-2)).member_epoch == -2
        rig = one.rig = two.rig = newer.rig = rig.restart()
        assert (await two.beat()).member_epoch == epoch, "nobody else is disturbed"
        answer = await newer.beat()
        assert (answer.member_epoch, newer.reads) == (epoch, place)
        assert await one.error() == ErrorCode.FENCED_INSTANCE_ID
        assert await one.error(member_epoch=-1) == ErrorCode.FENCED_INSTANCE_ID
        assert await Consumer(rig, "x", "t1", instance_id="j").error(member_epoch=1) == ErrorCode.UNKNOWN_MEMBER_ID
        await newer.beat(member_epoch=-2)
        await rig.pass_time(SESSION_MS)
        assert [member.member_id for member in (await shown(rig)).members] == []
        rig.close()

    run(scenario())


def test_a_static_member_that_did_not_hear_the_answer_joins_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = Consumer(rig, "one", "t1", instance_id="i"), Consumer(rig, "two", "t1", instance_id="j")
        assert (await one.beat(obey=False)).member_epoch == 1
        rig = one.rig = two.rig = rig.restart()
        assert (await one.beat()).member_epoch == 1, "it says again that it joins"
        assert one.reads == {"t1": {0, 1, 2}}
        await two.beat()
        await one.beat(obey=False)
        one.reads = {"t1": set()}
        assert (await one.beat(obey=False)).member_epoch == 2
        rig = one.rig = two.rig = rig.restart()
        assert (await one.beat(obey=False)).member_epoch == 2, "it still has the epoch before"
        one.epoch, one.reads = 0, {}
        answer = await one.beat()
        assert (answer.error_code, answer.member_epoch, len(one.reads["t1"])) == (ErrorCode.NONE, 2, 2)
        assert await Consumer(rig, "new", "t1", instance_id="i").error() == ErrorCode.UNRELEASED_INSTANCE_ID
        rig.close()

    run(scenario())


def test_a_member_becomes_a_static_one_when_it_joins_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        await Consumer(rig, "one", "t1").beat()
        answer = await Consumer(rig, "one", "t1", instance_id="i").beat()
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 1), "nobody is disturbed"
        (member,) = (await shown(rig.restart())).members
        assert (member.member_id, member.instance_id, len(named(rig, member.assignment)["t1"])) == ("one", "i", 3)
        rig.close()

    run(scenario())


def test_only_what_members_want_to_read_makes_a_new_epoch() -> None:
    async def scenario() -> None:
        rig = Rig()
        idle, other, one = Consumer(rig, "idle"), Consumer(rig, "other"), Consumer(rig, "one", "t1")
        for consumer in (idle, other):
            assert (await consumer.beat(subscribed_topic_names=())).member_epoch == 1
        assert (await shown(rig)).group_state == "Stable"
        assert (await one.beat()).member_epoch == 2
        assert (await one.beat(server_assignor="range")).member_epoch == 2
        assert (await shown(rig)).group_epoch == 2
        rig = idle.rig = one.rig = rig.restart()
        assert (await idle.beat()).member_epoch == 2
        assert (await one.beat(subscribed_topic_names=())).member_epoch == 2, "it has partitions to give up first"
        assert one.reads == {}
        assert ((await shown(rig)).group_epoch, (await one.beat(subscribed_topic_names=())).member_epoch) == (3, 3)
        rig.close()

    run(scenario())


def test_a_member_with_more_to_give_up_stays_in_its_epoch_and_has_its_time_again() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1", rebalance_timeout=ms(20_000))
        two, three = Consumer(rig, "two", "t1"), Consumer(rig, "three", "t1")
        await one.beat()
        await two.beat()
        first = named(rig, (await one.beat(obey=False)).assignment)
        await rig.pass_time(19_999)
        await three.beat()
        one.reads = first
        told = await one.beat(obey=False)
        assert (told.member_epoch, len(named(rig, told.assignment)["t1"])) == (1, 1)
        await rig.pass_time(19_999)
        assert (await one.beat(obey=False)).member_epoch == 1
        one.reads = named(rig, told.assignment)
        assert (await one.beat()).member_epoch == 3
        rig.close()

    run(scenario())


def test_topics_that_grow_come_and_go_are_noticed() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1", "t2")
        await one.beat()
        rig.topics.partitions["t1"] = 5
        await rig.pass_time(1_000)
        await one.beat()
        assert (one.epoch, one.reads["t1"]) == (2, {0, 1, 2, 3, 4})
        rig.topics.partitions["t2"] = 0
        await rig.pass_time(1_000)
        told = await one.beat(obey=False)
        assert [row.topic_id for row in told.assignment.topic_partitions] == [uuid_of(rig, "t1")]
        rig.close()

    run(scenario())
