"""Exit codes and the one helpful line for a wrong argument."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.cli import tierd
from tierd import __version__
from tierd.cli.main import VERBS, run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert tierd(capsys, "--version").out == f"tierd {__version__}\n"


def test_no_verb_shows_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    ended = tierd(capsys)
    assert ended.code == 0
    assert all(f"  {verb} " in ended.out for verb in VERBS)


def test_a_group_alone_shows_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    ended = tierd(capsys, "config")
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()[-2:]] == ["check", "show"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    ended = tierd(capsys, verb, "--help")
    assert ended.code == 0
    assert f"Usage: tierd {verb}" in ended.out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nope"], "no verb 'nope'; there are serve, status"),
        (["stauts"], "no verb 'stauts'; did you mean status?"),
        (["--data", "d", "status"], "options follow the verb"),
        (["copy", "--rol"], "Did you mean '--roll'?"),
        (["copy", "--data", "d", "--timeout", "5"], "--timeout goes with --wait"),
        (["copy", "--wait", "--timeout", "soon"], "'soon' is not a valid float"),
        (["status", "here"], "unexpected extra argument"),
        (["serve"], "say where the logs lie"),
        (["serve", "--data", "d", "--set", "num.partitions=0"], 'num.partitions = "0": Value must be at least 1'),
        (["status"], "say where the logs lie"),
        (["archive", "--state", "s"], "say which bucket is to be read"),
        (["archive", "--remote", "file:b"], "say --state DIR"),
        (["serve", "--mode", "archive", "--state", "s", "--remote", "file:b", "--data", "d"], "has no data directory"),
        (["serve", "--mode", "archive", "--state", "s", "--remote", "file:b", "--take-over"], "it takes nothing over"),
        (["dump"], "Missing argument 'PATH...'"),
    ],
)
def test_a_wrong_argument_gets_one_helpful_line(
    capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    ended = tierd(capsys, *words)
    assert ended.code == 2
    assert ended.out == ""
    assert line in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["status", "copy", "evict"])
def test_a_place_without_a_daemon(capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    ended = tierd(capsys, verb, "--data", tmp_path / "none")
    assert ended.code == 1
    assert "no tierd runs there" in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["status", "copy", "evict"])
def test_programs_get_an_error_object(capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    ended = tierd(capsys, verb, "--data", tmp_path / "data", "--json")
    told = json.loads(ended.out)
    assert (ended.code, told["exit"]) == (1, 1)
    assert told["error"].startswith("no tierd runs there")
    assert ended.err == f"tierd: {told['error']}\n"
    ended = tierd(capsys, verb, "--wrong", "--json")
    assert json.loads(ended.out)["exit"] == ended.code == 2


def test_an_operating_system_error_is_no_traceback(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ended = tierd(capsys, "status", "--state", tmp_path / ("too-long" * 100))
    assert ended.code == 1
    assert ended.err.startswith("tierd: ")


def test_a_reader_that_closes_its_pipe_is_no_traceback(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tierd", "config", "show", "--data", str(tmp_path), "--effective"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_it_is_a_module_too() -> None:
    done = subprocess.run([sys.executable, "-m", "tierd", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tierd {__version__}\n"
    assert run(["--version"]) == 0
