"""Versions of the APIs that carry records and offsets, beside what Kafka 4.3.1 said it serves."""

from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from tierd.wire.api import API, ApiKey
from wire.frames import recorded


@pytest.mark.parametrize(
    "key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH]
)
def test_the_range_is_kafkas(key: ApiKey) -> None:
    frame = recorded("response", ApiKey.API_VERSIONS)[-1]
    schema = load_response_schema(ApiKey.API_VERSIONS, frame.version)
    _, position = entity_reader(schema.__header_schema__)(frame.raw, 0)
    answer: Any
    answer, _ = entity_reader(schema)(frame.raw, position)
    (row,) = [row for row in answer.api_keys if row.api_key == key]
    assert (API[key].first, API[key].last) == (row.min_version, row.max_version)
