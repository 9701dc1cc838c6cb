"""`tierd plan`: any Kafka's log directory is read as it is, and says what tiering will cost."""

import json
import shutil
from pathlib import Path

import pytest

from kit.archived import tree
from kit.cli import tierd
from kit.golden import golden


def test_a_directory_that_kafka_wrote(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(golden("kafka") / "clean", data)
    before = tree(data)
    ended = tierd(capsys, "plan", "--data", data, "--per-day", "1GiB", "--json")
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    topics = {one["topic"]: one for one in document["topics"]}
    assert not [name for name in topics if name.startswith("__")], "Kafka's own stay local"
    folder = data / "codec-none-0"
    closed = sorted(folder.glob("*.log"))[:-1]
    assert topics["codec-none"]["segments"] == len(closed)
    assert topics["codec-none"]["bytes"] == sum(path.stat().st_size for path in closed)
    assert topics["codec-none"]["upload"]["requests"] == {
        "ListObjectsV2": len(closed),
        "PutObject": 3 * len(closed) + 2,
    }
    assert document["upload"]["segments"] == sum(one["segments"] for one in topics.values())
    assert sum(one["bytes_per_day"] for one in topics.values()) == pytest.approx(2**30, rel=0.001)
    shown = tierd(capsys, "plan", "--data", data, "--set", "prices.currency=EUR").out.splitlines()
    assert shown[0] == "money in EUR, storage class STANDARD, nothing compressed"
    assert any(line.startswith("first upload: ") for line in shown)
    assert shown[-1].startswith("month 12: ")
    assert tree(data) == before
    assert not (tmp_path / "data.tierd").exists(), "nothing is made"


def test_nothing_to_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ended = tierd(capsys, "plan", "--data", tmp_path / "nowhere")
    assert (ended.code, "nowhere: there is no such directory" in ended.err) == (2, True)
    assert tierd(capsys, "plan", "--data", tmp_path, "--rate", "fast").code == 2
    for wrong in (("--rate", "0"), ("--per-day", "-5"), ("--read-per-day", "-1")):
        ended = tierd(capsys, "plan", "--data", tmp_path, *wrong)
        assert (ended.code, ended.out) == (2, "")
        assert "is less than" in ended.err, wrong
