"""What a plan says: requests of a copy, how fast data comes, and what is stored after months."""

from collections import Counter
from dataclasses import replace

import pytest

from tierd.config.model import Remote
from tierd.config.prices import Prices, Storage
from tierd.config.topic import DAY_MS, GIB, HOUR_MS, MIB, TopicSettings
from tierd.tiering.forecast import Assumed, Found, copy_requests, forecast

REMOTE = Remote()
PRICES = Prices(write_requests=1, read_requests=0, delete_requests=0, egress=2, storage=Storage(standard=1))
KEEPS = TopicSettings(tierd_archive_max_age_ms=None, segment_ms=None)
ONE = Found(
    topic="t",
    closed=tuple((GIB, day * DAY_MS) for day in range(4)),
    index_bytes=0,
    active_bytes=5,
    settings=KEEPS,
    adopted=False,
)
ASSUMED = Assumed(rate_bytes_s=100 * MIB)


@pytest.mark.parametrize(
    ("size_bytes", "parts"), [(0, None), (1, 0), (16 * MIB, 0), (16 * MIB + 1, 2), (32 * MIB, 2), (GIB, 64)]
)
def test_the_requests_of_one_copy(size_bytes: int, parts: int | None) -> None:
    if parts is None:
        assert copy_requests(size_bytes, 16 * MIB) == Counter()
        return
    expected = {"PutObject": 2, "ListObjectsV2": 1}
    if parts:
        expected |= {"CreateMultipartUpload": 1, "UploadPart": parts, "CompleteMultipartUpload": 1}
    else:
        expected["PutObject"] = 3
    assert copy_requests(size_bytes, 16 * MIB) == expected


def test_data_comes_as_fast_as_it_did() -> None:
    document = forecast(PRICES, REMOTE, [ONE], ASSUMED)
    (topic,) = document["topics"]
    assert (topic["bytes_per_day"], topic["segments_per_month"]) == (GIB, 30)
    assert topic["upload"]["seconds"] == 41
    assert topic["upload"]["cost"] * 1000 == sum(topic["upload"]["requests"].values()) == 4 * 69 + 2
    first, last = document["months"]
    assert (round(first["stored_bytes"] / GIB), round(last["stored_bytes"] / GIB)) == (34, 364)
    assert first["storage_cost"] == pytest.approx(first["stored_bytes"] / GIB)
    assert first["cost"] == first["storage_cost"] + first["requests_cost"] + first["egress_cost"]
    assert document["beside"]["requests"] == {"ListObjectsV2": 259_200}, "an idle daemon asks whose the bucket is"


def test_an_age_closes_more_segments_than_their_size() -> None:
    hourly = replace(ONE, settings=replace(KEEPS, tierd_archive_max_age_ms=HOUR_MS))
    (topic,) = forecast(PRICES, REMOTE, [hourly, hourly], ASSUMED)["topics"]
    assert (topic["partitions"], topic["segments_per_month"]) == (2, 2 * 720)


def test_limits_end_the_growth() -> None:
    by_time = replace(ONE, settings=replace(KEEPS, retention_ms=7 * DAY_MS))
    by_size = replace(ONE, topic="u", settings=replace(KEEPS, retention_bytes=2 * GIB))
    stored = forecast(PRICES, REMOTE, [by_time, by_size], ASSUMED)["months"][1]["stored_bytes"]
    assert stored == 7 * GIB + 2 * GIB


def test_what_the_disk_does_not_tell_is_asked_for() -> None:
    quick = replace(ONE, closed=((GIB, 5), (GIB, 6)))
    (topic,) = forecast(PRICES, REMOTE, [quick], ASSUMED)["topics"]
    assert (topic["bytes_per_day"], topic["segments_per_month"]) == (None, None)
    told = replace(ASSUMED, bytes_per_day=3 * GIB, read_per_day=GIB)
    other = replace(quick, topic="u", closed=((4 * GIB, 5),), active_bytes=10, adopted=True)
    document = forecast(PRICES, REMOTE, [quick, other], told)
    assert [round(one["bytes_per_day"] / GIB, 3) for one in document["topics"]] == [1.0, 2.0]
    assert [one["segments_per_month"] for one in document["topics"]] == [30, 15]
    assert document["reads"]["egress_cost"] == 60
    assert document["reads"]["requests"] == {"GetObject": 30 * 64}
    empty = replace(quick, closed=(), active_bytes=0)
    assert forecast(PRICES, REMOTE, [empty], told)["upload"]["segments"] == 0
