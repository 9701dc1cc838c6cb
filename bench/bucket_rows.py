"""The rows that need a bucket: upload, cold sequential read, cold first record. A fresh SeaweedFS for each.

Kafka has none of them: the plugin that its tiering needs is not to be had from Maven Central.
"""

import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from bench import rawclient
from bench.bare_put import BarePut, bare_options
from bench.cold_data import Plan, fill
from bench.cold_read import Work
from bench.measure import MIB, Sample, interleaved, timed
from bench.relay import relay as relaying
from bench.rows import Row, Run, batch_of
from bench.servers import Server, tierd
from kit import weed
from tierd.cli.client import ask
from tierd.remote.s3_client import make_client
from tierd.storage.batch import parse_header

TOPIC = "archive"
BATCH_BYTES = 64 * 1024
FETCH_BYTES = 8 * MIB
FIRST_BYTES = 1 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Milliseconds until an answer, by server."""

    name: str
    bare: str
    ms: Mapping[str, Sequence[float]]


def upload(run: Run) -> Row:
    """Closed segments of 64 MiB into a bucket: `tierd copy --wait` beside boto3 with parts of 16 MiB, two in flight.

    Each round begins with a new bucket and the same closed segments, none of them copied.
    """
    source = run.place / "source"
    with tierd(source) as server:
        _fill(server, run.total_bytes)
    files = _closed(source)
    moved = sum(file.stat().st_size for file in files)
    memory: dict[str, float] = {}
    with weed.running() as bucket_server, closing(BarePut(bucket_server.endpoint, files)) as bare:
        names = (f"upload-{n}" for n in range(1_000))

        def bare_run() -> Sample:
            bucket = bucket_server.bucket(next(names))
            counted = timed(lambda: bare.run(bucket), {"bare": bare.pid}, lambda: bucket_server.requests(bucket))
            bucket_server.drop(bucket)
            return counted

        def tierd_run() -> Sample:
            bucket, place = bucket_server.bucket(next(names)), run.place / "copied"
            shutil.copytree(source, place)
            with tierd(place, f"s3://{bucket}/", server=bucket_server) as server:
                counted = timed(lambda: _copy(server, moved), server.pids, lambda: bucket_server.requests(bucket))
                memory.update(server.private_mib())
            shutil.rmtree(place)
            bucket_server.drop(bucket)
            return counted

        samples = interleaved(
            {"bare PUT": bare_run, "tierd": tierd_run}, run.rounds, lambda text: run.said(f"upload, {text}")
        )
    return Row(name="upload, 64 MiB segments", bare="bare PUT", samples=samples, private_mib={"tierd": memory})


def cold_sequential(run: Run) -> Row:
    """From the start through everything that only the bucket has, beside a bare relay of two processes.

    The cache holds a quarter of it, so that each round finds nothing of the round before.
    """
    batch = batch_of(BATCH_BYTES)
    with weed.running() as bucket_server, ExitStack() as stack:
        plan = _relay_plan(bucket_server, run, batch)
        fill(plan, batch)
        relay = stack.enter_context(relaying(plan))
        bucket = bucket_server.bucket("tierd")
        cache_bytes = max(64 * MIB, run.total_bytes // 4)
        server = stack.enter_context(
            tierd(run.place / "cold", f"s3://{bucket}/", f"remote.cache.bytes={cache_bytes}", server=bucket_server)
        )
        _fill(server, run.total_bytes)
        _empty_disk(server)
        fetcher = stack.enter_context(closing(rawclient.Fetcher(server.address, TOPIC, FETCH_BYTES)))
        buffer = memoryview(bytearray(FETCH_BYTES + 16 * MIB))
        relayed = plan.segments * plan.segment_bytes
        runs: dict[str, Callable[[], Sample]] = {
            "bare relay": lambda: relay.run(relayed, FETCH_BYTES, buffer),
            "tierd": lambda: timed(
                lambda: fetcher.read(0, run.total_bytes), server.pids, lambda: bucket_server.requests(bucket)
            ),
        }
        samples = interleaved(runs, run.rounds, lambda text: run.said(f"cold read, {text}"))
        memory = {"tierd": server.private_mib()}
    return Row(name="cold sequential read", bare="bare relay", samples=samples, private_mib=memory)


def _relay_plan(server: weed.Weed, run: Run, batch: bytes) -> Plan:
    work = Work(total_bytes=run.total_bytes, rounds=run.rounds, fetch_bytes=FETCH_BYTES, batch_bytes=len(batch))
    return replace(work.plan(server, batch), place=str(run.place / "relay"))


def cold_first(run: Run) -> Waits:
    """One fetch at a random old offset, indexes not read before and read before, beside a GET of 1 MiB.

    Segments of 16 MiB; each offset lies where nothing was read before.
    """
    batch = batch_of(BATCH_BYTES)
    ms: dict[str, list[float]] = {"bare GET of 1 MiB": [], "tierd, indexes not cached": [], "tierd, indexes cached": []}
    dice = random.Random(7)
    with weed.running() as bucket_server:
        bucket, place = bucket_server.bucket("tierd"), run.place / "first"
        settings = ("segment.bytes=16MiB",)
        with tierd(place, f"s3://{bucket}/", *settings, server=bucket_server) as server:
            _fill(server, run.total_bytes)
            _empty_disk(server)
        for number in range(run.rounds):
            shutil.rmtree(place / "data.tierd" / "cache")
            with tierd(place, f"s3://{bucket}/", *settings, server=bucket_server) as server:
                taken = _first_reads(server, run.total_bytes, batch, dice)
            ms["bare GET of 1 MiB"] += _bare_gets(bucket_server, bucket, len(taken[1]), dice)
            ms["tierd, indexes not cached"] += taken[0]
            ms["tierd, indexes cached"] += taken[1]
            run.said(f"cold first record, round {number + 1} of {run.rounds}")
    return Waits(name="cold first record", bare="bare GET of 1 MiB", ms=ms)


def _first_reads(
    server: Server, total_bytes: int, batch: bytes, dice: random.Random
) -> tuple[list[float], list[float]]:
    """Milliseconds of the first read in each segment, and of later ones in segments already known."""
    segment = 16 * MIB // len(batch)
    count = parse_header(batch).count
    segments = total_bytes // len(batch) // segment
    places = [(s, part) for s in range(segments) for part in range(7)]
    dice.shuffle(places)
    fresh: list[float] = []
    known: list[float] = []
    seen: set[int] = set()
    with closing(rawclient.Fetcher(server.address, TOPIC, FIRST_BYTES)) as fetcher:
        for number, part in places:
            offset = (number * segment + part * (segment // 7) + dice.randrange(4)) * count
            (known if number in seen else fresh).append(_fetch_ms(fetcher, offset))
            seen.add(number)
    return fresh, known


def _fetch_ms(fetcher: rawclient.Fetcher, offset: int) -> float:
    begun = time.perf_counter()
    length, _ = fetcher.fetch(offset)
    if not length:
        raise RuntimeError(f"an empty answer at offset {offset}")
    return (time.perf_counter() - begun) * 1000


def _bare_gets(server: weed.Weed, bucket: str, count: int, dice: random.Random) -> list[float]:
    client = make_client(bare_options(server.endpoint))
    listed = client.list_objects_v2(Bucket=bucket)["Contents"]
    logs = [one["Key"] for one in listed if one["Key"].endswith(".log") and one["Size"] > 8 * MIB]
    client.get_object(Bucket=bucket, Key=logs[0])["Body"].read()
    taken = []
    for _ in range(count):
        at = dice.randrange(15) * MIB
        begun = time.perf_counter()
        client.get_object(Bucket=bucket, Key=dice.choice(logs), Range=f"bytes={at}-{at + FIRST_BYTES - 1}")[
            "Body"
        ].read()
        taken.append((time.perf_counter() - begun) * 1000)
    client.close()
    return taken


def _fill(server: Server, total_bytes: int) -> None:
    """A little more than *total_bytes*, so that those are in closed segments."""
    server.create(TOPIC)
    rawclient.produce(server.address, TOPIC, batch_of(BATCH_BYTES), total_bytes + MIB)


def _copy(server: Server, moved_bytes: int) -> int:
    """Wait until all closed segments are in the bucket."""
    assert server.daemon is not None
    reply = ask(Path(f"{server.daemon.data}.tierd") / "control.sock", "copy", wait=True, roll=False, timeout_ms=600_000)
    if reply.exit:
        raise RuntimeError(f"copy ended with {reply.exit}: {reply.result}")
    return moved_bytes


def _empty_disk(server: Server) -> None:
    """Leave to the bucket what it can have."""
    assert server.daemon is not None
    server.daemon.verb("copy", "--wait", "--roll")
    server.daemon.verb("evict")


def _closed(place: Path) -> list[Path]:
    """Log files of the topic but for the active one."""
    return sorted((place / "data" / f"{TOPIC}-0").glob("*.log"))[:-1]
