"""`tierd verify` as scripts see it: what it prints, its exit codes, and where it keeps how far it has come."""

import json
import shutil
from pathlib import Path

import pytest

from kit.cli import answering, tierd
from kit.golden import golden
from kit.ports import free_ports
from tierd.base.ids import Uuid
from tierd.broker.registry import Registry


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    shutil.copytree(golden("aiven") / "bucket-plain" / "tier", tmp_path / "bucket")
    return tmp_path / "bucket"


def logs(bucket: Path) -> list[Path]:
    return sorted(bucket.rglob("*.log"))


def test_a_url_is_enough(capsys: pytest.CaptureFixture[str], bucket: Path) -> None:
    ended = tierd(capsys, "verify", "--remote", f"file:{bucket}", "--deep")
    assert ended.code == 0, ended
    *ranges, summary = ended.out.splitlines()
    assert ranges == ["plain-0: OK: offsets 0 to 239"]
    assert summary.startswith("OK: 1 partitions, 4 of 4 segments looked into, ")
    assert ended.err == ""


def test_topics_of_one_name_are_told_apart(capsys: pytest.CaptureFixture[str], bucket: Path) -> None:
    (topic,) = {path.parent.parent for path in logs(bucket)}
    first, second = topic.name.removeprefix("plain-"), str(Uuid(bytes(15) + b"\x07"))
    shutil.copytree(topic, topic.with_name(f"plain-{second}"))
    ended = tierd(capsys, "verify", "--remote", f"file:{bucket}")
    *ranges, _ = ended.out.splitlines()
    assert f"plain-0 (topic id {first}): OK: offsets 0 to 239" in ranges
    assert any(line.startswith(f"plain-0 (topic id {second}): FAILURE: ") for line in ranges), ranges


def test_a_failure_is_a_range_and_exit_code_1(capsys: pytest.CaptureFixture[str], bucket: Path) -> None:
    lost = logs(bucket)[1]
    lost.unlink()
    ended = tierd(capsys, "verify", "--remote", f"file:{bucket}", "--json")
    assert ended.code == 1
    told = json.loads(ended.out)
    assert (told["verdict"], told["complete"], told["archive_id"]) == ("FAILURE", True, None)
    (partition,) = told["partitions"]
    assert [one["verdict"] for one in partition["ranges"]] == ["OK", "FAILURE", "OK"]
    assert partition["ranges"][1]["start"] == int(lost.name[:20])
    assert partition.keys() == {
        "topic", "topic_id", "partition", "log_start", "copied_to", "segments", "looked_into", "verdict", "ranges",
    }  # fmt: skip


def test_a_budget_and_the_next_run(capsys: pytest.CaptureFixture[str], bucket: Path, tmp_path: Path) -> None:
    words: list[str | Path] = ["verify", "--remote", f"file:{bucket}", "--deep", "--resume", tmp_path / "how-far"]
    ended = tierd(capsys, *words, "--budget-bytes", "9KiB")
    assert ended.code == 0
    assert "not complete: the budget ended at plain-0, offset " in ended.err
    assert "the same command goes on from there" in ended.err
    ended = tierd(capsys, *words)
    assert (ended.code, ended.err) == (0, "")
    assert "4 of 4 segments" in ended.out
    ended = tierd(capsys, "verify", "--remote", f"file:{bucket}", "--budget-requests", "1")
    assert "--resume FILE would go on from there" in ended.err


def test_a_daemons_place_knows_its_bucket(capsys: pytest.CaptureFixture[str], bucket: Path, tmp_path: Path) -> None:
    state = tmp_path / "data.tierd"
    state.mkdir()
    ended = tierd(capsys, "verify", "--data", tmp_path / "data")
    assert (ended.code, ended.out) == (2, "")
    assert "say which bucket" in ended.err
    registry = Registry.open(state / "registry.sqlite")
    registry.put("remote.url", f"file:{bucket}")
    registry.close()
    ended = tierd(capsys, "verify", "--data", tmp_path / "data")
    assert ended.code == 0
    assert json.loads((state / "verify.json").read_bytes())["url"] == f"file:{bucket}"


def test_an_empty_place_is_not_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = ("--remote", f"file:{tmp_path / 'none'}")
    ended = tierd(capsys, "verify", *place)
    assert ended.code == 4
    assert "no archive and no segment lies there" in ended.err
    for verb in ("export-metadata", "restore"):
        ended = tierd(capsys, verb, *place, "--to", tmp_path / "to")
        assert (ended.code, ended.out) == (4, ""), "the wrong bucket, as for every verb"
    assert not (tmp_path / "none").exists()


def test_a_bucket_that_does_not_answer_gives_5(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    endpoint = f"remote.s3.endpoint=http://127.0.0.1:{free_ports(1)[0]}"
    settings = tmp_path / "tierd.toml"
    settings.write_text('[remote.s3]\naccess.key.id = "a"\nsecret.access.key = "b"\nregion = "r"\n')
    words: list[str | Path] = [
        "-c",
        settings,
        "--state",
        tmp_path / "s",
        "--set",
        endpoint,
        "--set",
        "remote.request.timeout.ms=200",
    ]
    ended = tierd(capsys, "verify", "--remote", "s3://b/p/", *words)
    assert ended.code == 5, ended


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--sample", "0%"], "is not a share from 0.01% to 100%"),
        (["--sample", "all"], "is not a share"),
        (["--budget-bytes", "5GB"], "sizes are binary"),
        (["--budget-requests", "0"], "0 is not in the range"),
        ([], "say where the logs lie"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    ended = tierd(capsys, "verify", *words)
    assert ended.code == 2
    assert line in ended.err


def test_a_daemon_is_told_what_to_heal(capsys: pytest.CaptureFixture[str], bucket: Path, tmp_path: Path) -> None:
    lost = logs(bucket)[1]
    lost.unlink()
    with answering(tmp_path / "s", {"result": {"segments": 1}, "exit": 0}) as asked:
        ended = tierd(capsys, "verify", "--remote", f"file:{bucket}", "--state", tmp_path / "s", "--heal")
    (request,) = asked
    assert (request["do"], request["partition"]) == ("look_into", 0)
    assert request["ranges"][0][0] == int(lost.name[:20])
    assert ended.code == 1
    assert "the daemon reads 1 segments again" in ended.err
    ended = tierd(capsys, "verify", "--remote", f"file:{bucket}", "--heal")
    assert (ended.code, "--heal goes with the place of a tierd" in ended.err) == (2, True)


def test_a_report_is_one_document_though_nobody_can_heal(
    capsys: pytest.CaptureFixture[str], bucket: Path, tmp_path: Path
) -> None:
    logs(bucket)[1].unlink()
    words: list[str | Path] = ["verify", "--remote", f"file:{bucket}", "--state", tmp_path / "s", "--heal", "--json"]
    ended = tierd(capsys, *words)
    assert (ended.code, json.loads(ended.out)["verdict"]) == (1, "FAILURE")
    assert "no tierd runs there" in ended.err
    with answering(tmp_path / "s", {"error": "no claim", "exit": 5}):
        ended = tierd(capsys, *words)
    assert (ended.code, json.loads(ended.out)["verdict"]) == (5, "FAILURE")
    assert "no claim" in ended.err
