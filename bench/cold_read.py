"""Cold sequential reads out of a bucket: tierd's remote reader beside a bare relay, both in the same two processes.

A relay (bench/relay.py) is a "broker" process that answers a TCP reader by sendfile, and a "source" process that
brings ranges of the bucket into files and hands their descriptors over (SCM_RIGHTS). The bare source GETs fixed ranges
with boto3, a fixed number in flight, and checks nothing; the other one is `RemoteReader`. What the network, the disk
and the bucket can do is the same for both, so the ratio is the reader's own.

    python -m bench.cold_read [--mib 512] [--rounds 5] [--fetch-mib 8] [--batch-kib 64] [--in-flight 8] [--range-mib 4]
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from bench.cold_data import Plan, fill
from bench.measure import GIB, MIB, Sample, interleaved, private_mib, spread
from bench.relay import Relay, relay
from kit import weed
from tierd.storage.batch import encode_batch, parse_header
from tierd.storage.records import Record
from tierd.tiering.reader import ReaderOptions

SEGMENT_BYTES = 64 * MIB
BARE_RANGE_BYTES = 4 * MIB
BARE_IN_FLIGHT = 8


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


@click.command()
@click.option("--mib", default=512, help="Bytes read in each run.")
@click.option("--rounds", default=5)
@click.option("--fetch-mib", default=8)
@click.option("--batch-kib", default=64)
@click.option("--in-flight", default=ReaderOptions().read_ahead)
@click.option("--range-mib", default=ReaderOptions().range_bytes // MIB)
@click.option("--cache-mib", default=ReaderOptions().cache_bytes // MIB)
def main(
    mib: int,
    rounds: int,
    fetch_mib: int,
    batch_kib: int,
    in_flight: int,
    range_mib: int,
    cache_mib: int,
) -> None:
    """Measure and print: MB/s and CPU s/GiB as median (low-high), and the ratio of the medians."""
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


if __name__ == "__main__":
    main()
