"""`copy` and `evict`: what they ask, what they show, how they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit.cli import answering, tierd

PROGRESS = {"progress": {"segments_done": 1, "segments": 2, "bytes_done": 5, "bytes": 10, "detail": "t-0"}}
LEFT = [{"topic": "t", "partition": 0, "reason": "pinned", "detail": "by producer 7's transaction"}]


def result(code: int, left: list[dict[str, Any]]) -> dict[str, Any]:
    facts = {"outcome": "done", "detail": "", "segments": 2, "bytes": 3 << 20, "left": left, "planned": []}
    return {"result": facts, "exit": code}


def test_copy_asks_and_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", PROGRESS, result(0, [])) as asked:
        ended = tierd(capsys, "copy", "--state", tmp_path / "s", "--wait", "--roll", "--timeout", "1.5")
    assert asked == [{"do": "copy", "wait": True, "roll": True, "timeout_ms": 1500, "dry_run": False}]
    assert ended.code == 0
    assert ended.out == "copied: 2 segments, 3.0 MiB\n"
    assert ended.err == ""


def test_what_stays_pinned_is_named_and_gives_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", result(3, LEFT)):
        ended = tierd(capsys, "copy", "--state", tmp_path / "s", "--wait")
    assert ended.code == 3
    assert ended.err == "left: t-0: pinned: by producer 7's transaction\n"


def test_a_failure_says_its_outcome(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = result(1, [])
    answer["result"] |= {"outcome": "timeout", "detail": "after 5 s"}
    with answering(tmp_path / "s", answer):
        ended = tierd(capsys, "copy", "--state", tmp_path / "s", "--wait", "--timeout", "5")
    assert ended.code == 1
    assert ended.err == "timeout: after 5 s\n"


def test_json_goes_to_stdout_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", PROGRESS, result(0, LEFT)) as asked:
        ended = tierd(capsys, "evict", "--state", tmp_path / "s", "--json")
    assert asked == [{"do": "evict", "dry_run": False}]
    assert json.loads(ended.out)["left"] == LEFT
    assert ended.err == ""


@pytest.mark.parametrize(("verb", "done"), [("copy", "copied"), ("evict", "evicted")])
def test_a_dry_run_says_what_would_be_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str, done: str
) -> None:
    answer = result(0, [])
    row = {"topic": "t", "partition": 0, "start": 5, "stop": 9, "segments": 2, "bytes": 3 << 20}
    answer["result"]["planned"] = [row]
    with answering(tmp_path / "s", answer) as asked:
        ended = tierd(capsys, verb, "--state", tmp_path / "s", "--dry-run")
    assert asked[0]["dry_run"] is True
    assert ended.out == f"t-0: offsets 5 to 8: 2 segments, 3.0 MiB\nwould be {done}: 2 segments, 3.0 MiB\n"
    with answering(tmp_path / "again", answer):
        ended = tierd(capsys, verb, "--state", tmp_path / "again", "--dry-run", "--json")
    assert json.loads(ended.out)["planned"] == [row]


def test_a_dry_run_goes_with_whatever_the_copy_would(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", result(0, [])) as asked:
        ended = tierd(capsys, "copy", "--state", tmp_path / "s", "--dry-run", "--roll", "--wait", "--timeout", "9")
    assert (asked[0]["dry_run"], asked[0]["roll"], ended.code) == (True, True, 0)


def test_an_error_of_the_daemon_keeps_its_code(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", {"error": "the bucket has been away for 40 s", "exit": 5}):
        ended = tierd(capsys, "evict", "--state", tmp_path / "s")
    assert ended.code == 5
    assert ended.err == "tierd: the bucket has been away for 40 s\n"


def test_a_daemon_that_dies_gives_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", PROGRESS):
        ended = tierd(capsys, "copy", "--state", tmp_path / "s", "--wait")
    assert ended.code == 1
    assert "ended before it answered" in ended.err


def test_a_socket_that_nobody_serves_gives_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", result(0, [])):
        tierd(capsys, "evict", "--state", tmp_path / "s")
    ended = tierd(capsys, "evict", "--state", tmp_path / "s")
    assert ended.code == 1
    assert "no tierd runs there" in ended.err


def test_a_long_state_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    short, long = tmp_path / "s", tmp_path / ("long" * 40)
    long.symlink_to(short)
    with answering(short, result(0, [])):
        assert tierd(capsys, "evict", "--state", long).code == 0
