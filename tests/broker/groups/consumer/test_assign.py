"""Assignors: everything is assigned, once, to who subscribes, evenly, and stays where it was."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.assign import assign, assignor_of
from tierd.broker.groups.consumer.model import ConsumerMember, Layout, Places

IDS = {f"t{n}": Uuid(bytes([n + 1]) * 16) for n in range(4)}


def members(**topics: str) -> dict[str, ConsumerMember]:
    """By name: the digits of the topics that each reads."""
    return {
        name: ConsumerMember(id=name, topics=frozenset(f"t{digit}" for digit in digits))
        for name, digits in topics.items()
    }


def layouts(**partitions: int) -> dict[str, Layout]:
    return {topic: Layout(IDS[topic], count) for topic, count in partitions.items()}


def counts(assignment: dict[str, Places]) -> dict[str, int]:
    return {member: len(places) for member, places in assignment.items()}


groups = st.dictionaries(
    st.sampled_from("abcdefg"), st.frozensets(st.sampled_from(sorted(IDS)), max_size=4), min_size=1
)
topics = st.dictionaries(st.sampled_from(sorted(IDS)), st.integers(1, 9))


@given(groups, topics, st.sampled_from(["uniform", "range", None]), groups, topics)
def test_every_partition_goes_to_one_who_reads_it(
    wanted: dict[str, frozenset[str]],
    there: dict[str, int],
    assignor: str | None,
    wanted_before: dict[str, frozenset[str]],
    there_before: dict[str, int],
) -> None:
    def made(subscribed: dict[str, frozenset[str]]) -> dict[str, ConsumerMember]:
        return {name: ConsumerMember(id=name, topics=read, assignor=assignor) for name, read in subscribed.items()}

    before = assign(made(wanted_before), {}, layouts(**there_before).get)
    known, group = layouts(**there), made(wanted)
    after = assign(group, before, known.get)
    assert after.keys() == group.keys()
    given_out = [place for places in after.values() for place in places]
    assert len(given_out) == len(set(given_out))
    read = {topic for topics_of in wanted.values() for topic in topics_of}
    assert set(given_out) == {(known[t].topic_id, n) for t in read & known.keys() for n in range(known[t].partitions)}
    for name, places in after.items():
        assert {topic_id for topic_id, _ in places} <= {IDS[topic] for topic in wanted[name]}
    if assignor != "range" and len(set(wanted.values())) == 1:
        loads = counts(after).values()
        assert max(loads) - min(loads) <= 1
    assert assign(group, after, known.get) == after, "a second time nothing moves"


def test_uniform_moves_no_more_than_it_must() -> None:
    known = layouts(t0=9)
    before = assign(members(a="0", b="0"), {}, known.get)
    after = assign(members(a="0", b="0", c="0"), before, known.get)
    assert sorted(counts(after).values()) == [3, 3, 3]
    assert after["a"] <= before["a"]
    assert after["b"] <= before["b"]
    left = assign(members(a="0", c="0"), after, known.get)
    assert left["a"] >= after["a"]
    assert left["c"] >= after["c"]


def test_uniform_evens_out_what_only_some_may_read() -> None:
    known = layouts(t0=4, t1=4)
    both = assign(members(a="01", b="1"), {}, known.get)
    assert counts(both) == {"a": 4, "b": 4}
    before = {"a": frozenset((IDS[t], n) for t in ("t0", "t1") for n in range(4))}
    assert counts(assign(members(a="01", b="01", c="0"), before, known.get)) == {"a": 3, "b": 3, "c": 2}


def test_range_gives_runs_of_each_topic_to_the_same_members() -> None:
    known = layouts(t0=5, t1=5)
    group = {
        name: ConsumerMember(id=name, topics=frozenset({"t0", "t1"}), assignor="range", instance_id=instance)
        for name, instance in (("a", None), ("b", None), ("z", "first"))
    }
    found = assign(group, {}, known.get)
    runs = {name: {topic: [n for t, n in sorted(places) if t == IDS[topic]] for topic in ("t0", "t1")}
            for name, places in found.items()}  # fmt: skip
    assert runs == {"z": {"t0": [0, 1], "t1": [0, 1]}, "a": {"t0": [2, 3], "t1": [2, 3]}, "b": {"t0": [4], "t1": [4]}}


def test_the_assignor_that_most_want_is_taken() -> None:
    def wanting(*names: str | None) -> dict[str, ConsumerMember]:
        return {str(n): ConsumerMember(id=str(n), assignor=name) for n, name in enumerate(names)}

    assert assignor_of({}) == "uniform"
    assert assignor_of(wanting(None, None)) == "uniform"
    assert assignor_of(wanting("range", None, None)) == "range"
    assert assignor_of(wanting("range", "uniform", "range")) == "range"


def test_a_thousand_members_and_ten_thousand_partitions() -> None:
    known = {"t0": Layout(IDS["t0"], 10_000)}
    group = members(**{f"m{n:04}": "0" for n in range(1_000)})
    found = assign(group, {}, known.get)
    assert set(counts(found).values()) == {10}
    del group["m0500"]
    assert sorted(set(counts(assign(group, found, known.get)).values())) == [10, 11]
