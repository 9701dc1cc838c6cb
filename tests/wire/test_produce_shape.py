"""The short way through Produce gives what the usual way gives, or nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.wire.errors import BadFrame
from tierd.wire.header import parse_request_header
from tierd.wire.primitives import I32, compact_string, string, uvarint
from tierd.wire.produce import PartitionProduced, decode_produce, encode_produce_response
from tierd.wire.produce_shape import ProduceShapes

ID = bytes(range(16))
NAMES = {ID: "t"}


def request(
    topic: str = "t",
    partition: int = 0,
    records: bytes | None = b"r" * 70,
    *,
    version: int = 9,
    correlation: int = 1,
    acks: int = -1,
    transactional_id: str | None = None,
    client_id: str | None = "client",
    copies: int = 1,
    topic_id: bytes | None = None,
) -> memoryview:
    rows = (I32.pack(partition) + (b"\0" if records is None else uvarint(len(records) + 1) + records) + b"\0") * copies
    return memoryview(
        bytearray(
            b"\0\0"
            + version.to_bytes(2, "big")
            + I32.pack(correlation)
            + string(client_id)
            + b"\0"
            + compact_string(transactional_id)
            + acks.to_bytes(2, "big", signed=True)
            + I32.pack(1000)
            + uvarint(2)
            + (topic_id or compact_string(topic))
            + uvarint(copies + 1)
            + rows
            + b"\0\0"
        )
    )


def learnt(frame: memoryview, shapes: ProduceShapes | None = None) -> ProduceShapes:
    shapes = shapes or ProduceShapes()
    header, position = parse_request_header(frame)
    shapes.learn(frame, header, decode_produce(frame, position, header.version, NAMES))
    return shapes


def agrees(shapes: ProduceShapes, frame: memoryview) -> bool:
    """Whether the short way takes *frame*; it must then say what the usual way says."""
    found = shapes.match(frame)
    if found is None:
        return False
    shape, records = found
    header, position = parse_request_header(frame)
    usual = decode_produce(frame, position, header.version, NAMES)
    assert usual.topics == [(shape.topic, [(shape.partition, records)])]
    assert usual.transactional_id == shape.transactional_id
    assert usual.acks != 0
    row = PartitionProduced(shape.partition, 0, 7, None, 3)
    expected = encode_produce_response(header.correlation_id, header.version, [(shape.topic_id or shape.topic, [row])])
    assert shape.answer(frame, 7, None, 3) == expected
    return True


@given(
    st.text(max_size=200),
    st.integers(0, 2**31 - 1),
    st.lists(st.binary(max_size=20_000), min_size=1, max_size=4),
    st.sampled_from([9, 10, 11, 12]),
    st.sampled_from([None, "", "x", "other"]),
)
def test_repeated_requests_take_the_short_way(
    topic: str, partition: int, bodies: list[bytes], version: int, name: str | None
) -> None:
    shapes = learnt(request(topic, partition, b"first", version=version, transactional_id=name))
    for number, body in enumerate(bodies):
        again = request(topic, partition, body, version=version, correlation=number - 2, transactional_id=name)
        assert agrees(shapes, again)


def test_topics_by_id_take_the_short_way_and_others_do_not() -> None:
    shapes = learnt(request(version=13, topic_id=ID))
    assert agrees(shapes, request(version=13, topic_id=ID, records=b"x" * 300, correlation=9))
    assert not agrees(shapes, request(version=13, topic_id=ID[::-1]))
    unknown = request(version=13, topic_id=ID[::-1])
    assert not agrees(learnt(unknown), unknown)


def test_many_partitions_of_a_topic_and_bounded_memory() -> None:
    shapes = ProduceShapes()
    for partition in range(1000):
        learnt(request("t", partition), shapes)
        assert agrees(shapes, request("t", partition))
    assert len(shapes._known) <= 64
    assert not agrees(shapes, request("t", 1001))


def test_long_names_are_kept_of_fewer_shapes() -> None:
    shapes = ProduceShapes()
    for number in range(100):
        frame = request(client_id=f"{number:0900}")
        assert agrees(learnt(frame, shapes), frame)
    assert sum(map(len, shapes._known)) <= 8 * 1024


@pytest.mark.parametrize(
    "other",
    [
        request("u"),
        request("longer"),
        request(partition=1),
        request(version=10),
        request(acks=1),
        request(client_id="other"),
        request(client_id=None),
        request(copies=2),
        request(records=None),
        request(transactional_id="x"),
    ],
)
def test_other_requests_take_the_usual_way(other: memoryview) -> None:
    assert not agrees(learnt(request()), other)


@pytest.mark.parametrize(
    "frame",
    [request(acks=0), request(records=None), request(copies=2)],
)
def test_uncommon_requests_are_not_learnt(frame: memoryview) -> None:
    assert not agrees(learnt(frame), frame)


def test_log_append_time_is_in_the_answer() -> None:
    frame = request()
    found = learnt(frame).match(frame)
    assert found is not None
    expected = encode_produce_response(1, 9, [("t", [PartitionProduced(0, 0, 2**40, 5, 6)])])
    assert found[0].answer(frame, 2**40, 5, 6) == expected


def test_every_truncation_and_20_000_mutations_agree_or_decline() -> None:
    shapes = learnt(request())
    whole = request(records=bytes(range(200)) * 2)
    for stop in range(len(whole)):
        assert not agrees(shapes, whole[:stop])
    dice = random.Random(7)
    for _ in range(20_000):
        mutated = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            mutated[dice.randrange(len(mutated))] = dice.choice([0, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        try:
            agrees(shapes, memoryview(mutated))
        except BadFrame:
            pytest.fail("the short way took what the usual way refuses")


def test_long_names_are_not_kept() -> None:
    for long in ({"topic": "t" * 2000}, {"transactional_id": "x" * 2000}, {"client_id": "c" * 2000}):
        assert learnt(request(**long))._known == {}  # type: ignore[arg-type]
    assert learnt(request(topic="t" * 249, client_id="c" * 249, transactional_id="x" * 249))._known
