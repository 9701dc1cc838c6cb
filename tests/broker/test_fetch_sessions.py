"""Fetch sessions (KIP-227): what is kept, told and thrown out, and what a client of the broker sees of it."""

import random
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running
from kit.clock import FakeClock
from tierd.broker import fetch_sessions
from tierd.broker.fetch_sessions import EVICT_AFTER_MS, FetchSessions
from tierd.wire.errors import ErrorCode
from tierd.wire.fetch import FetchPartition, FetchRequest, PartitionFetched

BY_NAME, BY_ID = 12, 13


def request(
    session_id: int = 0,
    epoch: int = 0,
    wanted: dict[str, list[int]] | None = None,
    forgotten: dict[str, list[int]] | None = None,
    replica: int | None = None,
    offset: int = 0,
) -> FetchRequest:
    topics: list[Any] = [
        (topic, [FetchPartition(n, offset, 100) for n in rows]) for topic, rows in (wanted or {}).items()
    ]
    return FetchRequest(0, 1, 1000, 0, session_id, epoch, topics, list((forgotten or {}).items()), replica)


def told(high: int = 5, start: int = 0, error: int = 0, length: int = 0, index: int = 0) -> PartitionFetched:
    return PartitionFetched(index, error, high, high, start, None, length)


def make(sessions: FetchSessions, partitions: int = 1, *, replica: int | None = None, version: int = BY_NAME) -> int:
    asked = request(wanted={"t": list(range(partitions))}, replica=replica)
    assert sessions.open(version, asked).makes
    return sessions.make(version, asked, {("t", n): told(index=n) for n in range(partitions)})


def test_a_session_keeps_no_name_that_no_topic_has() -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    asked = request(wanted={"t" * 250: [0]})
    assert sessions.make(BY_NAME, asked, {("t" * 250, 0): told()}) == 0
    made = make(sessions)
    assert sessions.open(BY_NAME, request(made, 1, wanted={"t" * 249: [0]})).error == ErrorCode.NONE
    assert sessions.open(BY_NAME, request(made, 2, wanted={"t" * 250: [0]})).error == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_a_session_goes_on_with_each_epoch_and_no_other() -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    made = make(sessions, 2)
    assert made > 0
    for epoch in (1, 2, 3):
        for wrong in (epoch - 1, epoch + 1, 2**31 - 1, -2):
            if wrong:
                assert sessions.open(BY_NAME, request(made, wrong)).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        asked = sessions.open(BY_NAME, request(made, epoch))
        assert asked.request.topics == [("t", [FetchPartition(0, 0, 100), FetchPartition(1, 0, 100)])]
    assert sessions.open(BY_NAME, request(made + 1, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(BY_NAME, request(0, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(BY_ID, request(made, 4)).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_epoch_begins_again_at_1() -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    made = make(sessions)
    session = sessions.open(BY_NAME, request(made, 1)).session
    assert session is not None
    session.epoch = 2**31 - 1
    assert not sessions.open(BY_NAME, request(made, 2**31 - 1)).error
    assert session.epoch == 1


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_that_it_names(epoch: int) -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    made = make(sessions, 3)
    asked = sessions.open(BY_NAME, request(made, epoch, {"t": [0]}))
    assert (asked.session, asked.makes, asked.error) == (None, epoch == 0, 0)
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_old_versions_and_the_final_epoch_have_none() -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    for version, epoch in ((6, 0), (6, 5), (12, -1)):
        asked = sessions.open(version, request(0, epoch, {"t": [0]}))
        assert (asked.session, asked.makes, asked.error) == (None, False, 0)


def test_partitions_come_change_and_are_forgotten() -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    made = make(sessions, 2)
    asked = sessions.open(BY_NAME, request(made, 1, {"u": [7], "t": [1]}, {"t": [0], "none": [3]}, offset=9))
    assert asked.request.topics == [("t", [FetchPartition(1, 9, 100)]), ("u", [FetchPartition(7, 9, 100)])]
    assert sessions.partitions == 2
    asked = sessions.open(BY_NAME, request(made, 2, {}, {"t": [1], "u": [7]}))
    assert (asked.session, len(sessions), sessions.partitions) == (None, 0, 0), "nothing is left: the session ends"
    assert asked.request.topics == []


def test_only_what_has_changed_is_told() -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    made = make(sessions, 2)
    session = sessions.open(BY_NAME, request(made, 1)).session
    assert session is not None
    assert not session.note("t", told())
    assert session.note("t", told(high=6))
    assert not session.note("t", told(high=6))
    assert session.note("t", told(high=6, start=1))
    assert session.note("t", told(high=6, start=1, length=10))
    assert not session.note("t", told(high=6, start=1))
    broken = PartitionFetched(0, 3)
    assert [session.note("t", broken) for _ in range(2)] == [True, True]
    assert session.note("t", told(high=6, start=1)), "told again after an error"
    assert not session.note("t", told(index=1))


def test_who_got_records_comes_last() -> None:
    sessions = FetchSessions(FakeClock(), 10, {})
    made = make(sessions, 3)
    session = sessions.open(BY_NAME, request(made, 1)).session
    assert session is not None
    session.note("t", told(index=0, length=5))
    assert [index for _, index in session.partitions] == [1, 2, 0]


def test_nobody_goes_for_a_session_that_is_no_larger() -> None:
    clock = FakeClock()
    sessions = FetchSessions(clock, 2, {})
    first, second = make(sessions, 3), make(sessions, 5)
    assert make(sessions, 50) == 0, "both are young"
    for epoch in (1, 2):
        clock.advance(EVICT_AFTER_MS // 2 + 1)
        for one in (first, second):
            sessions.open(BY_NAME, request(one, epoch))
    assert make(sessions, 3) == 0
    third = make(sessions, 4)
    assert third
    assert sessions.open(BY_NAME, request(first, 3)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not sessions.open(BY_NAME, request(second, 3)).error
    assert sessions.evicted == 1


def test_a_session_that_nobody_uses_makes_room_for_any() -> None:
    clock = FakeClock()
    sessions = FetchSessions(clock, 1, {})
    first = make(sessions, 9)
    clock.advance(EVICT_AFTER_MS)
    assert make(sessions, 9) == 0
    clock.advance(1)
    assert make(sessions, 1)
    assert sessions.open(BY_NAME, request(first, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_followers_take_the_place_of_consumers_and_not_the_other_way_round() -> None:
    clock = FakeClock()
    sessions = FetchSessions(clock, 1, {})
    make(sessions, 9)
    follower = make(sessions, 1, replica=2)
    assert follower
    assert make(sessions, 1, replica=3) == 0
    clock.advance(EVICT_AFTER_MS)
    sessions.open(BY_NAME, request(follower, 1))
    clock.advance(2)
    sessions.open(BY_NAME, request(follower, 2))
    assert make(sessions, 99) == 0
    assert make(sessions, 2, replica=3)


def test_what_a_full_request_forgets_was_not_there() -> None:
    sessions = FetchSessions(FakeClock(), 1, {})
    asked = request(wanted={"t": [0, 1]}, forgotten={"t": [1]})
    made = sessions.make(BY_NAME, asked, {("t", n): told(index=n) for n in range(2)})
    assert sessions.open(BY_NAME, request(made, 1)).request.topics == asked.topics


def test_without_slots_there_are_no_sessions() -> None:
    assert make(FetchSessions(FakeClock(), 0, {})) == 0


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(FakeClock(), 100, {}, most_partitions=10)
    assert make(sessions, 11) == 0
    first, second = make(sessions, 6), make(sessions, 4)
    assert first
    assert second
    assert make(sessions, 1) == 0
    grown = sessions.open(BY_NAME, request(second, 1, {"u": [0]}))
    assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "it comes back with everything, and gets no session"
    assert sessions.partitions == 6
    assert make(sessions, 5) == 0


def test_counts_hold_whatever_comes() -> None:
    dice, clock = random.Random(3), FakeClock()
    sessions = FetchSessions(clock, 5, {}, most_partitions=40)
    known: list[int] = []
    for _ in range(3000):
        clock.advance(dice.randrange(30_000))
        if not known or dice.random() < 0.3:
            made = make(sessions, dice.randint(0, 12), replica=dice.choice([None, None, 1]))
            known = [*known, made][-8:]
        wanted = {dice.choice("tu"): [dice.randrange(20)]} if dice.random() < 0.5 else {}
        forgotten = {"t": [dice.randrange(12)]} if dice.random() < 0.5 else {}
        session_id = dice.choice(known)
        live = sessions._sessions.get(session_id)
        epoch = live.epoch if live is not None and dice.random() < 0.9 else dice.choice([-1, 0, 1, 2])
        sessions.open(BY_NAME, request(session_id, epoch, wanted, forgotten))
        assert len(sessions) <= 5
        assert sessions.partitions == sum(len(one.partitions) for one in sessions._sessions.values()) <= 40
        used = [one.used_ms for one in sessions._sessions.values()]
        assert used == sorted(used)


# Over a socket.


class Consumer:
    """Speaks of topics by id, in sessions, as Java's does."""

    def __init__(self, client: Client, topic_id: Any) -> None:
        self._client, self._id = client, topic_id
        self.session, self.epoch = 0, 0

    def fetch(self, wanted: dict[int, int], *, forgotten: list[int] | None = None, **fields: Any) -> Any:
        rows = [
            {"partition": n, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
            for n, offset in wanted.items()
        ]
        asked = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "rack_id": "",
            "session_id": self.session,
            "session_epoch": self.epoch,
            "topics": [{"topic_id": self._id, "partitions": rows}] if rows else [],
            "forgotten_topics_data": [{"topic_id": self._id, "partitions": forgotten}] if forgotten else [],
            **fields,
        }
        got = self._client.call(1, 17, **asked)
        if not got.error_code:
            self.session, self.epoch = got.session_id, self.epoch + 1
        return got

    def read(self, wanted: dict[int, int], **fields: Any) -> dict[int, tuple[int, int, int]]:
        """By partition: error, high watermark, bytes."""
        got = self.fetch(wanted, **fields)
        assert not got.error_code
        return {
            row.partition_index: (int(row.error_code), row.high_watermark, len(row.records or b""))
            for topic in got.responses
            for row in topic.partitions
        }


def topic_id(client: Client, name: str) -> Any:
    return client.call(3, 12, topics=[{"name": name, "topic_id": None}]).topics[0].topic_id


def test_a_session_over_the_socket(broker: Running, client: Client) -> None:
    client.create("t", 3)
    consumer = Consumer(client, topic_id(client, "t"))
    assert consumer.read({0: 0, 1: 0, 2: 0}) == {n: (0, 0, 0) for n in range(3)}
    assert consumer.session > 0
    assert consumer.read({}) == {}
    client.produce("t", batch(3), 1)
    size = len(batch(3))
    assert consumer.read({}) == {1: (0, 3, size)}
    assert consumer.read({}) == {1: (0, 3, size)}, "it has not moved on"
    assert consumer.read({1: 3}) == {}
    client.produce("t", batch(2), 2)
    assert consumer.read({}, forgotten=[2]) == {}
    client.produce("t", batch(2), 1)
    assert consumer.read({1: 3}) == {1: (0, 5, len(batch(2)))}
    stale, consumer.epoch = consumer.epoch, 1
    assert consumer.fetch({}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    consumer.epoch = stale
    assert consumer.read({1: 5}) == {}
    known = consumer.session
    consumer.epoch = -1
    assert set(consumer.read({0: 0})) == {0}
    assert consumer.session == 0
    consumer.session, consumer.epoch = known, stale + 2
    assert consumer.fetch({}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_one_partition_read_to_its_end_in_a_session(broker: Running, client: Client) -> None:
    """The short way and the usual one take turns."""
    client.create("t")
    for _ in range(30):
        client.produce("t", batch(3))
    consumer = Consumer(client, topic_id(client, "t"))
    offset = 0
    while offset < 90:
        (error, high, size), *others = consumer.read({0: offset}, max_bytes=2 * len(batch(3))).values()
        assert (error, high, size, others) == (0, 90, 2 * len(batch(3)), [])
        offset += 6
    assert consumer.read({0: 90}) == {}
    client.produce("t", batch(3))
    assert consumer.read({}) == {0: (0, 93, len(batch(3)))}
    assert consumer.epoch == 17


def test_topics_that_are_not_there_or_are_others_now(broker: Running, client: Client) -> None:
    client.create("t")
    known = topic_id(client, "t")
    consumer, stranger = Consumer(client, known), Consumer(client, known)
    assert consumer.read({0: 0}) == {0: (0, 0, 0)}
    client.call(20, 6, topics=[{"name": "t", "topic_id": None}], timeout=5000)
    assert consumer.read({}) == {0: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, 0)}
    assert stranger.read({0: 0}) == {0: (ErrorCode.UNKNOWN_TOPIC_ID, -1, 0)}
    client.create("t")
    assert consumer.read({}) == {0: (ErrorCode.INCONSISTENT_TOPIC_ID, -1, 0)}
    assert consumer.read({}) == {0: (ErrorCode.INCONSISTENT_TOPIC_ID, -1, 0)}, "said each time"
    assert stranger.read({}) == {0: (ErrorCode.UNKNOWN_TOPIC_ID, -1, 0)}
    assert Consumer(client, topic_id(client, "t")).read({0: 0}) == {0: (0, 0, 0)}


def test_records_by_topic_id(broker: Running, client: Client) -> None:
    client.create("t")
    known = topic_id(client, "t")

    def produce(topic: Any, acks: int = -1) -> Any:
        data = [{"topic_id": topic, "partition_data": [{"index": 0, "records": batch(2)}]}]
        return client.call(0, 13, transactional_id=None, acks=acks, timeout=5000, topic_data=data).responses[0]

    for n in range(4):
        answer = produce(known)
        assert answer.topic_id == known
        assert (answer.partition_responses[0].error_code, answer.partition_responses[0].base_offset) == (0, 2 * n)
    client.call(20, 6, topics=[{"name": "t", "topic_id": None}], timeout=5000)
    client.create("t")
    answer = produce(known)
    assert answer.topic_id == known
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.log("t").log_end == 0, "the topic of the same name is another one"
    assert produce(topic_id(client, "t")).partition_responses[0].base_offset == 0


def test_the_bound_of_partitions_is_no_more_than_is_said() -> None:
    assert fetch_sessions.MOST_PARTITIONS * 500 <= 25_000_000
