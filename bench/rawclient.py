"""A Kafka client that costs next to nothing: prebuilt Produce v9 frames, Fetch v12 answers received into one buffer.

It exists so that the server is the limit. One connection, one topic, partition 0; the frames are hand-laid from the
protocol's public message layouts and work on any broker.
"""

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import repeat

from tierd.storage.batch import HEADER_BYTES, parse_header

PRODUCE, FETCH = 0, 1
_IN_FLIGHT = 5
_EMPTY_ANSWERS = 60
"""So many in a row (each takes 500 ms) are no longer a bucket that is slow."""


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(text: str) -> bytes:
    return uvarint(len(text) + 1) + text.encode()


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Length word, request header v2 (correlation id 7, client id "bench"), body."""
    header = struct.pack(">hhih", api_key, version, 7, 5) + b"bench" + b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_frame(topic: str, batch: bytes) -> bytes:
    partition = struct.pack(">i", 0) + uvarint(len(batch) + 1) + batch + b"\0"
    topics = uvarint(2) + compact(topic) + uvarint(2) + partition + b"\0"
    return frame(PRODUCE, 9, b"\0" + struct.pack(">hi", -1, 30_000) + topics + b"\0")


def fetch_frame(topic: str, offset: int, max_bytes: int, wait_ms: int) -> bytes:
    partition = struct.pack(">iiqiqi", 0, -1, offset, -1, -1, max_bytes) + b"\0"
    topics = uvarint(2) + compact(topic) + uvarint(2) + partition + b"\0"
    body = struct.pack(">iiiibii", -1, wait_ms, 1, max_bytes, 0, 0, -1) + topics + uvarint(1) + compact("") + b"\0"
    return frame(FETCH, 12, body)


def _receive(sock: socket.socket, into: memoryview) -> None:
    while into:
        n = sock.recv_into(into)
        if n == 0:
            raise ConnectionError("closed by the broker")
        into = into[n:]


def produce(address: str, topic: str, batch: bytes, total_bytes: int) -> int:
    """Send the same batch until *total_bytes* are acknowledged; RuntimeError on any error code."""
    count = max(1, total_bytes // len(batch))
    _produce(address, topic, repeat(produce_frame(topic, batch), count))
    return count * len(batch)


def produce_all(address: str, topic: str, batches: Iterable[bytes]) -> None:
    """Send *batches* in order; RuntimeError on any error code."""
    _produce(address, topic, (produce_frame(topic, batch) for batch in batches))


def _produce(address: str, topic: str, frames: Iterator[bytes]) -> None:
    error_at = 4 + 1 + 1 + len(compact(topic)) + 1 + 4
    answer, waiting = memoryview(bytearray(4096)), 0
    with connect(address) as sock:
        while True:
            while waiting < _IN_FLIGHT and (frame := next(frames, None)) is not None:
                sock.sendall(frame)
                waiting += 1
            if not waiting:
                return
            _receive(sock, answer[:4])
            size = int.from_bytes(answer[:4], "big")
            _receive(sock, answer[:size])
            if error := struct.unpack_from(">h", answer, error_at)[0]:
                raise RuntimeError(f"produce answered with error {error}")
            waiting -= 1


def wait_served(address: str, topic: str) -> None:
    """Until a topic just made answers; a broker may say for a moment that it is not its leader."""
    pause = threading.Event()
    with closing(Fetcher(address, topic, 4096, wait_ms=0)) as fetcher:
        for _ in range(100):
            try:
                fetcher.fetch(0)
            except RuntimeError:
                pause.wait(0.1)
            else:
                return
    raise RuntimeError(f"{topic} is not served")


class Fetcher:
    """Reads a partition onwards, one fetch after the other, into one buffer."""

    def __init__(self, address: str, topic: str, max_bytes: int, wait_ms: int = 500) -> None:
        self._topic, self._max, self._wait_ms = topic, max_bytes, wait_ms
        self._sock = connect(address)
        self._buffer = memoryview(bytearray(max_bytes + (4 << 20)))
        self._records_at = 4 + 1 + 4 + 2 + 4 + 1 + len(compact(topic)) + 1

    def fetch(self, offset: int) -> tuple[int, int]:
        """Give (record bytes, next offset); (0, offset) when there was nothing."""
        self._sock.sendall(fetch_frame(self._topic, offset, self._max, self._wait_ms))
        _receive(self._sock, self._buffer[:4])
        size = int.from_bytes(self._buffer[:4], "big")
        _receive(self._sock, self._buffer[:size])
        at = self._records_at
        if error := struct.unpack_from(">h", self._buffer, at + 4)[0]:
            raise RuntimeError(f"fetch of {offset} answered with error {error}")
        at += 4 + 2 + 8 + 8 + 8
        aborted = max(0, self._buffer[at] - 1)
        at += 1 + aborted * 17 + 4
        length, at = self._uvarint(at)
        return length - 1 if length else 0, self._next_offset(at, at + max(0, length - 1), offset)

    def _uvarint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = self._buffer[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7

    def _next_offset(self, at: int, stop: int, offset: int) -> int:
        while at + HEADER_BYTES <= stop:
            header = parse_header(self._buffer, at)
            if at + header.size_bytes > stop:
                break
            offset, at = header.next_offset, at + header.size_bytes
        return offset

    def read(self, start: int, total_bytes: int) -> int:
        """Read on from *start* until *total_bytes* have come; give the bytes. An empty answer is asked again."""
        got, offset, empty = 0, start, 0
        while got < total_bytes:
            length, offset = self.fetch(offset)
            empty = 0 if length else empty + 1
            if empty > _EMPTY_ANSWERS:
                raise RuntimeError(f"no data at offset {offset}")
            got += length
        return got

    def close(self) -> None:
        self._sock.close()
