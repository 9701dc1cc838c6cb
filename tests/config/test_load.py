"""From command line and tierd.toml to Settings: what wins, what is refused, and how."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from tierd.config.listeners import Listener
from tierd.config.load import Options, SettingsError, load
from tierd.config.model import Settings, daemon_settings
from tierd.config.places import HostPort, absolute_bucket
from tierd.config.topic import MIB

FILE = """
data = "logs"
state = "/var/lib/tierd"
num.partitions = 3
"auto.create.topics.enable" = false
tierd.disk.reserve.bytes = "1GiB"

[listener]
address = "127.0.0.1:9092"
max.connections = 50

[remote]
url = "file:archive"

[remote.s3]
endpoint = "http://127.0.0.1:8333"
secret.access.key = "hush"

[defaults]
segment.bytes = "64MiB"
"local.retention.ms" = "12h"
retention.bytes = -1
cleanup.policy = ["delete"]

[topics."orders.eu"]
retention.ms = "7d"
local.retention.ms = 3600000
"""


def from_file(tmp_path: Path, text: str, **more: object) -> Settings:
    path = tmp_path / "etc" / "tierd.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return load(Options(config=path, **more), base=tmp_path)  # type: ignore[arg-type]


def problems(tmp_path: Path, text: str = 'data = "d"', **more: object) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        from_file(tmp_path, text, **more)
    return [str(problem) for problem in refused.value.problems]


def test_a_whole_file(tmp_path: Path) -> None:
    settings = from_file(tmp_path, FILE)
    assert settings.data_dirs == (tmp_path / "etc" / "logs",)
    assert settings.state_dir == Path("/var/lib/tierd")
    assert settings.num_partitions == 3
    assert settings.auto_create_topics is False
    assert settings.disk_reserve_bytes == 1024 * MIB
    assert settings.listener.port == 9092
    assert settings.listener.max_connections == 50
    assert settings.remote.url == f"file:{tmp_path}/etc/archive"
    assert settings.remote.s3.secret_access_key is not None
    assert settings.remote.s3.secret_access_key.get_secret_value() == "hush"
    assert "hush" not in repr(settings)
    assert settings.defaults == {
        "segment.bytes": str(64 * MIB),
        "local.retention.ms": "43200000",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
    }
    assert settings.topics == {"orders.eu": {"retention.ms": "604800000", "local.retention.ms": "3600000"}}
    assert settings.topic_defaults.resolve("orders.eu").local_retention_ms == 3_600_000


def test_the_command_line_wins(tmp_path: Path) -> None:
    settings = from_file(
        tmp_path,
        FILE,
        data=(Path("other"),),
        listen="127.0.0.1:0",
        advertise="localhost:0",
        remote="s3://bucket/prefix/",
        sets=("num.partitions=9", "segment.bytes=1MiB", "listener.address=127.0.0.1:1", "remote.s3.region=eu-1"),
    )
    assert settings.data_dirs == (tmp_path / "other",)
    assert settings.listener.address == HostPort("127.0.0.1", 0)
    assert str(settings.listener.advertise(4711)) == "localhost:4711"
    assert settings.remote.url == "s3://bucket/prefix/"
    assert settings.remote.s3.region == "eu-1"
    assert settings.num_partitions == 9
    assert settings.set_overrides == {"segment.bytes": str(MIB)}


def test_set_reaches_topics_and_defaults(tmp_path: Path) -> None:
    settings = load(
        Options(
            data=(Path("d"),),
            sets=('topics."a.b".retention.ms=1d', "topics.c.segment.bytes=2MiB", "defaults.flush.ms=1s"),
        ),
        base=tmp_path,
    )
    assert settings.topics == {"a.b": {"retention.ms": "86400000"}, "c": {"segment.bytes": str(2 * MIB)}}
    assert settings.set_overrides == {"flush.ms": "1000"}


def test_the_state_lies_beside_the_real_data(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    settings = load(Options(data=(Path("link"),)), base=tmp_path)
    assert settings.data_dirs == (tmp_path / "link",)
    assert settings.state_dir == Path(f"{(tmp_path / 'real').resolve()}.tierd")
    assert settings.control_socket.name == "control.sock"


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = """
data = 7
num.partitions = 0
num.partition = 1
segment.bytes = 5
remote.url = "ftp://x"
[listener]
max.frame.bytes = "1MB"
address = "0.0.0.0:9092"
[defaults]
retention.ms = -7
bogus.key = 1
[topics.a.b]
retention.ms = 1
"""
    found = problems(tmp_path, text, sets=("nonsense", "preallocate=maybe", "remote.s3.secret.access.key=x"))
    assert found == [
        "num.partition = 1: unknown setting; did you mean num.partitions?",
        'segment.bytes = 5: is a topic setting: put it under [defaults] or [topics."NAME"]',
        "defaults.retention.ms = -7: Value must be at least -1 (duration such as 7d, -1 or more; -1 = none)",
        "defaults.bogus.key = 1: unknown setting",
        'topics."a".b.retention.ms = 1: unknown setting; did you mean retention.ms?; '
        "a topic name with dots needs quotes",
        "--set nonsense: write KEY=VALUE",
        'preallocate = "maybe": Expected value to be either true or false (true or false)',
        "remote.s3.secret.access.key: a secret on a command line can be read by everyone here: "
        "put it in tierd.toml or the environment",
        "data = [7]: not a path (path, or list of paths)",
        "num.partitions = 0: Value must be at least 1 (whole number, 1 to 10000)",
        'listener.max.frame.bytes = "1MB": write MiB: sizes are binary (size such as 64MiB, 16KiB to 1GiB)',
        'remote.url = "ftp://x": not a bucket\'s URL (s3://BUCKET/PREFIX or file:DIR)',
    ]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"listen": "0.0.0.0:9092"}, "listener.allow.anonymous=true"),
        ({"listen": "example.org:9092"}, "listener.allow.anonymous=true"),
        ({"listen": "0.0.0.0:9092", "sets": ("listener.allow.anonymous=true",)}, "say --advertise HOST:PORT"),
        ({"listen": "nothing"}, "not HOST:PORT"),
        ({"listen": "::1:9092"}, "in brackets"),
        ({"data": (Path("a"), Path("b"))}, "several data directories"),
        ({"data": (Path("/proc"),)}, "is a mount point"),
        ({"state": Path("d/inside"), "data": (Path("d"),)}, "must not lie in the data directory"),
        ({"state": Path("s"), "data": (Path("d"), Path("d/sub"))}, "must not lie in the data directory"),
        ({"state": Path(__file__)}, "is not a directory"),
        ({"state": Path(__file__) / "below"}, "is not a directory"),
        ({"state": Path("s"), "data": (Path(__file__),)}, "is not a directory"),
        ({"sets": ("http.address=0.0.0.0:0",)}, "listener.allow.anonymous=true"),
        ({"sets": ("local.retention.ms=2d", "retention.ms=1d")}, "Value must not be more than retention.ms"),
        ({"sets": ("listener.max.in.flight.bytes=1MiB",)}, "must hold listener.max.frame.bytes"),
    ],
)
def test_contradictions(tmp_path: Path, more: dict[str, object], reason: str) -> None:
    assert reason in "\n".join(problems(tmp_path, **more))


def test_anonymous_listening_is_possible_when_said(tmp_path: Path) -> None:
    settings = from_file(
        tmp_path,
        'data = "d"',
        listen="0.0.0.0:9092",
        advertise="broker.example.org:9092",
        sets=("listener.allow.anonymous=true",),
    )
    assert settings.listener.allow_anonymous


def test_data_must_be_said_but_a_state_directory_is_enough_for_other_verbs(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="say where the logs lie"):
        load(Options(), base=tmp_path)
    assert load(Options(state=Path("s")), base=tmp_path).state_dir == tmp_path / "s"


@pytest.mark.parametrize("text", ["data = ", "\x00", 'data = "d"\ndata = "e"'])
def test_a_file_that_is_not_toml(tmp_path: Path, text: str) -> None:
    assert "is not TOML" in problems(tmp_path, text)[0]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        load(Options(config=Path("none.toml"), data=(Path("d"),)), base=tmp_path)


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("file:here", "file:/base/here"),
        ("file:./a/../here", "file:/base/here"),
        ("file:/abs/there", "file:/abs/there"),
        ("file:///abs/with%20space", "file:/abs/with space"),
        ("file:a%20b#c?d", "file:/base/a%20b#c?d"),
        ("s3://bucket/p/", "s3://bucket/p/"),
    ],
)
def test_a_directory_as_bucket_is_stored_absolute(url: str, stored: str) -> None:
    assert absolute_bucket(url, Path("/base")) == stored


def test_settings_are_frozen_checked_and_easy_to_make() -> None:
    settings = Settings(data_dirs=(Path("/d"),), state_dir=Path("/s"), listener=Listener(address=HostPort("::1", 0)))
    assert str(settings.listener.advertise(9)) == "[::1]:9"
    with pytest.raises(ValidationError):
        settings.node_id = 7
    with pytest.raises(ValidationError):
        Settings(data_dirs=(Path("/d"),), state_dir=Path("/s"), num_partitions=0)


def test_every_setting_has_its_own_path_and_a_default_that_is_allowed() -> None:
    paths = [where.setting.path for where in daemon_settings()]
    assert len(set(paths)) == len(paths) > 30
    for where in daemon_settings():
        assert where.setting.doc.endswith("."), where
        if not where.required and where.default is not None:
            assert where.setting.kind.read(where.default) == where.default


@pytest.mark.parametrize(
    "url", ["file:", "file://", "file://elsewhere/bucket", "file:data", "file:data/inner", "file:."]
)
def test_a_directory_that_cannot_be_the_bucket_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(Options(data=(Path("data"),), remote=url), base=tmp_path)
    assert caught.value.problems[0].path == "remote.url"
