"""A whole tierd with ten thousand peers that say nothing, with half a word, and beside readers that want everything."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch, request_frame
from kit.daemon import Daemon, running
from tierd.wire.api import ApiKey

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

MIB = 1024 * 1024
IDLE = 10_000
SPARE = 500
"""Descriptors of this process that are not for peers."""
BYTES_EACH = 24 * 1024
GREEDY, ASKED = 4, 100
STALL_S = 2.0
"""Even on a busy machine: 48 MiB are under way to each greedy reader, and nobody waits for all of them."""


def memory(daemon: Daemon) -> int:
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def cpu_s(daemon: Daemon) -> float:
    user, system = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def at(daemon: Daemon) -> tuple[str, int]:
    host, port = daemon.address.rsplit(":", 1)
    return host, int(port)


@pytest.fixture
def many_files() -> Iterator[int]:
    """How many peers there can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(IDLE, hard - SPARE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_idle_connections_cost_little_and_keep_nobody_out(tmp_path: Path, many_files: int) -> None:
    with (
        running(tmp_path / "data", None, f"--set=listener.max.connections={IDLE + SPARE}") as daemon,
        ExitStack() as stack,
    ):
        honest = stack.enter_context(Client(at(daemon)))
        assert honest.create("orders").error_code == 0
        before = memory(daemon)
        for number in range(many_files):
            peer = stack.enter_context(socket.create_connection(at(daemon)))
            if number % 4 == 0:
                peer.sendall(b"\0\0")  # half of a length
            if number % 100 == 0:
                assert honest.produce("orders", batch(1)).error_code == 0
        assert (memory(daemon) - before) / many_files < BYTES_EACH
        began = cpu_s(daemon)
        honest.send_fetch([("orders", 0, many_files, MIB)], max_wait=1000)
        assert not honest.fetched()[0].records
        assert cpu_s(daemon) - began < 0.5, "peers that say nothing are work"
        with Client(at(daemon)) as another:
            assert another.produce("orders", batch(1)).error_code == 0
        stack.close()
        assert daemon.stop() == 0


def everything() -> dict[str, Any]:
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 48 * MIB, "current_leader_epoch": -1}
    topics = [{"topic": "large", "partitions": [row]}]
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 48 * MIB, "isolation_level": 0}
    return {"replica_id": -1, "session_epoch": -1, "topics": topics, **limits}


class Greedy(threading.Thread):
    """Reads all of a topic again and again, as fast as it can."""

    def __init__(self, address: tuple[str, int], over: threading.Event) -> None:
        super().__init__()
        self._address = address
        self._over = over
        self.bytes = 0

    def run(self) -> None:
        asked = request_frame(ApiKey.FETCH, 12, 1, **everything())
        room = memoryview(bytearray(64 * MIB))
        with socket.create_connection(self._address) as sock:
            while not self._over.is_set():
                sock.sendall(asked)
                size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
                self.bytes += sock.recv_into(room, size, socket.MSG_WAITALL)


def test_greedy_readers_starve_nobody(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon, Client(at(daemon)) as honest:
        for topic in ("large", "small"):
            assert honest.create(topic, **{"max_message_bytes": str(2 * MIB)}).error_code == 0
        for _ in range(48):
            assert honest.produce("large", batch(1, size=MIB)).error_code == 0
        over = threading.Event()
        readers = [Greedy(at(daemon), over) for _ in range(GREEDY)]
        for reader in readers:
            reader.start()
        took = []
        try:
            for number in range(ASKED):
                begun = time.monotonic()
                assert honest.produce("small", batch(1)).error_code == 0
                assert honest.fetch("small", number).records
                took.append(time.monotonic() - begun)
        finally:
            over.set()
            for reader in readers:
                reader.join()
        took.sort()
        print(
            f"p50 {took[ASKED // 2]:.4f} s, p99 {took[-2]:.4f} s beside {sum(r.bytes for r in readers) / MIB:.0f} MiB"
        )
        assert took[-1] < STALL_S
        assert min(reader.bytes for reader in readers) > 48 * MIB, "each reader gets its share"
        assert daemon.stop() == 0
