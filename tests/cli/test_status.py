"""`tierd status` from a running daemon, and from the files that a real Kafka left."""

import json
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kit.cli import answering, tierd
from kit.golden import golden
from tierd.cli.status import table_of

COLUMNS = {
    "topic",
    "topic_id",
    "partition",
    "directory",
    "offline",
    "log_start",
    "local_start",
    "copied_to",
    "log_end",
    "gaps",
    "local_bytes",
    "remote_bytes",
    "oldest_uncopied_ms",
    "compaction",
    "waiting",
}
ROW = {
    "topic": "orders",
    "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "partition": 3,
    "log_start": 0,
    "local_start": 70,
    "copied_to": 80,
    "log_end": 90,
    "local_bytes": 1536,
    "remote_bytes": 10 << 20,
    "oldest_uncopied_ms": 93_784_000,
    "waiting": {"reason": "active", "detail": "only the active segment is left"},
}
DOCUMENT = {"version": "0.1.0", "running": True, "epoch": 4, "claim": "held", "partitions": [ROW]}


def test_a_running_daemon_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", {"result": DOCUMENT, "exit": 0}) as asked:
        ended = tierd(capsys, "status", "--state", tmp_path / "s")
    assert asked == [{"do": "status"}]
    assert ended.code == 0
    assert "tierd 0.1.0, running, epoch 4, claim held" in ended.out
    line = ended.out.splitlines()[-1].split()
    assert line[:5] == ["orders-3", "0", "70", "80", "90"]
    assert "1.5 KiB" in ended.out
    assert "10.0 MiB" in ended.out
    assert "1d 2h" in ended.out
    assert ended.out.rstrip().endswith("active: only the active segment is left")


LONG = [{**ROW, "topic": "t" * 249}, {**ROW, "waiting": {"reason": "retrying", "detail": "[why] " * 100}}, ROW]


def test_one_long_name_does_not_push_the_others_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", {"result": {**DOCUMENT, "partitions": LONG}, "exit": 0}):
        lines = tierd(capsys, "status", "--state", tmp_path / "s").out.splitlines()
    assert lines[2].startswith("t" * 249 + "-3 "), "nothing is cut in a pipe"
    assert lines[3].endswith("[why]")
    assert len(lines[4]) < 160


def test_a_terminal_sees_all_of_it_within_its_width() -> None:
    rows = [["orders-3", "0", "70", "80", "90", "1.5 KiB", "10.0 MiB", "1d 2h", "active: [why] " * 9]]
    rows.append(["t" * 249 + "-3", *rows[0][1:]])
    console = Console(width=80, file=StringIO())
    console.print(table_of(rows))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line[:12].strip() for line in lines).endswith("t" * 249 + "-3")
    assert sum("10.0 MiB" in line for line in lines) == 2
    assert sum("[why]" in line for line in lines) == 18


def test_json_is_the_daemons_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", {"result": DOCUMENT, "exit": 0}):
        assert json.loads(tierd(capsys, "status", "--state", tmp_path / "s", "--json").out) == DOCUMENT


def test_what_is_lost_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    problems = [{"kind": "lost", "where": "orders-3", "detail": "offsets 45 to 69 are lost"}]
    with answering(tmp_path / "s", {"result": {**DOCUMENT, "problems": problems, "set_aside": 2}, "exit": 0}):
        ended = tierd(capsys, "status", "--state", tmp_path / "s")
    assert ended.out.splitlines()[-2] == "orders-3: offsets 45 to 69 are lost"
    assert ended.out.splitlines()[-1].startswith("2 damaged files")


def test_what_compaction_has_to_do_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    clean = {
        "cleaned_to": 80,
        "dirty_bytes": 0,
        "dirty_ratio": 0.0,
        "running": False,
        "finished_ms": 1,
        "problem": None,
    }
    dirty = {**clean, "dirty_bytes": 2048, "dirty_ratio": 0.428}
    bad = {**clean, "dirty_bytes": None, "dirty_ratio": None, "problem": "a segment: the CRC does not match"}
    told = [{**ROW, "partition": number, "compaction": facts} for number, facts in enumerate((None, clean, dirty, bad))]
    with answering(tmp_path / "s", {"result": {**DOCUMENT, "partitions": told}, "exit": 0}):
        ended = tierd(capsys, "status", "--state", tmp_path / "s")
    assert ended.out.splitlines()[-1] == (
        "to be cleaned: 1 of 3 compacted partitions, most of it orders-2's: 2.0 KiB, 43% of what may be cleaned there"
    )


def rows(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, dict[str, Any]]:
    ended = tierd(capsys, "status", "--json", *words)
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert document["running"] is False
    assert all(set(row) == COLUMNS for row in document["partitions"])
    return {f"{row['topic']}-{row['partition']}": row for row in document["partitions"]}


def test_a_directory_that_kafka_wrote_is_read_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(golden("kafka") / "final", data)
    before = sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*"))
    found = rows(capsys, "--data", data)
    assert sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*")) == before
    assert not data.with_name("data.tierd").exists()
    assert found["delrec-0"]["log_start"] == 137
    answers = (golden("kafka") / "final.answers.jsonl").read_text().splitlines()
    ends = {}
    for line in answers:
        answer = json.loads(line)
        if answer.get("api") == "ListOffsets" and answer.get("timestamp") == -1 and answer["isolation"] == 0:
            ends[answer["topic"]] = answer["offset"]
    for topic, end in ends.items():
        assert found[f"{topic}-0"]["log_end"] == end


def test_a_damaged_end_counts_up_to_the_last_good_batch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(golden("kafka") / "final" / "codec-none-0", data / "codec-none-0")
    whole = rows(capsys, "--data", data)["codec-none-0"]["log_end"]
    log = max((data / "codec-none-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    assert 0 < rows(capsys, "--data", data)["codec-none-0"]["log_end"] < whole
    log.with_suffix(".index").write_bytes(b"\xff" * 80)
    assert 0 < rows(capsys, "--data", data)["codec-none-0"]["log_end"] < whole
