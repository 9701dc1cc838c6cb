"""What systemd hears."""

import os
import socket
from pathlib import Path

import pytest

from tierd.web.notify import Notifier


def test_each_event_is_one_datagram(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(60)
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        notifier.ready("listening")
        notifier.watchdog()
        notifier.status("busy")
        notifier.extend_timeout(1500)
        notifier.stopping("bye")
        heard = [ear.recv(1000) for _ in range(5)]
        notifier.close()
    assert heard == [
        b"READY=1\nSTATUS=listening",
        b"WATCHDOG=1",
        b"STATUS=busy",
        b"EXTEND_TIMEOUT_USEC=1500000",
        b"STOPPING=1\nSTATUS=bye",
    ]


def test_an_abstract_socket_is_understood() -> None:
    name = f"tierd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("\0" + name)
        ear.settimeout(60)
        notifier = Notifier({"NOTIFY_SOCKET": "@" + name})
        notifier.watchdog()
        assert ear.recv(100) == b"WATCHDOG=1"
        notifier.close()


def test_nobody_listening_changes_nothing(tmp_path: Path) -> None:
    silent = Notifier({})
    silent.ready("x")
    silent.close()
    gone = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    gone.ready("x")
    gone.close()
    gone.ready("after close")


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_it_bites(environment: dict[str, str], interval_s: float | None) -> None:
    assert Notifier(environment).watchdog_interval_s == interval_s
