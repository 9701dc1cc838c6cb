"""The bare loops that bound what any server can do here: receive and append, and sendfile to one socket.

`python -m bench.bare append FILE` / `send FILE` / `turns FILE` print their port and serve connections one by one.
Wire: append takes frames of <u32 length><bytes>, answers 8 bytes each; send takes <u64 position><u64 length>, answers
<u64 length><bytes>. turns is send on an event loop that never waits, neither for the peer nor for a disk: what a server
of many clients in Python must do at least.
"""

import asyncio
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tierd.broker.sending import TURN_BYTES, resident_until

_LENGTH = struct.Struct(">I")
_RANGE = struct.Struct(">QQ")
_SIZE = struct.Struct(">Q")


def _receive(sock: socket.socket, into: memoryview) -> bool:
    while into:
        n = sock.recv_into(into)
        if n == 0:
            return False
        into = into[n:]
    return True


def append(sock: socket.socket, fd: int) -> None:
    buffer = memoryview(bytearray(8 << 20))
    while _receive(sock, buffer[:4]):
        size = _LENGTH.unpack_from(buffer)[0]
        _receive(sock, buffer[:size])
        os.write(fd, buffer[:size])
        sock.sendall(_SIZE.pack(size))


def send(sock: socket.socket, fd: int) -> None:
    asked = memoryview(bytearray(16))
    while _receive(sock, asked):
        position, length = _RANGE.unpack(asked)
        sock.sendall(_SIZE.pack(length))
        while length:
            n = os.sendfile(sock.fileno(), fd, position, length)
            position, length = position + n, length - n


class Turns:
    """One connection of `turns`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, fd: int, done: asyncio.Event) -> None:
        self._loop, self._sock, self._fd, self._done = loop, sock, fd, done
        self._asked = bytearray(16)
        self._position = self._stop = 0
        loop.add_reader(sock, self._readable)

    def _readable(self) -> None:
        if self._sock.recv_into(self._asked) != len(self._asked):
            self._loop.remove_reader(self._sock)
            self._done.set()
            return
        self._position, length = _RANGE.unpack(self._asked)
        self._stop = self._position + length
        resident_until(self._fd, self._position, self._stop)
        self._sock.send(_SIZE.pack(length), socket.MSG_MORE)
        if not self._sent():
            self._loop.add_writer(self._sock, self._writable)

    def _writable(self) -> None:
        if self._sent():
            self._loop.remove_writer(self._sock)

    def _sent(self) -> bool:
        try:
            while self._position < self._stop:
                self._position += os.sendfile(
                    self._sock.fileno(), self._fd, self._position, min(self._stop - self._position, TURN_BYTES)
                )
        except BlockingIOError:
            return False
        return True


def turns(sock: socket.socket, fd: int) -> None:
    async def run() -> None:
        sock.setblocking(False)
        done = asyncio.Event()
        Turns(asyncio.get_running_loop(), sock, fd, done)
        await done.wait()

    asyncio.run(run())


_SERVE = {"append": append, "send": send, "turns": turns}


def serve(kind: str, path: str) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            sock, _ = listener.accept()
            with sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _SERVE[kind](sock, fd)


class Bare:
    """One bare loop in a process of its own."""

    def __init__(self, kind: str, path: Path) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "bench.bare", kind, str(path)], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid

    def append(self, piece: bytes, total_bytes: int, in_flight: int = 5) -> int:
        count, sent, done = max(1, total_bytes // len(piece)), 0, 0
        framed, answer = _LENGTH.pack(len(piece)) + piece, memoryview(bytearray(8))
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while done < count:
                while sent < count and sent - done < in_flight:
                    sock.sendall(framed)
                    sent += 1
                _receive(sock, answer)
                done += 1
        return count * len(piece)

    def read(self, file_bytes: int, piece_bytes: int, total_bytes: int) -> int:
        buffer, got, position = memoryview(bytearray(piece_bytes)), 0, 0
        with socket.create_connection(("127.0.0.1", self.port)) as sock:
            while got < total_bytes:
                if position + piece_bytes > file_bytes:
                    position = 0
                sock.sendall(_RANGE.pack(position, piece_bytes))
                _receive(sock, buffer[:8])
                _receive(sock, buffer[:piece_bytes])
                got, position = got + piece_bytes, position + piece_bytes
        return got

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


if __name__ == "__main__":
    serve(*sys.argv[1:])
