"""Ports for servers that cannot choose theirs, or must find it again: below those that the kernel hands out.

Each process has a block of its own, whoever else runs tests on this machine: it holds the block's first port.
"""

import atexit
import functools
import itertools
import socket
from collections.abc import Iterator
from random import SystemRandom

FIRST, LAST, EACH = 12_000, 22_000, 200


def free_ports(count: int, *, twin: int = 0) -> list[int]:
    """*twin*: the port so far above each must be free, too. A port comes again only after all others of the block."""
    found: list[int] = []
    for port in itertools.islice(_own(), EACH):
        if _is_free(port) and _is_free(port + twin):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} free ports")


@functools.cache
def _own() -> Iterator[int]:
    """The ports of this process, round and round."""
    for first in SystemRandom().sample(range(FIRST, LAST, EACH), (LAST - FIRST) // EACH):
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", first))
        except OSError:
            held.close()
        else:
            atexit.register(held.close)
            return itertools.cycle(range(first + 1, first + EACH))
    raise AssertionError("each block of ports has its process")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
