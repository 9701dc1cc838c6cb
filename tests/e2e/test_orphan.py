"""A tierer whose broker is gone still holds its lock: the next start waits for it, and then goes on."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit import tiers
from kit.daemon import Daemon, running
from tierd.config.state_files import TIERER_LOCK

pytestmark = pytest.mark.e2e


def test_a_start_waits_for_an_orphan_tierer(tmp_path: Path) -> None:
    with (
        running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", "--set", "segment.bytes=1MiB") as tierd,
        ThreadPoolExecutor(1) as beside,
    ):
        sent = tiers.fill(tierd, "t", 2)
        lock = tiers.state_of(tierd) / TIERER_LOCK
        (orphan,) = tierd.tierer_pids()
        os.kill(orphan, signal.SIGSTOP)
        try:
            tierd.kill()
            starting = beside.submit(tierd.start)
            tiers.until("the next tierer is at the lock", lambda: not starting.done() and _opened(tierd, lock))
            assert not starting.done()
        finally:
            os.kill(orphan, signal.SIGCONT)
        starting.result(60)
        assert orphan not in tierd.tierer_pids()
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        tiers.read_back(tierd, "t", sent)
        assert tierd.stop() == 0


def _opened(daemon: Daemon, path: Path) -> bool:
    """Whether a tierer of *daemon* has *path* open."""
    try:
        folders = [Path(f"/proc/{pid}/fd") for pid in daemon.tierer_pids()]
        return any(os.readlink(link) == str(path) for folder in folders for link in folder.iterdir())
    except FileNotFoundError:  # a process or descriptor that was just closed
        return False
