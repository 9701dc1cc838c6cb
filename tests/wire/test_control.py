"""Control requests: own decoder against kio's, bombs and cuts; answers built from plain values."""

from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from tierd.wire.api import API, ApiKey, Versions
from tierd.wire.control import decode_control, encode_control, make_response
from tierd.wire.errors import BadFrame, ErrorCode
from tierd.wire.header import parse_request_header
from tierd.wire.schema import MAX_ELEMENTS, Input, reader, shapes
from wire.frames import Recorded, recorded

OWN = {ApiKey.PRODUCE, ApiKey.FETCH}
CONTROL = [frame for frame in recorded("request") if frame.api_key not in OWN]


@pytest.mark.parametrize("frame", CONTROL, ids=lambda frame: frame.name)
def test_recorded_requests_decode_as_kio_decodes_them(frame: Recorded) -> None:
    _, position = parse_request_header(memoryview(frame.raw))
    expected, _ = entity_reader(load_request_schema(frame.api_key, frame.version))(frame.raw, position)
    assert decode_control(frame.api_key, frame.version, memoryview(frame.raw)[position:]) == expected


@pytest.mark.parametrize("frame", recorded("response"), ids=lambda frame: frame.name)
def test_recorded_answers_come_out_byte_for_byte(frame: Recorded) -> None:
    """The walk reads answers too, and kio writes them back."""
    from kio.index import load_response_schema

    schema = load_response_schema(frame.api_key, frame.version)
    header, position = entity_reader(schema.__header_schema__)(frame.raw, 0)
    entity = reader(schema)(Input(memoryview(frame.raw), position))
    assert encode_control(header.correlation_id, frame.version, entity)[4:] == frame.raw


def by_version() -> list[Recorded]:
    return list({(frame.api_key, frame.version): frame for frame in CONTROL}.values())


@pytest.mark.parametrize("frame", by_version(), ids=lambda frame: frame.name)
def test_every_truncation_is_refused_and_a_tail_passed_over(frame: Recorded) -> None:
    _, position = parse_request_header(memoryview(frame.raw))
    body = memoryview(frame.raw)[position:]
    for stop in range(len(body)):
        with pytest.raises(BadFrame):
            decode_control(frame.api_key, frame.version, body[:stop])
    longer = memoryview(bytes(body) + b"\0\1")
    assert decode_control(frame.api_key, frame.version, longer) == decode_control(frame.api_key, frame.version, body)


def test_librdkafka_2_16_asks_for_all_topics_with_three_bytes_too_many() -> None:
    asked = decode_control(ApiKey.METADATA, 13, memoryview(bytes.fromhex("00 000000 01 00 00")))
    assert asked.topics is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (9, "ffffffff0f 00 00 00 00"),  # with kio's native decoder this ends the process
        (12, "ffffffff07 00 00 00"),
        (4, "7fffffff 00"),
        (4, "fffffffe 00"),
    ],
)
def test_an_array_longer_than_the_frame_is_refused_at_once(version: int, body: str) -> None:
    with pytest.raises(BadFrame, match="array of"):
        decode_control(ApiKey.METADATA, version, memoryview(bytes.fromhex(body)))


def test_elements_are_limited() -> None:
    count = MAX_ELEMENTS + 1
    body = b"\0\1t" * count
    frame = count.to_bytes(4, "big") + body + b"\0"
    with pytest.raises(BadFrame, match="array elements"):
        decode_control(ApiKey.METADATA, 4, memoryview(frame))


def test_null_where_none_is_allowed_is_refused() -> None:
    with pytest.raises(BadFrame, match="null"):
        decode_control(ApiKey.FIND_COORDINATOR, 0, memoryview(b"\xff\xff"))


def test_answers_are_built_for_every_version() -> None:
    for version in range(10):
        response: Any = make_response(
            ApiKey.JOIN_GROUP,
            version,
            throttle_time=5,
            error_code=ErrorCode.REBALANCE_IN_PROGRESS,
            generation_id=3,
            protocol_type="consumer",
            protocol_name="range",
            leader="a",
            skip_assignment=False,
            member_id="a",
            members=[{"member_id": "a", "group_instance_id": None, "metadata": b"m"}],
        )
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert response.members[0].metadata == b"m"
        raw = encode_control(1, version, response)
        again, _ = entity_reader(type(response))(raw[9 if version >= 6 else 8 :], 0)
        assert again == response


def test_a_field_that_no_version_has_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="no version of HeartbeatResponse has eror_code"):
        make_response(ApiKey.HEARTBEAT, 0, eror_code=0)


@pytest.mark.parametrize("api_key", [key for key in API if key not in OWN], ids=lambda key: key.name)
def test_every_version_has_an_empty_answer(api_key: int) -> None:
    from kio.index import load_response_schema

    versions: Versions = API[api_key]
    for version in range(versions.first, versions.last + 1):
        raw = encode_control(1, version, make_response(api_key, version))
        assert int.from_bytes(raw[:4], "big") == len(raw) - 4
        assert shapes(load_response_schema(api_key, version))
