"""Fetch against kio and against what a real Kafka sent; the answer's chunks and records together are one frame."""

import io
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tierd.storage.view import AbortedTxn
from tierd.wire.errors import BadFrame
from tierd.wire.fetch import FetchPartition, PartitionFetched, decode_fetch, encode_fetch_response
from tierd.wire.header import parse_request_header, response_header
from wire.frames import Recorded, recorded

VERSIONS = range(4, 19)


def none(value: int) -> int | None:
    return None if value < 0 else value


def check_request(raw: bytes, position: int, version: int) -> None:
    expected: Any
    expected, _ = entity_reader(load_request_schema(1, version))(raw, position)
    request = decode_fetch(memoryview(raw), position, version)
    assert request.max_wait_ms == round(expected.max_wait.total_seconds() * 1000)
    assert (request.min_bytes, request.max_bytes) == (expected.min_bytes, expected.max_bytes)
    assert request.isolation == expected.isolation_level
    assert request.replica_id == none(replica_of(expected))
    assert request.rack_id == getattr(expected, "rack_id", None)
    assert request.session_id == getattr(expected, "session_id", 0)
    assert request.topics == [
        (
            key_of(topic),
            [
                FetchPartition(
                    part.partition,
                    part.fetch_offset,
                    part.partition_max_bytes,
                    none(getattr(part, "current_leader_epoch", -1)),
                    none(getattr(part, "last_fetched_epoch", -1)),
                    none(getattr(part, "log_start_offset", -1)),
                )
                for part in topic.partitions
            ],
        )
        for topic in expected.topics
    ]
    forgotten = getattr(expected, "forgotten_topics_data", ())
    assert request.forgotten == [(key_of(topic), list(topic.partitions)) for topic in forgotten]


def replica_of(expected: Any) -> int:
    return int(expected.replica_id if hasattr(expected, "replica_id") else expected.replica_state.replica_id)


def key_of(topic: Any) -> str | bytes:
    return topic.topic_id.bytes if hasattr(topic, "topic_id") else str(topic.topic)


def named(name: str) -> dict[str, object]:
    """Both ways to say it; `fill` takes what the version has."""
    return {"topic": name, "topic_id": uuid.UUID(bytes=ident(name))}


def ident(name: str) -> bytes:
    return name.encode().ljust(16, b"!")


def kio_request(version: int) -> bytes:
    """Two topics, an old session's forgotten topic, a rack: everything that the version has."""
    import datetime
    import importlib

    schema: Any = load_request_schema(1, version)
    module = importlib.import_module(schema.__module__)

    def fill(entity: Any, **values: object) -> Any:
        return entity(**{name: value for name, value in values.items() if name in entity.__dataclass_fields__})

    def part(index: int) -> Any:
        return fill(
            module.FetchPartition,
            partition=index,
            current_leader_epoch=index - 1,
            fetch_offset=10 * index,
            last_fetched_epoch=index - 1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )

    forgotten = ()
    if version >= 7:
        forgotten = (fill(module.ForgottenTopic, **named("old"), partitions=(1, 2, 3)),)
    request = fill(
        schema,
        replica_id=-1 if version % 2 else 4,
        **({"replica_state": module.ReplicaState(replica_id=5, replica_epoch=6)} if version in (15, 17) else {}),
        max_wait=datetime.timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=1,
        session_id=9,
        session_epoch=3,
        topics=(
            fill(module.FetchTopic, **named("one"), partitions=(part(0), part(1))),
            fill(module.FetchTopic, **named("two"), partitions=(part(5),)),
        ),
        forgotten_topics_data=forgotten,
        rack_id="r",
        cluster_id="c",
    )
    out = io.BytesIO()
    entity_writer(schema)(out, request)
    return out.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_decode(version: int) -> None:
    check_request(kio_request(version), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_and_a_tail_are_refused(version: int) -> None:
    raw = kio_request(version)
    for stop in range(len(raw)):
        with pytest.raises(BadFrame):
            decode_fetch(memoryview(raw)[:stop], 0, version)
    with pytest.raises(BadFrame, match="left after"):
        decode_fetch(memoryview(raw + b"\0"), 0, version)


@pytest.mark.parametrize("frame", recorded("request", 1), ids=lambda frame: frame.name)
def test_recorded_requests_decode(frame: Recorded) -> None:
    _, position = parse_request_header(memoryview(frame.raw))
    check_request(frame.raw, position, frame.version)


def join(chunks: list[bytes], records: list[bytes]) -> bytes:
    """What the connection does: chunk, records, chunk, ..., tail."""
    records = [piece for piece in records if piece]
    assert len(chunks) == len(records) + 1
    out = b""
    for chunk, piece in zip(chunks, [*records, b""], strict=True):
        out += chunk + piece
    return out


RECORDS = {("one", 0): b"x" * 100, ("one", 1): b"", ("two", 0): b"y" * 70_000, ("two", 9): b"z"}
TOPICS = [
    (
        "one",
        [
            PartitionFetched(0, 0, 10, 9, 1, (AbortedTxn(3, 4), AbortedTxn(5, 6)), 100),
            PartitionFetched(1, 1),
        ],
    ),
    ("two", [PartitionFetched(0, 0, 10, 9, 1, None, 70_000), PartitionFetched(9, 0, 10, 9, 1, (), 1)]),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_kios_bytes(version: int) -> None:
    topics = [(ident(name) if version >= 13 else name, rows) for name, rows in TOPICS]
    raw = join(
        encode_fetch_response(42, version, topics, throttle_ms=3, error=70, session_id=8), list(RECORDS.values())
    )
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    header = response_header(1, version, 42)
    assert raw[4:].startswith(header)
    body = raw[4 + len(header) :]
    schema = load_response_schema(1, version)
    entity: Any
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    out = io.BytesIO()
    entity_writer(schema)(out, entity)
    assert out.getvalue() == body
    for topic, (name, partitions) in zip(entity.responses, TOPICS, strict=True):
        assert key_of(topic) == (ident(name) if version >= 13 else name)
        for got, want in zip(topic.partitions, partitions, strict=True):
            assert got.partition_index == want.partition
            assert got.error_code == want.error
            assert bytes(got.records) == RECORDS[name, want.partition]
            aborted = None if want.aborted is None else [(txn.producer_id, txn.first_offset) for txn in want.aborted]
            rows = got.aborted_transactions
            assert (None if rows is None else [(row.producer_id, row.first_offset) for row in rows]) == aborted


@pytest.mark.parametrize("frame", recorded("response", 1), ids=lambda frame: frame.name)
def test_recorded_answers_come_out_byte_for_byte(frame: Recorded) -> None:
    schema = load_response_schema(1, frame.version)
    header, position = entity_reader(schema.__header_schema__)(frame.raw, 0)
    entity: Any
    entity, _ = entity_reader(schema)(frame.raw, position)
    records: list[bytes] = []
    topics = []
    for topic in entity.responses:
        partitions = []
        for part in topic.partitions:
            records.append(bytes(part.records))
            aborted = part.aborted_transactions
            partitions.append(
                PartitionFetched(
                    part.partition_index,
                    part.error_code,
                    part.high_watermark,
                    part.last_stable_offset,
                    part.log_start_offset,
                    None if aborted is None else [AbortedTxn(row.producer_id, row.first_offset) for row in aborted],
                    len(part.records),
                )
            )
        topics.append((key_of(topic), partitions))
    session_id = getattr(entity, "session_id", 0)
    raw = join(
        encode_fetch_response(
            header.correlation_id, frame.version, topics, error=int(entity.error_code), session_id=session_id
        ),
        records,
    )
    assert raw[4:] == frame.raw
