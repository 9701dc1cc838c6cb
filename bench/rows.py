"""The local rows of the table: each fills or reads the servers in turn and gives samples by server."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from bench import rawclient
from bench.bare import Bare
from bench.measure import GIB, MIB, Sample, interleaved, timed
from bench.servers import Server
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record

T0_MS = 1_700_000_000_000
RECORD_BYTES = 1024
BARE = "bare loop"
EVENT_LOOP = "bare event loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line group of the table."""

    name: str
    bare: str | None
    """The server that is the measure of what can be done here."""
    samples: Mapping[str, Sequence[Sample]]
    private_mib: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By server and process, after the last round."""


@dataclass(frozen=True, slots=True)
class Run:
    """What every row is told."""

    place: Path
    total_bytes: int
    """Moved by each server in each round."""
    rounds: int
    said: Callable[[str], None]
    with_kafka: bool = True
    cold: bool = False
    """Recovery reads from the disk, not from the page cache."""
    segments: int = 10_000
    """Closed ones that a start finds."""


def batch_of(size_bytes: int) -> bytes:
    """A plain batch of 1 KiB records, *size_bytes* long at most."""
    count = max(1, size_bytes // (RECORD_BYTES + 40))
    records = [Record(n, T0_MS + n, b"key-%08d" % n, bytes([n & 0xFF]) * RECORD_BYTES, ()) for n in range(count)]
    return encode_batch(records)


def warm_up(server: Server) -> None:
    """The first GiB in and out: a JVM has compiled what matters after it."""
    batch = batch_of(64 * 1024)
    server.create("warm-up")
    sent = rawclient.produce(server.address, "warm-up", batch, GIB)
    with closing(rawclient.Fetcher(server.address, "warm-up", 8 * MIB)) as fetcher:
        fetcher.read(0, sent)
    server.drop("warm-up")


def produce(servers: list[Server], run: Run, batch_bytes: int) -> Row:
    """Produce acks=all, five requests in flight, beside a bare receive-and-append loop."""
    batch = batch_of(batch_bytes)
    with ExitStack() as stack:
        bare = Bare("append", run.place / f"append-{batch_bytes}")
        stack.callback(bare.end)
        runs: dict[str, Callable[[], Sample]] = {
            BARE: lambda: timed(lambda: bare.append(batch, run.total_bytes), {"bare": bare.pid})
        }
        for server in servers:
            topic = _topic(stack, server, f"produce-{batch_bytes}")
            runs[server.name] = _run(server, lambda at, t: rawclient.produce(at, t, batch, run.total_bytes), topic)
        return _row(f"produce, {batch_bytes // 1024} KiB batches", BARE, servers, runs, run)


def produce_librdkafka(servers: list[Server], run: Run, batch_bytes: int) -> Row:
    """The same by librdkafka, idempotent: here the client is the limit, and shows what its users get."""
    with ExitStack() as stack:
        runs = {}
        for server in servers:
            topic = _topic(stack, server, f"librdkafka-{batch_bytes}")
            runs[server.name] = _run(server, lambda at, t: _librdkafka(at, t, batch_bytes, run.total_bytes), topic)
        return _row(f"produce by librdkafka, {batch_bytes // 1024} KiB batches", None, servers, runs, run)


def _librdkafka(address: str, topic: str, batch_bytes: int, total_bytes: int) -> int:
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": min(batch_bytes, 1_000_000),
            "queue.buffering.max.kbytes": 65_536,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error),
        }
    )
    value = b"v" * RECORD_BYTES
    count = total_bytes // RECORD_BYTES
    for n in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
        if not n & 1023:
            producer.poll(0)
    if producer.flush(60) or failed:
        raise RuntimeError(f"librdkafka could not deliver: {failed[:1]}")
    return count * RECORD_BYTES


def local_fetch(servers: list[Server], run: Run, fetch_bytes: int) -> Row:
    """Sequential fetches out of the page cache by a fast reader, beside bare sendfile, also on an event loop."""
    batch = batch_of(64 * 1024)
    data = run.place / f"send-{fetch_bytes}"
    size = _append_all(data, batch, run.total_bytes + 2 * fetch_bytes)
    with ExitStack() as stack:
        runs: dict[str, Callable[[], Sample]] = {}
        for name, kind in ((BARE, "send"), (EVENT_LOOP, "turns")):
            runs[name] = _bare_read(stack, Bare(kind, data), size, fetch_bytes, run.total_bytes)
        for server in servers:
            topic = _topic(stack, server, f"fetch-{fetch_bytes}")
            rawclient.produce(server.address, topic, batch, size)
            fetcher = stack.enter_context(closing(rawclient.Fetcher(server.address, topic, fetch_bytes)))
            runs[server.name] = _fetch_run(server, fetcher, run.total_bytes)
        row = _row(f"local fetch, {fetch_bytes // MIB} MiB", BARE, servers, runs, run)
    data.unlink()
    return row


def _bare_read(
    stack: ExitStack, bare: Bare, file_bytes: int, piece_bytes: int, total_bytes: int
) -> Callable[[], Sample]:
    stack.callback(bare.end)
    return lambda: timed(lambda: bare.read(file_bytes, piece_bytes, total_bytes), {"bare": bare.pid})


def _append_all(path: Path, batch: bytes, total_bytes: int) -> int:
    """A file written as a log is, batch by batch: the size of the writes decides how the page cache holds them."""
    with path.open("wb", buffering=0) as file:
        for _ in range(total_bytes // len(batch)):
            file.write(batch)
        return file.tell()


def _fetch_run(server: Server, fetcher: rawclient.Fetcher, total_bytes: int) -> Callable[[], Sample]:
    return lambda: timed(lambda: fetcher.read(0, total_bytes), server.pids)


def _topic(stack: ExitStack, server: Server, name: str) -> str:
    server.create(name)
    stack.callback(server.drop, name)
    return name


def _run(server: Server, work: Callable[[str, str], int], topic: str) -> Callable[[], Sample]:
    return lambda: timed(lambda: work(server.address, topic), server.pids)


def _row(name: str, bare: str | None, servers: list[Server], runs: Mapping[str, Callable[[], Sample]], run: Run) -> Row:
    samples = interleaved(runs, run.rounds, lambda text: run.said(f"{name}, {text}"))
    return Row(name=name, bare=bare, samples=samples, private_mib={s.name: s.private_mib() for s in servers})
