"""Cold sequential reads out of a bucket: tierd's remote reader beside a bare relay, both in the same two processes.

A relay is a "broker" process that answers a TCP reader by sendfile, and a "source" process that brings ranges of the
bucket into files and hands their descriptors over (SCM_RIGHTS). The bare source GETs fixed ranges with boto3, a fixed
number in flight, and checks nothing; the other one is `RemoteReader`. What the network, the disk and the bucket
can do is the same for both, so the ratio is the reader's own.

    python -m bench.cold_read [--mib 512] [--rounds 5] [--fetch-mib 8] [--batch-kib 64] [--in-flight 8] [--range-mib 4]

Internal: `... broker PLAN` prints "PORT BROKER-PID SOURCE-PID"; `... source PLAN FD` is its child.
Wire of the TCP side: the reader sends <i64 offset><i64 max bytes>, gets <i64 length><i64 next offset><bytes>;
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
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from bench.measure import GIB, MIB, Sample, interleaved, private_mib, spread, timed
from kit import weed
from tierd.base.clock import SystemClock
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.crc import crc32c
from tierd.remote.indexes import IndexFiles, join_indexes
from tierd.remote.s3 import S3Options, S3Store
from tierd.storage.batch import encode_batch, parse_header, patch
from tierd.storage.index import IndexEntry, encode_index
from tierd.storage.records import Record
from tierd.tiering.reader import ReaderOptions, RemoteReader
from tierd.tiering.segments import RemoteSegment

PART = PartitionId(Uuid(bytes(16)), 0)
FAR = 1 << 62
RESET = -1
SEGMENT_BYTES = 64 * MIB
_ASK = struct.Struct(">qq")
_SPANS = struct.Struct(">qq")
_MAX_SPANS = 64
BARE_RANGE_BYTES = 4 * MIB
BARE_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What the child processes must know."""

    kind: str
    """"bare" or "tierd"."""
    endpoint: str
    bucket: str
    place: str
    segments: int
    segment_bytes: int
    batch_bytes: int
    batch_count: int
    range_bytes: int
    in_flight: int
    cache_bytes: int = 0

    def store(self) -> S3Store:
        options = S3Options(
            endpoint=self.endpoint,
            path_style=True,
            access_key_id=weed.ACCESS_KEY,
            secret_access_key=weed.SECRET_KEY,
        )
        return S3Store(self.bucket, options, clock=SystemClock())

    def key(self, number: int) -> str:
        return f"cold/{number:05d}"

    def per_segment(self) -> int:
        """Offsets in a segment."""
        return self.segment_bytes // self.batch_bytes * self.batch_count


class Rows:
    """A SegmentSource of equal segments."""

    def __init__(self, plan: Plan, store: S3Store) -> None:
        self._each = plan.per_segment()
        self._rows = [_row(plan, store, number) for number in range(plan.segments)]

    def covering(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        number = offset // self._each
        return self._rows[number] if 0 <= number < len(self._rows) else None

    def next_after(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        return self.covering(part, -(-offset // self._each) * self._each)

    def in_range(self, part: PartitionId, start: int, stop: int) -> Sequence[RemoteSegment]:
        return [row for row in self._rows if row.base < stop and start < row.next_base]


def _row(plan: Plan, store: S3Store, number: int) -> RemoteSegment:
    files = index_files(plan)
    raw, layout = join_indexes(files)
    base = number * plan.per_segment()
    return RemoteSegment(
        part=PART, topic="cold", base=base, next_base=base + plan.per_segment(),
        segment_id=Uuid(number.to_bytes(16, "big")), stem=plan.key(number),
        size_bytes=plan.segment_bytes, indexes_bytes=len(raw),
        log_etag=store.head(plan.key(number) + ".log").etag, indexes_etag=None, log_crc=None, indexes_crc=None,
        layout=layout, largest_timestamp_ms=None, largest_timestamp_offset=None, append_ms=0, epochs=(),
    )  # fmt: skip


def index_files(plan: Plan) -> IndexFiles:
    """The same for each segment: an entry per batch but the first, as 4 KiB of interval give with larger batches."""
    count = plan.segment_bytes // plan.batch_bytes
    entries = [IndexEntry((n + 1) * plan.batch_count - 1, n * plan.batch_bytes) for n in range(1, count)]
    return IndexFiles(offset=encode_index(entries, 0), timestamp=b"", producer_snapshot=b"", leader_epoch=b"")


def fill(plan: Plan, batch: bytes) -> None:
    """Put the segments into the bucket."""
    store = plan.store()
    indexes, _ = join_indexes(index_files(plan))
    for number in range(plan.segments):
        log = bytearray(batch * (plan.segment_bytes // plan.batch_bytes))
        for n in range(plan.segment_bytes // plan.batch_bytes):
            patch(log, n * plan.batch_bytes, number * plan.per_segment() + n * plan.batch_count, 0)
        upload = store.begin_upload(plan.key(number) + ".log")
        for part in range(0, len(log), 16 * MIB):
            data = bytes(log[part : part + 16 * MIB])
            upload.put_part(part // (16 * MIB) + 1, data, crc32c=crc32c(data))
        upload.complete()
        store.put(plan.key(number) + ".indexes", indexes, crc32c=crc32c(indexes))


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
        [sys.executable, "-m", "bench.cold_read", "source", plan_text, str(theirs.fileno())],
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
    command = [sys.executable, "-m", "bench.cold_read", "broker", json.dumps(asdict(plan))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        port, broker, source = map(int, process.stdout.readline().split())
        with socket.create_connection(("127.0.0.1", port)) as sock:
            yield Relay(sock, {"broker": broker, "source": source})
        process.wait(30)


def batch_of(size_bytes: int) -> bytes:
    """A plain batch of 1 KiB records, *size_bytes* long at most."""
    count = max(1, (size_bytes - 100) // 1050)
    value = min(1024, size_bytes - 100)
    return encode_batch([Record(n, n, b"key-%08d" % n, os.urandom(value)) for n in range(count)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One row of the table."""

    total_bytes: int
    rounds: int
    fetch_bytes: int
    batch_bytes: int
    in_flight: int = ReaderOptions().read_ahead
    range_bytes: int = ReaderOptions().range_bytes
    cache_bytes: int = ReaderOptions().cache_bytes

    def plan(self, server: weed.Weed, batch: bytes) -> Plan:
        """For the bare relay."""
        return Plan(
            kind="bare",
            endpoint=server.endpoint,
            bucket=server.bucket("cold"),
            place="",
            segments=max(1, self.total_bytes // SEGMENT_BYTES),
            segment_bytes=SEGMENT_BYTES // len(batch) * len(batch),
            batch_bytes=len(batch),
            batch_count=parse_header(batch).count,
            range_bytes=BARE_RANGE_BYTES,
            in_flight=BARE_IN_FLIGHT,
        )


def cold_reads(work: Work, place: Path) -> tuple[dict[str, list[Sample]], dict[str, float]]:
    """Fill a fresh SeaweedFS, then read it cold by turns through each relay: samples, and private MiB by process."""
    batch = batch_of(work.batch_bytes)
    buffer = memoryview(bytearray(work.fetch_bytes + 16 * MIB))
    with weed.running() as server, ExitStack() as stack:
        bare = work.plan(server, batch)
        fill(bare, batch)
        plans = {
            "bare": replace(bare, place=str(place / "bare")),
            "tierd": replace(
                bare,
                kind="tierd",
                place=str(place / "tierd"),
                range_bytes=work.range_bytes,
                in_flight=work.in_flight,
                cache_bytes=work.cache_bytes,
            ),
        }
        total_bytes = bare.segments * bare.segment_bytes
        relays = {name: stack.enter_context(relay(plan)) for name, plan in plans.items()}
        runs = {name: _run_of(running, total_bytes, work.fetch_bytes, buffer) for name, running in relays.items()}
        samples = interleaved(runs, work.rounds)
        memory = {f"{name} {part}": private_mib(pid) for name, r in relays.items() for part, pid in r.pids.items()}
    return samples, memory


def _run_of(running: Relay, total_bytes: int, fetch_bytes: int, buffer: memoryview) -> Callable[[], Sample]:
    return lambda: running.run(total_bytes, fetch_bytes, buffer)


@click.group(invoke_without_command=True)
@click.option("--mib", default=512, help="Bytes read in each run.")
@click.option("--rounds", default=5)
@click.option("--fetch-mib", default=8)
@click.option("--batch-kib", default=64)
@click.option("--in-flight", default=ReaderOptions().read_ahead)
@click.option("--range-mib", default=ReaderOptions().range_bytes // MIB)
@click.option("--cache-mib", default=ReaderOptions().cache_bytes // MIB)
@click.pass_context
def main(
    context: click.Context,
    mib: int,
    rounds: int,
    fetch_mib: int,
    batch_kib: int,
    in_flight: int,
    range_mib: int,
    cache_mib: int,
) -> None:
    """Measure and print: MB/s and CPU s/GiB as median (low-high), and the ratio of the medians."""
    if context.invoked_subcommand is not None:
        return
    work = Work(
        total_bytes=mib * MIB,
        rounds=rounds,
        fetch_bytes=fetch_mib * MIB,
        batch_bytes=batch_kib * 1024,
        in_flight=in_flight,
        range_bytes=range_mib * MIB,
        cache_bytes=cache_mib * MIB,
    )
    place = Path(tempfile.mkdtemp(prefix="tierd-cold-"))
    try:
        samples, memory = cold_reads(work, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for name, taken in samples.items():
        processes = {p: spread(s.cpu_s[p] / (s.moved_bytes / GIB) for s in taken).median for p in taken[0].cpu_s}
        parts = ", ".join(f"{process} {cpu:.2f}" for process, cpu in processes.items())
        speed, cpu = spread(s.mb_per_s for s in taken), spread(s.cpu_s_per_gib for s in taken)
        click.echo(f"{name:6} {speed} MB/s, {cpu} CPU s/GiB ({parts})")
    medians = {name: spread(s.mb_per_s for s in taken).median for name, taken in samples.items()}
    click.echo(f"ratio  {medians['tierd'] / medians['bare']:.2f}")
    click.echo("private MiB: " + ", ".join(f"{name} {mib:.0f}" for name, mib in memory.items()))


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
