"""The rows of the table: each fills or reads the servers in turn and gives samples by server."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import rawclient
from bench.bare import Bare
from bench.measure import MIB, Sample, interleaved, timed
from bench.servers import Server
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record, encode_records

T0_MS = 1_700_000_000_000
RECORD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One line group of the table; *baseline* names the sample that ratios are taken against."""

    name: str
    baseline: str
    samples: Mapping[str, list[Sample]]


def batch_of(size_bytes: int) -> bytes:
    """A plain batch of 1 KiB records, *size_bytes* long at most."""
    count = max(1, size_bytes // (RECORD_BYTES + 40))
    records = [Record(n, T0_MS + n, b"key-%08d" % n, bytes([n & 0xFF]) * RECORD_BYTES, ()) for n in range(count)]
    return encode_batch(
        encode_records(records, 0, T0_MS), count=count, base_timestamp_ms=T0_MS, max_timestamp_ms=T0_MS + count - 1
    )


def produce(servers: list[Server], place: Path, batch_bytes: int, total_bytes: int, rounds: int) -> Row:
    """Produce acks=all, five requests in flight, beside a bare receive-and-append loop."""
    batch = batch_of(batch_bytes)
    topic = f"produce-{batch_bytes // 1024}"
    with ExitStack() as stack:
        bare = Bare("append", place / f"append-{batch_bytes}")
        stack.callback(bare.end)
        runs: dict[str, Callable[[], Sample]] = {
            "bare loop": lambda: timed(lambda: bare.append(batch, total_bytes), {"bare": bare.pid})
        }
        for server in servers:
            server.create(topic)
            stack.callback(server.drop, topic)
            runs[server.name] = _produce_run(server, topic, batch, total_bytes)
        return Row(f"produce, {batch_bytes // 1024} KiB batches", "bare loop", interleaved(runs, rounds))


def _produce_run(server: Server, topic: str, batch: bytes, total_bytes: int) -> Callable[[], Sample]:
    return lambda: timed(lambda: rawclient.produce(server.address, topic, batch, total_bytes), server.pids)


def local_fetch(servers: list[Server], place: Path, fetch_bytes: int, total_bytes: int, rounds: int) -> Row:
    """Sequential fetches out of the page cache by a fast reader, beside a bare sendfile loop."""
    batch, topic = batch_of(64 * 1024), f"fetch-{fetch_bytes // 1024}"
    data = place / f"send-{fetch_bytes}"
    filled = total_bytes + 2 * fetch_bytes
    data.write_bytes(batch * (filled // len(batch)))
    with ExitStack() as stack:
        bare = Bare("send", data)
        stack.callback(bare.end)
        size = data.stat().st_size
        runs: dict[str, Callable[[], Sample]] = {
            "bare loop": lambda: timed(lambda: bare.read(size, fetch_bytes, total_bytes), {"bare": bare.pid})
        }
        for server in servers:
            server.create(topic)
            stack.callback(server.drop, topic)
            rawclient.produce(server.address, topic, batch, filled)
            fetcher = rawclient.Fetcher(server.address, topic, fetch_bytes)
            stack.callback(fetcher.close)
            runs[server.name] = _fetch_run(server, fetcher, total_bytes)
        row = Row(f"local fetch, {fetch_bytes // MIB} MiB", "bare loop", interleaved(runs, rounds))
    data.unlink()
    return row


def _fetch_run(server: Server, fetcher: rawclient.Fetcher, total_bytes: int) -> Callable[[], Sample]:
    return lambda: timed(lambda: fetcher.read(0, total_bytes), server.pids)
