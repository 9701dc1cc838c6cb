"""`tierd sweep`: what it asks of the daemon, what it shows, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit.cli import answering, tierd

ORPHAN = {
    "kind": "orphan",
    "keys": ["p/a.indexes", "p/a.log"],
    "bytes": 2048,
    "why": "never committed",
    "refused": None,
    "until_ms": None,
}
STRANGE = {
    "kind": "unexplained",
    "keys": ["p/readme"],
    "bytes": 5,
    "why": "no key of ours",
    "refused": None,
    "until_ms": None,
}


def answer(code: int = 0, **facts: Any) -> dict[str, Any]:
    result = {"outcome": "done", "detail": "", "found": 2, "deleted": 1, "bytes": 2048, "unexplained": 1}
    result |= {"versions": None, "version_bytes": 0, "delete_refused": []}
    return {"result": {**result, "leftovers": [STRANGE, ORPHAN], **facts}, "exit": code}


def test_it_asks_and_shows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", answer()) as asked:
        ended = tierd(capsys, "sweep", "--state", tmp_path / "s")
    assert asked == [{"do": "sweep", "dry_run": False, "purge": False}]
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "unexplained: p/readme, 5 B: no key of ours",
        "orphan: p/a.indexes and 1 more, 2.0 KiB: never committed",
        "deleted: 1 of 2 leftovers, 2.0 KiB",
    ]
    assert ended.err == "1 that nobody can explain stay\n"


def test_a_dry_run_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", answer(found=1500)) as asked:
        ended = tierd(capsys, "sweep", "--state", tmp_path / "s", "--dry-run")
    assert asked[0]["dry_run"] is True
    assert ended.out.splitlines()[-2:] == ["... and 1498 more", "would be deleted: 1 of 1500 leftovers, 2.0 KiB"]
    with answering(tmp_path / "again", answer()):
        ended = tierd(capsys, "sweep", "--state", tmp_path / "again", "--json")
    assert json.loads(ended.out)["leftovers"] == [STRANGE, ORPHAN]


def test_a_bucket_that_refuses_and_one_that_is_away(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refused = answer(
        1, outcome="failed", detail="the bucket refuses 1 deletes: locked", leftovers=[{**ORPHAN, "refused": "locked"}]
    )
    with answering(tmp_path / "s", refused):
        ended = tierd(capsys, "sweep", "--state", tmp_path / "s")
    assert ended.code == 1
    assert "the bucket refuses to delete it: locked" in ended.out
    assert "failed: the bucket refuses 1 deletes" in ended.err
    with answering(tmp_path / "away", {"error": "the tierer is being started again; try again", "exit": 5}):
        assert tierd(capsys, "sweep", "--state", tmp_path / "away").code == 5


def test_old_versions_and_refused_deletes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stuck = {
        "where": "t-0",
        "objects": "3 segments",
        "bytes": 4096,
        "why": "AccessDenied: no",
        "until_ms": 1_800_000_000_000,
        "again_ms": 1_700_086_400_000,
    }
    with answering(tmp_path / "s", answer(versions=7, version_bytes=2048, delete_refused=[stuck])):
        ended = tierd(capsys, "sweep", "--state", tmp_path / "s")
    kept = "the bucket keeps 7 old versions, 2.0 KiB, of what was replaced or deleted: --purge-versions takes them away"
    assert ended.out.splitlines()[-1] == kept
    assert (
        "t-0: delete refused: 3 segments, 4.0 KiB: AccessDenied: no, locked until 2027-01-15T08:00:00Z; "
        "tried again 2023-11-15T22:13:20Z\n"
    ) in ended.err
    with answering(tmp_path / "p", answer()) as asked:
        ended = tierd(capsys, "sweep", "--state", tmp_path / "p", "--purge-versions")
    assert asked[0]["purge"] is True
    assert "keeps no versions" in ended.out
