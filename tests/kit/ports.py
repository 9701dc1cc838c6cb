"""Ports for servers that cannot choose theirs: below those that the kernel hands out, each test process has its own."""

import os
import socket
from random import SystemRandom

FIRST, EACH, PROCESSES = 12_000, 1_000, 10


def free_ports(count: int, *, twin: int = 0) -> list[int]:
    """*twin*: the port so far above each must be free, too."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    first = FIRST + worker * EACH
    found: list[int] = []
    for port in SystemRandom().sample(range(first, first + EACH), EACH):
        if _is_free(port) and _is_free(port + twin):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} free ports from {first} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
