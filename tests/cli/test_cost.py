"""`tierd cost`: what it asks of the daemon and shows, and what it says of the files of one that does not run."""

import json
from pathlib import Path

import pytest

from kit.cli import answering, tierd
from tierd.config.prices import Prices
from tierd.remote.meter import Used
from tierd.tiering.costs import cost_document
from tierd.tiering.usage import StoredRow, UsageBook, UsageRow

ROWS = [UsageRow("2026-12", "t", "PutObject", 1234, 1536, 0), UsageRow("2026-12", "", "ListObjectsV2", 1, 0, 0)]


def test_it_asks_and_shows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = cost_document(Prices(), ROWS, [StoredRow("t", 3, 2**40)], month="2026-12")
    with answering(tmp_path / "s", {"result": document, "exit": 0}) as asked:
        ended = tierd(capsys, "cost", "--state", tmp_path / "s", "--month", "2026-12")
    assert asked == [{"do": "cost", "month": "2026-12"}]
    assert ended.out.splitlines() == [
        "2026-12 (UTC), money in USD, storage class STANDARD",
        "topic            requests     sent  read  for requests  for reading   stored  a month",
        "(none)                  1      0 B   0 B      0.000005         0.00      0 B     0.00",
        "  ListObjectsV2         1                     0.000005",
        "t                   1,234  1.5 KiB   0 B      0.006170         0.00  1.0 TiB    23.55",
        "  PutObject         1,234  1.5 KiB            0.006170",
        "total               1,235  1.5 KiB   0 B      0.006175         0.00  1.0 TiB    23.55",
    ]
    with answering(tmp_path / "again", {"result": document, "exit": 0}):
        ended = tierd(capsys, "cost", "--state", tmp_path / "again", "--json")
    assert json.loads(ended.out) == document


def test_without_a_daemon_it_reads_the_book(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = tmp_path / "s"
    assert tierd(capsys, "cost", "--state", state).code == 1, "a misspelt place is not one that costs nothing"
    state.mkdir()
    ended = tierd(capsys, "cost", "--state", state, "--json")
    assert json.loads(ended.out)["total"]["requests"] == 0
    book = UsageBook.open(state / "usage.sqlite")
    book.add("2026-11", {("t", "PutObject"): Used(7, 8, 0)})
    book.close()
    ended = tierd(capsys, "cost", "--state", state, "--json", "--month", "2026-11")
    assert json.loads(ended.out)["total"]["requests"] == 7
    assert tierd(capsys, "cost", "--state", state, "--month", "11/2026").code == 2
    (state / "usage.sqlite").write_bytes(b"no database" * 1000)
    ended = tierd(capsys, "cost", "--state", state)
    assert (ended.code, ended.out) == (1, "")
    assert "start tierd again, which sets it aside" in ended.err
