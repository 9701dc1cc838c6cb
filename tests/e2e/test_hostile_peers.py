"""A whole tierd among peers that announce much and send little: its memory stays bounded, others are served."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from broker.client import Client, batch
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
LIMIT, LARGEST = 128 * MIB, 64 * MIB
ANNOUNCED = 60 * MIB
PEERS = 400
LOOP_TAKES_S = 2.0
"""Far above what an answer takes, far below the ten seconds after which a peer that stands still is closed."""


def rss_bytes(daemon: Daemon, what: str = "VmRSS") -> int:
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(what)).split()[1])


@contextmanager
def announcing(address: tuple[str, int], count: int, size: int) -> Iterator[list[socket.socket]]:
    """Connections that each have announced a request of *size*."""
    with ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(socket.create_connection(address))
            peer.sendall(size.to_bytes(4, "big"))
            peer.setblocking(False)
            peers.append(peer)
        yield peers


def send_some(peers: list[socket.socket], size: int) -> int:
    """As much of *size* as each takes at once."""
    sent = 0
    for peer in peers:
        try:
            sent += peer.send(bytes(size))
        except BlockingIOError:
            continue
    return sent


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_memory_stays_bounded_and_others_are_served(tmp_path: Path) -> None:
    limits = [
        f"--set=listener.max.in.flight.bytes={LIMIT // MIB}MiB",
        f"--set=listener.max.frame.bytes={LARGEST // MIB}MiB",
    ]
    with running(tmp_path / "data", None, *limits) as daemon:
        host, port = daemon.address.rsplit(":", 1)
        at = (host, int(port))
        with Client(at) as honest:
            assert honest.create("orders").error_code == 0
            assert honest.produce("orders", batch()).error_code == 0
            before = rss_bytes(daemon)
            took = {}
            with announcing(at, PEERS, ANNOUNCED) as peers:
                sent = 0
                for _ in range(12):
                    sent += send_some(peers, MIB)
                    honest.produce("orders", batch())  # The loop has seen to the others as well.
                assert sent > LIMIT
                for size in (1_000, 50_000, 200_000, 1_000_000):
                    begun = time.monotonic()
                    with Client(at) as another:
                        assert another.produce("orders", batch(1, size=size)).error_code == 0
                    took[size] = time.monotonic() - begun
                grown = rss_bytes(daemon, "VmHWM") - before
        print({size: round(s, 3) for size, s in took.items()}, grown / MIB, sent / MIB)
        assert max(took.values()) < LOOP_TAKES_S
        assert grown < LIMIT + 16 * MIB
        assert daemon.stop() == 0
