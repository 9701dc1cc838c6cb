"""Many connections with small requests: a client that costs little, and the bare event loop beside which it measures.

`python -m bench.crowd ask ADDRESS KIND TOPIC CONNECTIONS SECONDS [CA]` keeps one request in flight on each connection
and prints JSON: answers, seconds, and percentiles of the time from a request to its whole answer. KIND: produce or
fetch, of one batch of 1 KiB; or bare-..., the same bytes for the loop.
`python -m bench.crowd serve FILE [CERTIFICATE KEY]` prints its port: one asyncio loop that appends what a produce
brings to FILE and answers with the bytes that a broker would send, without looking at anything.
"""

import asyncio
import json
import os
import resource
import select
import socket
import ssl
import struct
import sys
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import rawclient

RECORD_BYTES: Final = 1024
PERCENTILES: Final = (50.0, 99.0, 99.9)
_ANSWER: Final = {"produce": 62, "fetch": 1180}
"""Bytes of an answer of a broker to such a request, length word included; the loop's are as long."""
_EVENTS: Final = 512
_READ: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Taken:
    """One run of the client. Milliseconds by percentile."""

    answers: int
    wall_s: float
    ms: dict[str, float]

    @property
    def per_s(self) -> float:
        return self.answers / self.wall_s


def request(kind: str, topic: str, batch: bytes) -> bytes:
    if kind.endswith("produce"):
        return rawclient.produce_frame(topic, batch)
    return rawclient.fetch_frame(topic, 0, RECORD_BYTES, 0)


def ask(address: str, kind: str, topic: str, batch: bytes, count: int, seconds: float, ca: str | None) -> Taken:
    """Raises RuntimeError for an answer that says an error."""
    raw = request(kind, topic, batch)
    error_at = None if kind.startswith("bare") else _error_at(kind, topic)
    context = ssl.create_default_context(cafile=ca) if ca else None
    socks = [_connect(address, context) for _ in range(count)]
    poll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in socks}
    begun = dict.fromkeys(by_fd, 0.0)
    parts: dict[int, bytearray] = {}
    took = array("d")
    for fd, sock in by_fd.items():
        poll.register(fd, select.EPOLLIN)
        begun[fd] = time.perf_counter()
        sock.sendall(raw)
    start = time.perf_counter()
    end = start + seconds
    now = start
    while now < end:
        for fd, _ in poll.poll(1.0, _EVENTS):
            answer = _more(by_fd[fd], parts, fd)
            if answer is None:
                continue
            if error_at is not None and answer[error_at : error_at + 2] != b"\0\0":
                raise RuntimeError(f"{kind} answered with error {struct.unpack_from('>h', answer, error_at)[0]}")
            now = time.perf_counter()
            took.append(now - begun[fd])
            begun[fd] = now
            by_fd[fd].sendall(raw)
        now = time.perf_counter()
    wall_s = now - start
    poll.close()
    for sock in socks:
        sock.close()
    ordered = sorted(took)
    at = {f"{p:g}": 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] for p in PERCENTILES}
    return Taken(len(took), wall_s, at)


def _error_at(kind: str, topic: str) -> int:
    head = 4 + 4 + 1  # length, correlation id, tagged fields
    named = 1 + len(rawclient.compact(topic)) + 1
    return head + named + 4 if kind == "produce" else head + 4 + 2 + 4 + named + 4


def _connect(address: str, context: ssl.SSLContext | None) -> socket.socket:
    sock = rawclient.connect(address)
    return sock if context is None else context.wrap_socket(sock, server_hostname=address.rpartition(":")[0])


def _more(sock: socket.socket, parts: dict[int, bytearray], fd: int) -> bytes | bytearray | None:
    """The whole answer, or None while there is more to come. One is in flight: nothing follows it."""
    data: bytes | bytearray = sock.recv(_READ)
    if not data:
        raise ConnectionError("closed by the broker")
    if fd in parts:
        parts[fd] += data
        data = parts[fd]
    if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        parts[fd] = bytearray(data)
        return None
    parts.pop(fd, None)
    return data


class _Peer(asyncio.Protocol):
    """One connection of the bare loop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        size = 4 + int.from_bytes(self._held[:4], "big")
        if len(self._held) >= size:
            produced = self._held[4:6] == b"\0\0"
            if produced:
                os.write(self._fd, self._held)
            self._held.clear()
            self._transport.write(_SAID["produce" if produced else "fetch"])


_SAID: Final = {kind: (size - 4).to_bytes(4, "big") + bytes(size - 4) for kind, size in _ANSWER.items()}


async def serve(path: Path, *pem: str) -> None:
    """*pem*: files of a certificate and its key, for TLS."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if pem else None
    if shown is not None:
        shown.load_cert_chain(*pem)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Peer(fd), "127.0.0.1", 0, backlog=4096, ssl=shown)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main(words: list[str]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if words[0] == "serve":
        asyncio.run(serve(Path(words[1]), *words[2:]))
        return
    address, kind, topic, count, seconds, *ca = words[1:]
    batch = sys.stdin.buffer.read()
    taken = ask(address, kind, topic, batch, int(count), float(seconds), ca[0] if ca else None)
    print(json.dumps({"answers": taken.answers, "wall_s": taken.wall_s, "ms": taken.ms}))


if __name__ == "__main__":
    main(sys.argv[1:])
