"""`tierd gaps`: what it asks of the daemon, and what it shows."""

import json
from pathlib import Path

import pytest

from kit.cli import answering, tierd

OPEN = {
    "topic": "my-topic", "partition": 3, "start": 100, "stop": 200, "accepted": False, "why": "x.log is not there",
    "who": "", "accepted_ms": None,
}  # fmt: skip
ACCEPTED = {**OPEN, "accepted": True, "why": "the disk burnt", "who": "ada@host", "accepted_ms": 1_700_000_000_000}


def test_the_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = {"result": [OPEN, ACCEPTED], "exit": 0}
    with answering(tmp_path / "s", answer) as asked:
        ended = tierd(capsys, "gaps", "list", "--state", tmp_path / "s")
    assert asked == [{"do": "gaps"}]
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "my-topic-3: offsets 100 to 199: x.log is not there",
        "my-topic-3: offsets 100 to 199: accepted by ada@host, 2023-11-14 22:13 UTC: the disk burnt",
    ]
    with answering(tmp_path / "again", answer):
        ended = tierd(capsys, "gaps", "list", "--state", tmp_path / "again", "--json")
    assert json.loads(ended.out) == answer["result"]


def test_accepting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["gaps", "accept", "my-topic-3", "--why", "the disk burnt", "--who", "ada@host", "--offsets", "100-199"]
    with answering(tmp_path / "s", {"result": [ACCEPTED], "exit": 0}) as asked:
        ended = tierd(capsys, *words, "--state", tmp_path / "s")
    (request,) = asked
    assert request == {
        "do": "accept_gap", "topic": "my-topic", "partition": 3, "start": 100, "stop": 200, "why": "the disk burnt",
        "who": "ada@host", "dry_run": False,
    }  # fmt: skip
    assert ended.code == 0
    with answering(tmp_path / "again", {"result": [ACCEPTED], "exit": 0}) as asked:
        tierd(capsys, "gaps", "accept", "t-0", "--why", "w", "--state", tmp_path / "again", "--dry-run")
    (request,) = asked
    assert (request["start"], request["stop"], request["dry_run"]) == (None, None, True)
    assert "@" in request["who"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["accept", "orders", "--why", "w"], "is not TOPIC-PARTITION"),
        (["accept", "orders-0"], "Missing option '--why'"),
        (["accept", "orders-0", "--why", "w", "--offsets", "9-3"], "is not FIRST-LAST"),
        (["accept", "orders-0", "--why", "w", "--offsets", "x"], "is not FIRST-LAST"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    ended = tierd(capsys, "gaps", *words, "--state", "s")
    assert ended.code == 2
    assert line in ended.err
