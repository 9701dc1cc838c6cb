"""Request headers: as recorded, cut at every byte, and compared with kio."""

import io

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tierd.wire.api import API, has_flexible_header, is_flexible, is_served
from tierd.wire.control import decode_control
from tierd.wire.errors import BadFrame
from tierd.wire.header import RequestHeader, framed, parse_request_header, response_header
from tierd.wire.primitives import uvarint
from wire.frames import Recorded, recorded


@pytest.mark.parametrize("frame", recorded("request"), ids=lambda frame: frame.name)
def test_recorded_headers_parse_as_kio_parses_them(frame: Recorded) -> None:
    schema = load_request_schema(frame.api_key, frame.version).__header_schema__
    expected, size = entity_reader(schema)(frame.raw, 0)
    header, position = parse_request_header(memoryview(frame.raw))
    assert position == size
    assert header == RequestHeader(
        expected.request_api_key, expected.request_api_version, expected.correlation_id, expected.client_id
    )


def test_every_truncation_of_a_header_is_refused() -> None:
    raw = recorded("request", 3)[0].raw
    _, position = parse_request_header(memoryview(raw))
    for stop in range(position):
        with pytest.raises(BadFrame):
            parse_request_header(memoryview(raw)[:stop])


def test_a_version_that_is_not_served_still_has_a_header() -> None:
    raw = bytes.fromhex("0012 0063 00000007 0001 61 00")
    header, _ = parse_request_header(memoryview(raw))
    assert header == RequestHeader(18, 99, 7, "a")
    assert not is_served(18, 99)
    assert is_served(0, 0)
    assert not is_served(99, 0)


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(BadFrame, match="api key 999"):
        parse_request_header(memoryview(bytes.fromhex("03e7 0000 00000007 ffff")))


def test_header_tags_are_skipped() -> None:
    raw = bytes.fromhex("0003 000c 00000001 ffff 02 00 01 aa 07 02 bbbb 99")
    _, position = parse_request_header(memoryview(raw))
    assert raw[position] == 0x99


def test_very_many_tags_are_refused() -> None:
    tags = uvarint(100_000) + b"".join(uvarint(1000 + number) + b"\0" for number in range(100_000))
    with pytest.raises(BadFrame, match="100000 tagged fields"):
        parse_request_header(memoryview(bytes.fromhex("0024 0002 00000001 ffff") + tags))
    with pytest.raises(BadFrame, match="100000 tagged fields"):
        decode_control(36, 2, memoryview(b"\1" + tags))


@pytest.mark.parametrize("api_key", list(API), ids=lambda key: key.name)
def test_the_flexible_table_is_kios(api_key: int) -> None:
    versions = API[api_key]
    for version in range(versions.first, versions.last + 1):
        if api_key == 0 and version < 3:
            continue
        assert load_request_schema(api_key, version).__flexible__ is is_flexible(api_key, version)
        schema = load_response_schema(api_key, version).__header_schema__
        assert has_flexible_header(api_key, version) is (schema.__version__ == 1)
        out = io.BytesIO()
        entity_writer(schema)(out, schema(correlation_id=77))
        assert response_header(api_key, version, 77) == out.getvalue()


def test_framed_counts_header_and_body() -> None:
    assert framed(b"ab", b"cde") == b"\0\0\0\5abcde"
