"""A start with much to recover: it says how far it is, asks systemd for time, and can be stopped."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit import traffic
from kit.daemon import Daemon
from kit.logs import batch
from tierd.storage.batch import patch
from tierd.storage.names import Suffix, segment_file

pytestmark = pytest.mark.e2e

BATCHES = 1_500_000


@contextmanager
def ear(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        listening.settimeout(60)
        yield listening


def killed_with_much_to_read(tmp_path: Path) -> Daemon:
    """A daemon with one partition of BATCHES small batches, which nobody has flushed."""
    daemon = Daemon(tmp_path / "data", env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
    daemon.start()
    traffic.produce_confluent(daemon.address, "much", traffic.stream("much", 0, 1, 100))
    daemon.kill()
    raw, whole = batch(1, size=10), bytearray()
    for offset in range(BATCHES):
        patch(raw, 0, offset, 0)
        whole += raw
    (daemon.data / "much-0" / segment_file(0, Suffix.LOG)).write_bytes(whole)
    return daemon


def test_a_long_start_tells_and_can_be_stopped(tmp_path: Path) -> None:
    with ear(tmp_path / "notify") as heard:
        daemon = killed_with_much_to_read(tmp_path)
        while _more(heard):
            heard.recv(1000)
        with subprocess.Popen(daemon.command(), stderr=subprocess.PIPE, text=True, env=_env(daemon)) as process:
            try:
                status = heard.recv(1000).decode()
                assert re.fullmatch(
                    r"STATUS=opening logs: 0 of 1 done, 1 segments and \d+ MiB left to read again", status
                )
                assert heard.recv(1000) == b"EXTEND_TIMEOUT_USEC=90000000"
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=30)
            finally:
                process.kill()
        assert process.returncode == 0, said
        assert "the start was stopped while logs were opened" in said
        daemon.start()
        assert daemon.partition("much")["log_end"] == BATCHES
        assert daemon.stop() == 0


def _more(heard: socket.socket) -> bool:
    """Whether what the first run has said is still waiting to be heard."""
    heard.setblocking(False)
    try:
        heard.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    finally:
        heard.settimeout(60)
    return True


def _env(daemon: Daemon) -> dict[str, str]:
    return {**os.environ, **daemon.env}
