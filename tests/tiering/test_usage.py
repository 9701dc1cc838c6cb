"""The book of what the bucket was used for: by month, nothing twice, nothing lost by a restart or a damaged file."""

import asyncio
from pathlib import Path

import pytest

from kit.clock import FakeClock
from tierd.config.prices import Prices, Storage
from tierd.remote.meter import Used
from tierd.storage import ballast
from tierd.tiering.costs import cost_document
from tierd.tiering.usage import StoredRow, Usage, UsageBook, UsageRow

MONTH_MS = 31 * 86_400_000
NOVEMBER, DECEMBER = "2023-11", "2023-12"


def test_what_was_used_is_kept_once_by_month(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        usage = Usage.begin(tmp_path / "usage.sqlite", clock, "s3://b/p/")
        usage.meter.sent("put_object", "p/stranger", 7)
        assert await usage.rows(None) == (UsageRow(NOVEMBER, "", "PutObject", 1, 7, 0),)
        assert await usage.rows(None) == (UsageRow(NOVEMBER, "", "PutObject", 1, 7, 0),), "asking adds nothing"
        usage.meter.sent("put_object", "p/stranger", 1)
        clock.advance(MONTH_MS)
        usage.meter.received("get_object", "p/stranger", 5)
        await usage.close()

        again = Usage.begin(tmp_path / "usage.sqlite", clock, "s3://b/p/")
        assert await again.rows(NOVEMBER) == (UsageRow(NOVEMBER, "", "PutObject", 1, 7, 0),)
        assert sum(row.requests for row in await again.rows(DECEMBER)) == 1
        again.meter.sent("put_object", "p/stranger", 1)
        assert [row.requests for row in again.since_start()] == [1]
        assert {row.operation: row.requests for row in await again.rows(None)} == {"PutObject": 2, "GetObject": 0}
        await again.close()

    asyncio.run(run())


def test_neither_a_full_disk_nor_a_damaged_book_stops_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "usage.sqlite"

    async def run() -> None:
        path.write_bytes(b"no database" * 1000)
        usage = Usage.begin(path, FakeClock(), "file:/b")
        usage.meter.sent("PutObject", "x")
        with monkeypatch.context() as full:
            full.setattr(ballast, "is_scarce", lambda folder: True)
            await usage.keep()
            assert [row.requests for row in await usage.rows(None)] == [1], "it is known all the same"
            assert path.read_bytes().startswith(b"no database")
        assert [row.requests for row in await usage.rows(None)] == [1]
        assert list(tmp_path.glob("usage.sqlite.broken-*"))
        await usage.close()
        book = UsageBook.open(path)
        assert len(book.rows(NOVEMBER)) == 1
        book.close()

    asyncio.run(run())


def test_what_it_comes_to() -> None:
    prices = Prices(write_requests=5, read_requests=1, egress=3, storage=Storage(standard=10, glacier=2))
    gib = 2**30
    rows = [
        UsageRow(DECEMBER, "a", "PutObject", 2000, gib, 0),
        UsageRow(DECEMBER, "a", "GetObject", 500, 0, 2 * gib),
        UsageRow(DECEMBER, "", "ListObjectsV2", 1000, 0, 0),
        UsageRow(DECEMBER, "a", "DeleteObjects", 9, 0, 0),
    ]
    document = cost_document(prices, rows, [StoredRow("a", 4, gib), StoredRow("b", 1, gib // 2)], month=DECEMBER)
    costs = {
        one["topic"]: (one["requests_cost"], one["egress_cost"], one["storage_cost_per_month"])
        for one in (*document["topics"], {**document["total"], "topic": "total"})
    }
    assert costs == {None: (5, 0, 0), "a": (10.5, 6, 10), "b": (0, 0, 5), "total": (15.5, 6, 15)}
    assert [one["operation"] for one in document["topics"][1]["operations"]] == [
        "DeleteObjects",
        "GetObject",
        "PutObject",
    ]
    cold = cost_document(prices, [], [StoredRow("a", 4, gib)], month=DECEMBER, storage_class="GLACIER")
    assert cold["total"]["storage_cost_per_month"] == 2
    other = cost_document(prices, [], [StoredRow("a", 4, gib)], month=DECEMBER, storage_class="OWN")
    assert other["total"]["storage_cost_per_month"] == 10


def test_differences_are_what_is_added(tmp_path: Path) -> None:
    book = UsageBook.open(tmp_path / "usage.sqlite")
    for _ in range(2):
        book.add(DECEMBER, {("t", "PutObject"): Used(1, 2, 3)})
    assert book.rows(DECEMBER) == [UsageRow(DECEMBER, "t", "PutObject", 2, 4, 6)]
    book.close()
