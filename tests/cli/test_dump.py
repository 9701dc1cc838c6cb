"""`tierd dump` shows every file of a data directory, also damaged ones."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kit.golden import golden
from tierd.cli.dump import dump
from tierd.storage.batch import encode_batch
from tierd.storage.dump import Line, as_text
from tierd.storage.records import Record

KAFKA = golden("kafka")


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(dump, [str(argument) for argument in arguments])


def _json(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _run("--json", *arguments).stdout.splitlines()]


def test_a_whole_data_directory() -> None:
    result = _run("--json", "--records", KAFKA / "clean")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    kinds = Counter(line["kind"] for line in lines if not line["file"].endswith(".deleted"))
    theirs = [line for path in (KAFKA / "dump").glob("*.log.txt") for line in path.read_text().splitlines()]
    assert kinds["batch"] == sum(line.startswith("baseOffset: ") for line in theirs)
    assert kinds["record"] == sum(line.startswith("| offset: ") for line in theirs)
    assert kinds["partition"] == 24
    assert kinds["meta"] == kinds["clean_shutdown"] == 1
    assert kinds["problem"] == kinds["unknown"] == 0


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("clean/txn-0/00000000000000000015.index", "index offset=20 position=674"),
        ("clean/txn-0/00000000000000000015.timeindex", "timeindex timestamp_ms=1796028236487 offset=16"),
        (
            "clean/txn-0/00000000000000000015.txnindex",
            "aborted producer_id=15 first_offset=1 marker_offset=16 last_stable=17",
        ),
        (
            "clean/txn-0/00000000000000000015.snapshot",
            "producer producer_id=16 epoch=0 last_sequence=5 last_offset=13 offset_delta=0 "
            "timestamp_ms=1700000013000 txn_first_offset=2",
        ),
        ("final/codec-none-0/leader-epoch-checkpoint", "epoch epoch=0 start_offset=0"),
        ("clean/log-start-offset-checkpoint", "checkpoint topic=delrec partition=0 offset=137"),
        ("clean/.kafka_cleanshutdown", "clean_shutdown broker_epoch=13"),
        ("clean/txn-0/00000000000000000015.log", "record offset=15 timestamp_ms=1796028236475 control=commit"),
    ],
)
def test_lines_for_people(file: str, line: str) -> None:
    result = _run("--records", KAFKA / file)
    assert result.exit_code == 0
    assert line in result.stdout
    assert result.stdout.startswith(f"# {KAFKA / file}\n")


def test_damage_is_shown_after_what_is_good() -> None:
    path = KAFKA / "damaged" / "rd-garbage-tail-0" / "00000000000000000195.log"
    result = _run(path)
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["#", "batch", "problem"]
    assert 'problem position=399 reason="batch magic 55, only 2 is known"' in result.stdout


def test_room_is_no_damage() -> None:
    lines = _json(KAFKA / "live" / "prealloc-0")
    [room] = [line for line in lines if line["kind"] == "room"]
    assert (room["position"], room["bytes"]) == (10806, 16384 - 10806)
    assert not [line for line in lines if line["kind"] == "problem"]


def test_copies_under_other_names(tmp_path: Path) -> None:
    source = KAFKA / "clean" / "codec-none-0" / "00000000000000000150.log"
    shutil.copy(source, tmp_path / "copy.log")
    strip = ("file",)
    mine = [{k: v for k, v in line.items() if k not in strip} for line in _json(tmp_path / "copy.log")]
    assert mine == [{k: v for k, v in line.items() if k not in strip} for line in _json(source)]
    (tmp_path / "empty.log").touch()
    assert _json(tmp_path / "empty.log") == []
    (tmp_path / "notes.txt").write_text("hello")
    assert _json(tmp_path / "notes.txt") == [{"file": str(tmp_path / "notes.txt"), "kind": "unknown", "bytes": 5}]


def test_values_are_text_or_base64(tmp_path: Path) -> None:
    record = Record(0, 5, b"caf\xc3\xa9", b"\x9b\xff", (("h", b"v"), ("none", None)))
    (tmp_path / "00000000000000000000.log").write_bytes(encode_batch([record]))
    shown = _json("--records", tmp_path)[1]
    assert (shown["key"], shown["value"]) == ("café", {"base64": "m/8="})
    assert shown["headers"] == [["h", "v"], ["none", None]]


def test_nothing_that_a_terminal_would_obey() -> None:
    assert "\x1b" not in as_text(Line("record", {"key": "a\x1b[2J", "value": "b\x9b2J"}))
    assert "\x9b" not in as_text(Line("record", {"key": "a\x1b[2J", "value": "b\x9b2J"}))


def test_a_missing_path_is_a_wrong_argument() -> None:
    result = _run("/no/such/path")
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_an_index_full_of_nonsense_has_no_entries(tmp_path: Path) -> None:
    result = _run(KAFKA / "damaged" / "rd-bad-index-0" / "00000000000000000035.index")
    assert "index offset=" not in result.stdout
    assert "cannot be in a segment that begins at 35" in result.stdout
    path = tmp_path / "00000000000000000010.index"
    path.write_bytes(bytes.fromhex("00000005 0000003c 00000009 0000005a 00000007 00000050"))
    shown = _run(path).stdout
    assert shown.count("index offset=") == 2
    assert "problem" in shown
