"""Produce against kio, which knows versions 3 and up, and against what a real Kafka sent."""

import io
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tierd.wire.errors import BadFrame
from tierd.wire.header import parse_request_header, response_header
from tierd.wire.produce import (
    PartitionProduced,
    RecordError,
    decode_produce,
    encode_produce_response,
    keyed,
)
from wire.frames import Recorded, recorded

VERSIONS = range(3, 14)
IDS = {"one": bytes(range(16)), "zwei-ä": bytes(range(16, 32)), "zwei": bytes(range(32, 48))}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


def kio_request(version: int, transactional_id: str | None, topics: dict[str, dict[int, bytes | None]]) -> bytes:
    schema: Any = load_request_schema(0, version)
    import datetime
    import importlib

    module = importlib.import_module(schema.__module__)
    request = schema(
        transactional_id=transactional_id,
        acks=-1,
        timeout=datetime.timedelta(milliseconds=1234),
        topic_data=tuple(
            module.TopicProduceData(
                **({"topic_id": uuid.UUID(bytes=IDS[name])} if version >= 13 else {"name": name}),
                partition_data=tuple(
                    module.PartitionProduceData(index=index, records=records) for index, records in partitions.items()
                ),
            )
            for name, partitions in topics.items()
        ),
    )
    out = io.BytesIO()
    entity_writer(schema)(out, request)
    return out.getvalue()


TOPICS: dict[str, dict[int, bytes | None]] = {
    "one": {0: b"abc", 7: None, 8: b""},
    "zwei-ä": {2**31 - 1: bytes(300), 1: bytes(20_000)},
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "", "tx"])
def test_requests_decode(version: int, transactional_id: str | None) -> None:
    raw = kio_request(version, transactional_id, TOPICS)
    request = decode_produce(memoryview(bytearray(raw)), 0, version, NAMES)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 1234)
    got = {
        name: {index: None if records is None else bytes(records) for index, records in partitions}
        for name, partitions in request.topics
    }
    assert got == TOPICS
    assert request.ids == ({name: IDS[name] for name in TOPICS} if version >= 13 else None)
    assert not request.unknown


def test_ids_without_a_name_are_answered_as_unknown() -> None:
    raw = kio_request(13, None, TOPICS)
    request = decode_produce(memoryview(bytearray(raw)), 0, 13, {IDS["zwei-ä"]: "zwei-ä"})
    assert [name for name, _ in request.topics] == ["zwei-ä"]
    assert request.unknown == [(IDS["one"], [0, 7, 8])]
    answers = keyed(request, [("zwei-ä", [PartitionProduced(1)])])
    assert answers == [
        (IDS["zwei-ä"], [PartitionProduced(1)]),
        (IDS["one"], [PartitionProduced(index, 100) for index in (0, 7, 8)]),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_and_a_tail_are_refused(version: int) -> None:
    raw = kio_request(version, "tx", {"one": {0: b"abc", 1: None}})
    for stop in range(len(raw)):
        with pytest.raises(BadFrame):
            decode_produce(memoryview(raw)[:stop], 0, version)
    with pytest.raises(BadFrame, match="left after"):
        decode_produce(memoryview(raw + b"\0"), 0, version)


def test_records_are_a_writable_view_of_the_frame() -> None:
    frame = memoryview(bytearray(kio_request(9, None, {"t": {0: b"abc"}})))
    records = decode_produce(frame, 0, 9).topics[0][1][0][1]
    assert records is not None
    records[0] = ord("x")
    assert b"xbc" in bytes(frame)


def test_versions_without_a_transactional_id_decode_so_that_they_can_be_refused() -> None:
    raw = kio_request(3, None, TOPICS)[2:]
    for version in (0, 1, 2):
        assert [name for name, _ in decode_produce(memoryview(raw), 0, version).topics] == list(TOPICS)


@pytest.mark.parametrize("frame", recorded("request", 0), ids=lambda frame: frame.name)
def test_recorded_requests_decode_as_kio_decodes_them(frame: Recorded) -> None:
    header, position = parse_request_header(memoryview(frame.raw))
    expected, _ = entity_reader(load_request_schema(0, frame.version))(frame.raw, position)
    names = {topic.topic_id.bytes: str(topic.topic_id) for topic in expected.topic_data if frame.version >= 13}
    request = decode_produce(memoryview(frame.raw), position, header.version, names)
    assert request.transactional_id == expected.transactional_id
    assert [
        (name, [(index, None if records is None else bytes(records)) for index, records in partitions])
        for name, partitions in request.topics
    ] == [
        (key_of(topic), [(part.index, part.records) for part in topic.partition_data]) for topic in expected.topic_data
    ]


def key_of(topic: Any) -> str:
    return str(topic.topic_id) if hasattr(topic, "topic_id") else str(topic.name)


ANSWERS = [
    ("one", [PartitionProduced(0, 0, 5, None, 0), PartitionProduced(3, 0, 7, 1_700_000_000_000, 2)]),
    (
        "zwei",
        [
            PartitionProduced(
                1, 87, record_errors=[RecordError(0, "bad"), RecordError(9, None)], message="one bad record"
            ),
            PartitionProduced(2, 2, message=""),
        ],
    ),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_kios_bytes(version: int) -> None:
    answers = [(IDS[name] if version >= 13 else name, rows) for name, rows in ANSWERS]
    raw = encode_produce_response(42, version, answers, throttle_ms=3)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    header = response_header(0, version, 42)
    assert raw[4:].startswith(header)
    body = raw[4 + len(header) :]
    schema = load_response_schema(0, version)
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    out = io.BytesIO()
    entity_writer(schema)(out, entity)
    assert out.getvalue() == body
    check_answer(entity, version)


def check_answer(entity: Any, version: int) -> None:
    assert entity.throttle_time.total_seconds() == 0.003
    for topic, (name, partitions) in zip(entity.responses, ANSWERS, strict=True):
        assert topic.topic_id.bytes == IDS[name] if version >= 13 else topic.name == name
        for got, want in zip(topic.partition_responses, partitions, strict=True):
            assert (got.index, got.error_code) == (want.partition, want.error)
            assert got.base_offset == (-1 if want.base_offset is None else want.base_offset)
            if version >= 8:
                assert got.error_message == want.message
                errors = [(error.batch_index, error.batch_index_error_message) for error in got.record_errors]
                assert errors == list(want.record_errors)


@pytest.mark.parametrize("frame", recorded("response", 0), ids=lambda frame: frame.name)
def test_recorded_answers_come_out_byte_for_byte(frame: Recorded) -> None:
    schema = load_response_schema(0, frame.version)
    header, position = entity_reader(schema.__header_schema__)(frame.raw, 0)
    entity: Any
    entity, _ = entity_reader(schema)(frame.raw, position)
    topics = [
        (
            topic.topic_id.bytes if frame.version >= 13 else topic.name,
            [
                PartitionProduced(
                    part.index,
                    part.error_code,
                    part.base_offset,
                    None if part.log_append_time is None else -1,
                    part.log_start_offset,
                )
                for part in topic.partition_responses
            ],
        )
        for topic in entity.responses
    ]
    raw = encode_produce_response(header.correlation_id, frame.version, topics)
    assert raw[4:] == frame.raw


def test_answers_below_version_3_have_the_old_shape() -> None:
    answer = [("t", [PartitionProduced(1, 35)])]
    v0 = encode_produce_response(7, 0, answer)
    assert v0 == bytes.fromhex("0000001d 00000007 00000001 0001 74 00000001 00000001 0023 ffffffffffffffff")
    assert len(encode_produce_response(7, 1, answer)) == len(v0) + 4
    assert len(encode_produce_response(7, 2, answer)) == len(v0) + 12
