"""A relay: two processes that bring a bucket's bytes to a TCP reader; what cold reads are measured with.

`python -m bench.relay broker PLAN` prints "PORT BROKER-PID SOURCE-PID"; `python -m bench.relay source PLAN FD` is its
child. Wire of the TCP side: the reader sends <i64 offset><i64 max bytes>, gets <i64 length><i64 next offset><bytes>;
offset -1 empties the cache and closes connections' read-ahead.
"""

import array
import asyncio
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from bench.cold_data import PART, Plan, Rows
from bench.measure import Sample, timed
from tierd.base.clock import SystemClock
from tierd.tiering.reader import ReaderOptions, RemoteReader

FAR = 1 << 62
RESET = -1
_ASK = struct.Struct(">qq")
_SPANS = struct.Struct(">qq")
_MAX_SPANS = 64


class BareSource:
    """Fixed ranges in order, *in_flight* GETs at any time, each into a file that goes once it was handed over."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._store = plan.store()
        self._threads = ThreadPoolExecutor(plan.in_flight)
        self._ahead: deque[Future[tuple[int, int]]] = deque()
        self._todo: Iterator[tuple[str, int, int]] = iter(())
        self._number = 0

    def reset(self) -> None:
        while self._ahead:
            os.close(self._ahead.popleft().result()[0])
        size, step = self._plan.segment_bytes, self._plan.range_bytes
        self._todo = (
            (self._plan.key(n) + ".log", at, min(at + step, size))
            for n in range(self._plan.segments)
            for at in range(0, size, step)
        )

    def _fetch(self, key: str, start: int, stop: int, path: str) -> tuple[int, int]:
        answer = self._store.client.get_object(Bucket=self._plan.bucket, Key=key, Range=f"bytes={start}-{stop - 1}")
        data = answer["Body"].read()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(fd, data)
        os.unlink(path)
        return fd, len(data)

    def serve(self, sock: socket.socket) -> None:
        while asked := sock.recv(_ASK.size):
            offset, _ = _ASK.unpack(asked)
            if offset == RESET:
                self.reset()
                sock.send(_SPANS.pack(0, 0))
                continue
            while len(self._ahead) < self._plan.in_flight and (job := next(self._todo, None)):
                self._number += 1
                self._ahead.append(self._threads.submit(self._fetch, *job, f"{self._plan.place}/{self._number}"))
            fd, length = self._ahead.popleft().result()
            send_spans(sock, offset + length, [(fd, 0, length)])
            os.close(fd)


class TierdSource:
    """RemoteReader behind the same socket; what was sent is released when the next question comes."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._store = plan.store()
        self._rows = Rows(plan, self._store)
        self._runs = 0
        self._options = replace(
            ReaderOptions(), range_bytes=plan.range_bytes, read_ahead=plan.in_flight, cache_bytes=plan.cache_bytes
        )

    def serve(self, sock: socket.socket) -> None:
        sys.setswitchinterval(0.0005)
        asyncio.run(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        reader: RemoteReader | None = None
        release: Callable[[], None] = lambda: None  # noqa: E731
        while asked := await loop.sock_recv(sock, _ASK.size):
            release()
            release = lambda: None  # noqa: E731
            offset, max_bytes = _ASK.unpack(asked)
            if offset == RESET or reader is None:
                if reader is not None:
                    await reader.close()
                shutil.rmtree(f"{self._plan.place}/{self._runs}", ignore_errors=True)
                self._runs += 1
                place = Path(self._plan.place) / str(self._runs)
                reader = RemoteReader(self._store, self._rows, place, SystemClock(), self._options)
                sock.send(_SPANS.pack(0, 0))
                continue
            slice = await reader.read(PART, offset, max_bytes=max_bytes, stop=FAR, committed=False)
            send_spans(sock, slice.stop or offset, [(s.fd, s.position, s.length) for s in slice.spans])
            release = slice.release


def send_spans(sock: socket.socket, next_offset: int, spans: list[tuple[int, int, int]]) -> None:
    body = _SPANS.pack(next_offset, len(spans)) + b"".join(_SPANS.pack(at, length) for _, at, length in spans)
    sock.sendmsg([body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd for fd, _, _ in spans]))])


def receive_spans(sock: socket.socket) -> tuple[int, list[tuple[int, int, int]]]:
    body, control, _, _ = sock.recvmsg(_SPANS.size * (_MAX_SPANS + 1), socket.CMSG_SPACE(4 * _MAX_SPANS))
    fds = array.array("i")
    for _, _, data in control:
        fds.frombytes(data)
    (next_offset, _), *spans = _SPANS.iter_unpack(body)
    return next_offset, [(fd, at, length) for fd, (at, length) in zip(fds, spans, strict=True)]


def serve_broker(plan_text: str) -> None:
    """Answer one reader after the other."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.relay", "source", plan_text, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], os.getpid(), child.pid, flush=True)
        reader, _ = listener.accept()
        reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while asked := reader.recv(_ASK.size, socket.MSG_WAITALL):
            ours.send(asked)
            next_offset, spans = receive_spans(ours)
            reader.sendall(_SPANS.pack(sum(length for _, _, length in spans), next_offset))
            for fd, at, left in spans:
                while left:
                    sent = os.sendfile(reader.fileno(), fd, at, left)
                    at, left = at + sent, left - sent
                os.close(fd)
    ours.close()
    child.wait()


@dataclass(frozen=True, slots=True)
class Relay:
    """A running pair of processes and a connection to it."""

    sock: socket.socket
    pids: dict[str, int]

    def ask(self, offset: int, max_bytes: int, buffer: memoryview) -> tuple[int, int]:
        """Read once; (bytes, next offset)."""
        self.sock.sendall(_ASK.pack(offset, max_bytes))
        head = bytearray(_SPANS.size)
        receive(self.sock, memoryview(head))
        length, next_offset = _SPANS.unpack(head)
        receive(self.sock, buffer[:length])
        return length, next_offset

    def read(self, total_bytes: int, fetch_bytes: int, buffer: memoryview) -> int:
        """From the start on, as a consumer does."""
        done = offset = 0
        while done < total_bytes:
            length, offset = self.ask(offset, fetch_bytes, buffer)
            if not length:
                raise RuntimeError(f"nothing at {offset}, {done} of {total_bytes} bytes came")
            done += length
        return done

    def run(self, total_bytes: int, fetch_bytes: int, buffer: memoryview) -> Sample:
        """One cold run: the cache is emptied first, outside the time taken."""
        self.ask(RESET, 0, buffer)
        return timed(lambda: self.read(total_bytes, fetch_bytes, buffer), self.pids)


def receive(sock: socket.socket, into: memoryview) -> None:
    while into:
        n = sock.recv_into(into)
        if not n:
            raise RuntimeError("the relay closed the connection")
        into = into[n:]


@contextmanager
def relay(plan: Plan) -> Iterator[Relay]:
    Path(plan.place).mkdir(parents=True)
    command = [sys.executable, "-m", "bench.relay", "broker", json.dumps(asdict(plan))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        port, broker, source = map(int, process.stdout.readline().split())
        with socket.create_connection(("127.0.0.1", port)) as sock:
            yield Relay(sock, {"broker": broker, "source": source})
        process.wait(30)


@click.group()
def main() -> None:
    """The processes of a relay."""


@main.command()
@click.argument("plan_text")
def broker(plan_text: str) -> None:
    serve_broker(plan_text)


@main.command()
@click.argument("plan_text")
@click.argument("fd", type=int)
def source(plan_text: str, fd: int) -> None:
    plan = Plan(**json.loads(plan_text))
    with socket.socket(fileno=fd) as sock:
        (BareSource(plan) if plan.kind == "bare" else TierdSource(plan)).serve(sock)


if __name__ == "__main__":
    main()
