"""`tierd users` while no daemon runs: passwords from files and stdin, what is kept, what is said."""

import io
import json
from pathlib import Path

import pytest

from kit.cli import answering, tierd
from tierd.broker.registry import Registry
from tierd.broker.sasl.scram import Mechanism, matches
from tierd.broker.sasl.users import credentials


def kept(state: Path) -> dict[str, bool]:
    """Each credential as text, and whether the password is `secret`."""
    registry = Registry.open(state / "registry.sqlite")
    try:
        found = credentials(registry)
        return {f"{user} {one.text}": matches(one, credential, "secret") for (user, one), credential in found.items()}
    finally:
        registry.close()


def test_the_first_user_is_made_before_the_first_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, file = tmp_path / "s", tmp_path / "password"
    file.write_text("secret\nand more\n")
    planned = tierd(capsys, "users", "add", "alice", "--password-file", file, "--state", state, "--dry-run")
    assert (planned.code, planned.out.splitlines()[0]) == (0, "would be added: alice SCRAM-SHA-256")
    assert not state.exists()
    ended = tierd(capsys, "users", "add", "alice", "--password-file", file, "--state", state)
    assert (ended.code, ended.out) == (0, "added: alice SCRAM-SHA-256\nadded: alice SCRAM-SHA-512\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("other\n"))
    more = ("--mechanism", "SCRAM-SHA-512", "--iterations", "8192", "--json")
    ended = tierd(capsys, "users", "add", "alice", "--state", state, *more)
    assert json.loads(ended.out)["done"] == "changed"
    assert kept(state) == {"alice SCRAM-SHA-256": True, "alice SCRAM-SHA-512": False}
    ended = tierd(capsys, "users", "list", "--state", state)
    assert ended.out == "alice  SCRAM-SHA-256  4096 iterations\nalice  SCRAM-SHA-512  8192 iterations\n"
    ended = tierd(capsys, "users", "list", "--state", state, "--json")
    assert json.loads(ended.out)[1] == {"user": "alice", "mechanism": "SCRAM-SHA-512", "iterations": 8192}


def test_passwords_are_taken_away(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state, file = tmp_path / "s", tmp_path / "password"
    file.write_text("secret")
    for name in ("alice", "bob"):
        tierd(capsys, "users", "add", name, "--password-file", file, "--state", state)
    assert tierd(capsys, "users", "remove", "alice", "--state", state, "--dry-run").code == 0
    ended = tierd(capsys, "users", "remove", "alice", "--state", state, "--mechanism", "SCRAM-SHA-256")
    assert (ended.code, ended.out) == (0, "removed: alice SCRAM-SHA-256\n")
    assert tierd(capsys, "users", "remove", "bob", "--state", state).code == 0
    assert kept(state) == {"alice SCRAM-SHA-512": True}
    ended = tierd(capsys, "users", "remove", "bob", "--state", state)
    assert (ended.code, ended.err) == (1, "there is no user bob\n")


@pytest.mark.parametrize("password", ["", "\n", None])
def test_a_password_there_must_be(capsys: pytest.CaptureFixture[str], tmp_path: Path, password: str | None) -> None:
    file = tmp_path / "password"
    if password is not None:
        file.write_text(password)
    ended = tierd(capsys, "users", "add", "alice", "--password-file", file, "--state", tmp_path / "s")
    assert ended.code == 2
    assert "password" in ended.err


def test_a_password_is_no_argument(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ended = tierd(capsys, "users", "add", "alice", "secret", "--state", tmp_path / "s")
    assert ended.code == 2
    assert tierd(capsys, "users", "add", " ", "--state", tmp_path / "s").code == 2
    assert tierd(capsys, "users", "list", "--state", tmp_path / "s").out == ""


def test_a_daemon_that_runs_is_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [["alice", int(Mechanism.SCRAM_SHA_512), 4096]]
    with answering(tmp_path / "s", {"result": rows, "exit": 0}) as asked:
        ended = tierd(capsys, "users", "list", "--state", tmp_path / "s")
    assert asked == [{"do": "users"}]
    assert ended.out == "alice  SCRAM-SHA-512  4096 iterations\n"
