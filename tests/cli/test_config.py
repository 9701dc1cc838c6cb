"""`tierd config check` and `show`."""

import json
import re
from pathlib import Path

import pytest

from kit.certificates import Authority
from kit.cli import tierd

FILE = """
data = "d"
[remote]
url = "s3://bucket/x/"
s3.secret.access.key = "hush"
[defaults]
segment.bytes = "64MiB"
[topics."a.b"]
retention.ms = "7d"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tierd.toml"
    path.write_text(FILE)
    return path


def test_check_says_yes(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert tierd(capsys, "config", "check", "-c", file).out == "the settings are right\n"
    assert json.loads(tierd(capsys, "config", "check", "-c", file, "--json").out) == {"problems": [], "cautions": []}
    strange = tierd(capsys, "config", "check", "-c", file, "--set", "remote.url=s3://b/x")
    assert (strange.code, strange.out) == (0, "the settings are right\n")
    assert 'caution: remote.url = "s3://b/x"' in strange.err


def test_listeners_are_shown_without_their_secrets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "tierd.toml"
    said = 'security.protocol = "SASL_PLAINTEXT"\nssl.key.password = "hush"'
    file.write_text(f'data = "d"\n[listener]\n{said}\n[listeners.OTHER]\naddress = "127.0.0.1:9093"\n{said}')
    shown = tierd(capsys, "config", "show", "-c", file).out
    assert "listener.ssl.key.password" in shown
    assert re.search(r"listeners\.OTHER\.security\.protocol += SASL_PLAINTEXT", shown)
    assert json.loads(tierd(capsys, "config", "show", "-c", file, "--json").out)["listeners.OTHER.ssl.key.password"]
    for more in ((), ("--json",), ("--effective",)):
        assert "hush" not in tierd(capsys, "config", "show", "-c", file, *more).out


def test_check_looks_into_the_files_of_listeners(
    capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "tls")
    signed, other = authority.sign("server"), authority.sign("other")
    tls = [
        "--set",
        "listener.security.protocol=SSL",
        "--set",
        f"listener.ssl.certificate.location={signed.certificate}",
    ]
    good = tierd(capsys, "config", "check", "-c", file, *tls, "--set", f"listener.ssl.key.location={signed.key}")
    assert (good.code, good.out) == (0, "the settings are right\n")
    bad = tierd(capsys, "config", "check", "-c", file, *tls, "--set", f"listener.ssl.key.location={other.key}")
    assert bad.code == 2
    assert "listener: no TLS: " in bad.err
    assert "the key is not that of the first certificate" in bad.err
    keys = (
        "--set",
        "listener.security.protocol=SASL_PLAINTEXT",
        "--set",
        f"listener.sasl.oauthbearer.jwks.location={file}",
    )
    bad = tierd(capsys, "config", "check", "-c", file, *keys, "--set", "listener.sasl.enabled.mechanisms=OAUTHBEARER")
    assert "not a JSON Web Key Set" in bad.err


def test_check_says_all_that_is_wrong(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    words = ("config", "check", "-c", file, "--set", "num.partitions=0", "--set", "x=1")
    ended = tierd(capsys, *words)
    assert ended.code == 2
    assert ended.err.count("\n") == 2
    ended = tierd(capsys, *words, "--json")
    assert ended.code == 2
    assert [one["path"] for one in json.loads(ended.out)["problems"]] == ["x", "num.partitions"]


def test_show_has_what_was_set_and_never_a_secret(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    ended = tierd(capsys, "config", "show", "-c", file, "--set", "segment.ms=1d")
    assert "hush" not in ended.out
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["remote.s3.secret.access.key", "=", "(secret)"] in lines
    assert ["defaults.segment.bytes", "=", "64MiB", "#", "file", "[defaults]"] in lines
    assert ["defaults.segment.ms", "=", "1d", "#", "--set"] in lines
    assert ['topics."a.b".retention.ms', "=", "7d", "#", "file", "[topics]"] in lines
    assert "num.partitions" not in ended.out


def test_show_effective_has_everything_and_reads_back(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    shown = json.loads(tierd(capsys, "config", "show", "-c", file, "--effective", "--json").out)
    assert shown["num.partitions"] == 1
    assert shown["remote.request.timeout.ms"] == 30_000
    assert shown["defaults.retention.ms"] == -1
    assert shown["defaults.flush.ms"] is None
    assert shown["defaults.segment.bytes"] == 64 << 20
    assert shown["defaults.remote.storage.enable"] is True
    assert shown["defaults.cleanup.policy"] == "delete"
    assert shown["remote.s3.profile"] is None
    sets = [
        word
        for path, value in shown.items()
        if value not in (None, "(secret)") and path != "data"
        for word in ("--set", f"{path}={value}")
    ]
    assert tierd(capsys, "config", "check", "--data", "d", *sets).code == 0


def test_show_one_topic(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    shown = json.loads(tierd(capsys, "config", "show", "-c", file, "--topic", "a.b", "--json").out)
    assert shown['topics."a.b".retention.ms'] == 7 * 86_400_000
    assert shown['topics."a.b".segment.bytes'] == 64 << 20


@pytest.mark.parametrize("name", ["", "..", "a b", "a/b", "x" * 250])
def test_what_is_no_topic_name_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    path = tmp_path / "tierd.toml"
    path.write_text(f'data = "d"\n[topics."{name}"]\nretention.ms = "7d"\n')
    ended = tierd(capsys, "config", "check", "-c", path)
    assert ended.code == 2
    assert "Topic name is invalid" in ended.err
    ended = tierd(capsys, "config", "check", "--data", "d", "--set", f"topics.{name}.retention.ms=7d")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
