"""Members that subscribe by pattern: the broker looks which topics match, again and again."""

import pytest

from broker.groups.consumer.member import Consumer, shown
from broker.groups.fake_log import FakeTopics
from broker.groups.rig import Rig, run
from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.patterns import Patterns
from tierd.broker.pattern import Pattern
from tierd.wire.errors import ErrorCode

LOOK_MS = 1_000


def everything(topic: str) -> bool:
    return True


def test_whole_names_match_as_far_as_one_sees_them() -> None:
    topics = FakeTopics()
    topics.ids |= {name: Uuid(bytes([number]) * 16) for number, name in enumerate(("orders", "orders-v2", "t"), 3)}
    patterns = Patterns(topics)
    matching = patterns.matching(everything)
    assert matching("orders") == {"orders"}
    assert matching(".*(?:orders|t1).*") == {"orders", "orders-v2", "t1"}
    assert patterns.matching(lambda topic: topic != "t2")("t.?") == {"t", "t1"}
    assert matching(r"\pL+") == frozenset(), "another broker may have let it in"
    del topics.ids["orders"]
    topics.ids["t3"] = Uuid(b"3" * 16)
    assert patterns.matching(everything)("orders") == frozenset()
    assert patterns.matching(everything)("t.?") == {"t", "t1", "t2", "t3"}


def test_names_are_matched_once_however_many_patterns_and_looks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a few hundred members, each with its own pattern, keep the loop from everybody else."""
    matched: list[str] = []

    class Counted(Pattern):
        def matches(self, text: str) -> bool:
            matched.append(text)
            return super().matches(text)

    monkeypatch.setattr("tierd.broker.groups.consumer.patterns.Pattern", Counted)
    topics = FakeTopics()
    patterns = Patterns(topics)
    for _ in range(3):
        matching = patterns.matching(everything)
        for number in range(1000):
            matching(f"t{number}")
    assert len(matched) == 1000 * len(topics.names())
    topics.ids["t999"] = Uuid(b"n" * 16)
    assert patterns.matching(everything)("t999") == {"t999"}
    assert len(matched) == 1000 * (len(topics.names()) - 1) + 1


def test_a_member_reads_what_matches_and_what_comes_to_match() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", subscribed_topic_regex="t1|new.*")
        await one.beat()
        assert one.reads == {"t1": {0, 1, 2}}
        rig.topics.ids["new-1"] = Uuid(b"n" * 16)
        await one.beat()
        assert "new-1" not in one.reads, "nobody has looked since"
        await rig.pass_time(LOOK_MS)
        await one.beat()
        assert one.reads == {"t1": {0, 1, 2}, "new-1": {0, 1, 2}}
        (member,) = (await shown(rig)).members
        assert (member.subscribed_topic_regex, member.subscribed_topic_names) == ("t1|new.*", ())
        rig.close()

    run(scenario())


def test_names_and_a_pattern_add_up_until_the_pattern_is_taken_back() -> None:
    async def scenario() -> None:
        rig = Rig()
        one = Consumer(rig, "one", "t1", subscribed_topic_regex="t2")
        await one.beat()
        assert set(one.reads) == {"t1", "t2"}
        assert await one.error(subscribed_topic_regex="(") == ErrorCode.INVALID_REGULAR_EXPRESSION
        await one.beat(subscribed_topic_regex="")
        await one.beat(subscribed_topic_regex=None)
        assert set(one.reads) == {"t1"}
        rig.close()

    run(scenario())


def test_a_restart_keeps_the_pattern_and_moves_nobody() -> None:
    async def scenario() -> None:
        rig = Rig()
        one, two = (Consumer(rig, name, subscribed_topic_regex="t.") for name in ("one", "two"))
        for _ in range(3):
            await one.beat()
            await two.beat()
        before = (one.epoch, one.reads), (two.epoch, two.reads)
        one.rig = two.rig = rig.restart()
        await two.beat(subscribed_topic_regex=None)
        await one.beat(subscribed_topic_regex=None)
        assert ((one.epoch, one.reads), (two.epoch, two.reads)) == before
        assert sum(map(len, [*one.reads.values(), *two.reads.values()])) == 6
        one.rig.close()

    run(scenario())
