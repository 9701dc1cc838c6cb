"""`tierd keys`: what it asks, what it shows, and that a key is never overwritten or shown."""

import json
import stat
from pathlib import Path

import pytest

from kit.cli import answering, tierd
from tierd.config.encryption import Encryption
from tierd.remote import oaep
from tierd.remote.keyring import load_ring
from tierd.remote.manifest import Encryption as Named

ROWS = [
    {"id": "a", "active": True, "file": "/k/a.pem", "segments": 3, "bytes": 5 << 20},
    {"id": "bb", "active": False, "file": "/k/bb.pem", "segments": 0, "bytes": 0},
    {"id": "c", "active": False, "file": None, "segments": 1, "bytes": 10},
]


def test_keys_and_their_uses_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", {"result": ROWS, "exit": 0}) as asked:
        ended = tierd(capsys, "keys", "list", "--state", tmp_path / "s")
    assert asked == [{"do": "keys"}]
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "a   active      3 segments, 5.0 MiB  /k/a.pem",
        "bb  not needed  0 segments, 0 B  /k/bb.pem",
        "c   needed      1 segments, 10 B  no file",
    ]


def test_the_list_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", {"result": ROWS, "exit": 0}):
        ended = tierd(capsys, "keys", "list", "--state", tmp_path / "s", "--json")
    assert json.loads(ended.out) == {"keys": ROWS}


def test_rotate_asks_and_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    row = {"topic": "t", "partition": 0, "start": 0, "stop": 9, "segments": 2, "bytes": 3 << 20}
    facts = {"outcome": "done", "detail": "", "segments": 2, "bytes": 3 << 20, "left": [], "planned": []}
    with answering(tmp_path / "s", {"result": facts, "exit": 0}) as asked:
        ended = tierd(capsys, "keys", "rotate", "--state", tmp_path / "s")
    assert asked == [{"do": "rotate keys", "dry_run": False}]
    assert (ended.code, ended.out) == (0, "got another key: 2 segments, 3.0 MiB\n")
    with answering(tmp_path / "t", {"result": {**facts, "planned": [row]}, "exit": 0}) as asked:
        ended = tierd(capsys, "keys", "rotate", "--state", tmp_path / "t", "--dry-run")
    assert asked == [{"do": "rotate keys", "dry_run": True}]
    assert "t-0: offsets 0 to 8: 2 segments" in ended.out
    assert "would get another key: 2 segments" in ended.out
    failed = {**facts, "outcome": "failed", "detail": "1 segments stay"}
    with answering(tmp_path / "u", {"result": failed, "exit": 1}):
        ended = tierd(capsys, "keys", "rotate", "--state", tmp_path / "u", "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["detail"] == "1 segments stay"


def test_a_new_key_is_made_for_its_owner_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "key7.pem"
    ended = tierd(capsys, "keys", "add", file)
    assert (ended.code, ended.out) == (0, f"key key7: {file}\n")
    assert 'key.active = "key7"' in ended.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    pem = file.read_text()
    assert "PRIVATE KEY" in pem
    assert "PUBLIC KEY" in (tmp_path / "key7.pem.pub").read_text()
    assert not any(line in ended.out + ended.err for line in pem.splitlines())
    ring = load_ring([file], "key7")
    made = ring.new_secret()
    assert made is not None
    secret, named = made
    assert ring.open(named, "m") == secret
    assert isinstance(named, Named)
    assert len(named.data_key) > oaep.HASH_BYTES

    again = tierd(capsys, "keys", "add", file)
    assert again.code == 2
    assert "is there already" in again.err
    assert file.read_text() == pem


def test_a_new_key_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ended = tierd(capsys, "keys", "add", tmp_path / "k.pem", "--json")
    said = json.loads(ended.out)
    assert said == {"id": "k", "file": str(tmp_path / "k.pem"), "public": str(tmp_path / "k.pem.pub")}
    assert tierd(capsys, "keys", "add", tmp_path / "a:b.pem").code == 2
    assert tierd(capsys, "keys", "add", tmp_path / "nowhere" / "k.pem").code == 1
    assert Encryption().active is None
