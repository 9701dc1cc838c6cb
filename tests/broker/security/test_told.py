"""The pause stands in every answer whose version has a place for it, and nothing else changes."""

import dataclasses

import pytest
from kio.index import load_response_schema

from tierd.broker.security.throttle import told
from tierd.wire.api import API, ApiKey, has_flexible_header
from tierd.wire.control import encode_control, make_response
from tierd.wire.fetch import encode_fetch_response
from tierd.wire.produce import PartitionProduced, encode_produce_response
from tierd.wire.schema import Input, reader, shapes

EVERY = [
    (key, version)
    for key, served in API.items()
    for version in range(served.first, served.last + 1)
    if key not in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS)
]
PAUSE_MS = 1234


def read(key: int, version: int, raw: bytes) -> object:
    head = 9 if has_flexible_header(key, version) else 8
    return reader(load_response_schema(key, version))(Input(memoryview(raw), head))


def pause_of(key: int, version: int, raw: bytes) -> int | None:
    """In ms, and that nothing else is changed."""
    assert isinstance(raw, bytes)
    changed = told(key, version, raw, PAUSE_MS)
    assert isinstance(changed, bytes)
    before, after = read(key, version, raw), read(key, version, changed)
    if not hasattr(after, "throttle_time"):
        assert changed == raw
        return None
    assert dataclasses.replace(after, throttle_time=before.throttle_time) == before  # type: ignore[attr-defined, type-var]
    return round(after.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize(("key", "version"), EVERY)
def test_control_answers(key: ApiKey, version: int) -> None:
    raw = encode_control(7, version, make_response(key, version))
    has = "throttle_time" in [shape.name for shape in shapes(load_response_schema(key, version))]
    assert pause_of(key, version, raw) == (PAUSE_MS if has else None)


@pytest.mark.parametrize("version", range(3, API[ApiKey.PRODUCE].last + 1))
def test_produce(version: int) -> None:
    topic: str | bytes = "t" if version < 13 else b"0123456789abcdef"
    rows = [(topic, [PartitionProduced(0, 0, 5, None, 0), PartitionProduced(1, 3, message="why")])]
    assert pause_of(ApiKey.PRODUCE, version, encode_produce_response(7, version, rows)) == PAUSE_MS


@pytest.mark.parametrize("version", range(4, API[ApiKey.FETCH].last + 1))
def test_fetch(version: int) -> None:
    (raw,) = encode_fetch_response(7, version, [])
    assert pause_of(ApiKey.FETCH, version, raw) == PAUSE_MS
