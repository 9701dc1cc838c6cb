"""The unit under a real systemd: what it is told, and what it does about a daemon that hangs or must not start."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import systemd, tiers, traffic
from kit.ports import free_ports
from kit.systemd import Systemd

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "tierd.service"
NAME = "tierd.service"
MESSAGES = 200

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(systemd.missing() is not None, reason=f"a systemd of our own {systemd.missing()}"),
]


@pytest.fixture(scope="module")
def host() -> Iterator[Systemd]:
    """A host with the unit, its user and its settings; the program comes from this checkout, not from /usr/bin."""
    with systemd.running() as host:
        host.call("useradd", "--system", "--user-group", "--no-create-home", "tierd")
        at = host.root / systemd.UNITS[1:]
        (at / NAME).write_text(UNIT.read_text().replace("/usr/bin/tierd", f"{sys.executable} -m tierd"))
        (at / f"{NAME}.d").mkdir()
        (at / f"{NAME}.d/here.conf").write_text(
            f"[Service]\n{systemd.seen_by_services()}\nWatchdogSec=10\n"
            "StandardOutput=append:/run/tierd.out\nStandardError=append:/run/tierd.err\n"
        )
        host.call("systemctl", "daemon-reload")
        yield host


def write_settings(host: Systemd, port: int | str) -> str:
    """The daemon's address by them."""
    (host.root / "etc/tierd").mkdir(exist_ok=True)
    settings = host.root / "etc/tierd/tierd.toml"
    settings.write_text(
        'data = "/var/lib/tierd/data"\n[remote]\nurl = "file:/var/lib/tierd/bucket"\n'
        f'[listener]\naddress = "127.0.0.1:{port}"\n'
    )
    settings.chmod(0o644)
    return f"127.0.0.1:{port}"


@pytest.fixture
def address(host: Systemd) -> Iterator[str]:
    """Of the service, started: `systemctl start` comes back when READY=1 was sent, and not before."""
    address = write_settings(host, free_ports(1)[0])
    host.call("systemctl", "reset-failed", NAME, expect=None)
    host.call("systemctl", "start", NAME)
    yield address
    host.call("systemctl", "stop", NAME)


def test_it_is_ready_when_it_answers_and_says_what_it_does(host: Systemd, address: str) -> None:
    assert host.said(NAME, "ActiveState") == "active"
    assert "claim held" in host.said(NAME, "StatusText")
    sent = list(traffic.stream("kept", 0, MESSAGES, 100))
    traffic.produce_confluent(address, "kept", sent)
    host.call("systemctl", "restart", NAME)
    assert traffic.consume_confluent(address, "kept", 0, MESSAGES) == sent


def test_a_stop_is_clean(host: Systemd, address: str) -> None:
    host.call("systemctl", "stop", NAME)
    assert (host.said(NAME, "Result"), host.said(NAME, "ExecMainStatus")) == ("success", "0")
    assert (host.root / "var/lib/tierd/data/.kafka_cleanshutdown").exists()


def test_a_daemon_that_hangs_is_started_again(host: Systemd, address: str) -> None:
    hung = host.said(NAME, "MainPID")
    host.call("kill", "-STOP", hung)
    tiers.until("the watchdog bites", lambda: host.said(NAME, "NRestarts") == "1")
    tiers.until("it runs again", lambda: host.said(NAME, "ActiveState") == "active")
    assert host.said(NAME, "MainPID") != hung


def test_wrong_settings_wait_for_a_person(host: Systemd) -> None:
    write_settings(host, '0"\nno_such_setting = "1')
    host.call("systemctl", "start", NAME, expect=1)
    assert (host.said(NAME, "ActiveState"), host.said(NAME, "ExecMainStatus")) == ("failed", "2")
    assert host.said(NAME, "NRestarts") == "0"
