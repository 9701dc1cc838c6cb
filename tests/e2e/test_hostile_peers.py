"""A whole tierd among peers that announce much and send little: its memory stays bounded, others are served."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch, request_frame
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
LIMIT, LARGEST = 128 * MIB, 64 * MIB
ANNOUNCED = 60 * MIB
PEERS = 400
LOOP_TAKES_S = 8.0
"""Below the ten seconds after which a peer that stands still is closed: who waits for that waits longer."""


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


ROWS = 90_000
STALL_S = 1.5
"""Or half of what the request itself takes: without turns and threads others wait for all of it, ten seconds for some
of these; a busy machine alone gives a tenth."""


def partitions_named(numbers: Iterable[int]) -> dict[str, Any]:
    row = {"fetch_offset": 0, "partition_max_bytes": MIB, "current_leader_epoch": -1}
    topic = {"topic": "orders", "partitions": [{"partition": number, **row} for number in numbers]}
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 64 * MIB, "isolation_level": 0}
    return {"replica_id": -1, "session_epoch": -1, "topics": [topic], **limits}


def offsets_of(numbers: Iterable[int]) -> dict[str, Any]:
    rows = [{"partition_index": number, "timestamp": -1, "current_leader_epoch": -1} for number in numbers]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "orders", "partitions": rows}]}


def topics_named(names: Iterable[str]) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}


def offsets_committed(numbers: Iterable[int]) -> dict[str, Any]:
    row = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [{"partition_index": number, **row} for number in numbers]}]
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}


GREEDY = {
    "one partition fetched again and again": (1, 12, partitions_named([0] * ROWS)),
    "very many partitions fetched": (1, 12, partitions_named(range(ROWS))),
    "offsets of one partition again and again": (2, 8, offsets_of([0] * ROWS)),
    "offsets of many partitions": (2, 8, offsets_of(range(20_000))),
    "offsets committed for one partition again and again": (8, 8, offsets_committed([0] * ROWS)),
    "offsets committed for many partitions": (8, 8, offsets_committed(range(ROWS))),
    "one topic described again and again": (3, 12, topics_named(["orders"] * ROWS)),
    "many topics described": (3, 12, topics_named(f"t{number}" for number in range(20_000))),
}


class Other(threading.Thread):
    """Another client, which asks something small over and over and remembers the longest answer."""

    def __init__(self, at: tuple[str, int]) -> None:
        super().__init__()
        self._at = at
        self.over = threading.Event()
        self.longest_s = 0.0

    def run(self) -> None:
        with Client(self._at) as client:
            while not self.over.is_set():
                begun = time.monotonic()
                client.list_offsets("orders", -1)
                self.longest_s = max(self.longest_s, time.monotonic() - begun)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, tuple[str, int]]]:
    with running(tmp_path_factory.mktemp("served") / "data") as daemon:
        host, port = daemon.address.rsplit(":", 1)
        with Client((host, int(port))) as client:
            client.create("orders")
            client.produce("orders", batch())
        yield daemon, (host, int(port))
        assert daemon.stop() == 0


@pytest.mark.parametrize("name", list(GREEDY))
def test_a_request_that_names_very_much_does_not_hold_up_others(
    served: tuple[Daemon, tuple[str, int]], name: str
) -> None:
    daemon, at = served
    key, version, fields = GREEDY[name]
    raw = request_frame(key, version, 1, **fields)
    before = rss_bytes(daemon)
    other = Other(at)
    with Client(at) as greedy:
        other.start()
        try:
            begun = time.monotonic()
            greedy.send_raw(raw)
            assert greedy.frame()
            took_s = time.monotonic() - begun
        finally:
            other.over.set()
            other.join()
    assert other.longest_s < max(STALL_S, took_s / 2)
    assert rss_bytes(daemon) - before < 128 * MIB


FEW_FILES = 160
LIMITED = (
    "-c",
    "import resource\n"
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES}, {FEW_FILES}))\n"
    "from tierd.__main__ import main\n"
    "main()",
)


def cpu_s(daemon: Daemon) -> float:
    user, system = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.usefixtures("many_files")
def test_connections_leave_descriptors_for_files(tmp_path: Path) -> None:
    """With few open files allowed, more connections than that: they are turned away, and logs still find theirs."""
    daemon = Daemon(tmp_path / "data", program=LIMITED, extra=["--set=segment.bytes=1MiB"])
    try:
        host, port = daemon.start().address.rsplit(":", 1)
        at = (host, int(port))
        with Client(at) as honest, ExitStack() as stack:
            assert honest.create("orders", 20).error_code == 0
            for _ in range(3 * FEW_FILES):
                stack.enter_context(socket.create_connection(at))
            for partition in range(20):
                for _ in range(3):
                    assert honest.produce("orders", batch(1, size=700_000), partition).error_code == 0
            assert len(os.listdir(f"/proc/{daemon.pid}/fd")) < FEW_FILES
            before = cpu_s(daemon)
            honest.send_fetch([("orders", 0, 3, MIB)], max_wait=2000)
            assert not honest.fetched()[0].records
            assert cpu_s(daemon) - before < 1.0, "it spins"
        assert daemon.stop() == 0
    finally:
        daemon.kill()
