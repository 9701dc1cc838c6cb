"""A catalog of very many segments: what start, look-ups, retention, status and heads cost the tierer.

`python -m bench.scale [--segments 1000000] [--partitions 10000]`. The tierer runs here, with its real catalog on disk;
the bucket is in memory, so that its time is not in the figures, and its requests are counted.
"""

import asyncio
import hashlib
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import click

from bench.measure import MIB
from kit.folder_tier import FolderTier
from kit.tierer_bench import KEYS, REMOTE, who
from tierd.base.clock import SystemClock
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.config.topic import DAY_MS, TopicSettings
from tierd.remote.keyring import NO_KEYS
from tierd.remote.keys import ObjectKind
from tierd.remote.manifest import EpochStart
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.remote.store import ObjectInfo
from tierd.storage.view import PartitionView
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.options import OpenRequest, TiererOptions
from tierd.tiering.rows import NO_LAYOUT, CatalogSegment
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.tierer import Tierer

RECORDS = 1_000
"""Of a segment."""
_SIZES = {ObjectKind.LOG: 64 * MIB, ObjectKind.INDEXES: 100_000, ObjectKind.MANIFEST: 2_000}
"""Bytes of a segment's objects."""
_LOOK_S = 0.001
_IN_A_PAGE = 333
"""Segments, three objects each, of a LIST's thousand keys."""
CATALOG = "catalog.sqlite"
LOOKUPS = 2_000
HEADS = 200
A_COMMIT = 5_000
SETTINGS = TopicSettings(local_retention_ms=DAY_MS, retention_ms=400 * DAY_MS, retention_bytes=1 << 60)


@click.command()
@click.option("--segments", default=1_000_000, show_default=True, help="In the bucket.")
@click.option("--partitions", default=10_000, show_default=True, help="Among which they are.")
@click.option("--place", type=click.Path(file_okay=False, path_type=Path), help="Where the catalog goes; default /tmp.")
def main(segments: int, partitions: int, place: Path | None) -> None:
    """Build it, measure, print a table."""
    folder = Path(tempfile.mkdtemp(prefix="tierd-scale-", dir=place))
    try:
        rows = asyncio.run(Scale(folder, segments, partitions).run())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    click.echo(f"{segments:,} segments in {partitions:,} partitions\n")
    click.echo("| what | s | CPU s | longest step ms | requests | memory MiB |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        click.echo(f"| {' | '.join(row)} |")


class Imagined(MemoryStore):
    """A bucket whose segments nobody has stored: a LIST of a partition's folder makes them up. Requests are counted."""

    def __init__(self, each: int) -> None:
        super().__init__(SystemClock())
        self.folders: dict[str, int] = {}
        """The number of each partition."""
        self.requests = 0
        self.before = self._count
        self._each = each

    def _count(self, operation: str, key: str) -> None:
        self.requests += 1

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        number = self.folders.get(prefix)
        if number is None:
            yield from super().list(prefix, start_after)
            return
        for n in range(self._each):
            if n % _IN_A_PAGE == 0:
                self.requests += 1
            stem = f"{prefix}{n * RECORDS:020d}-{segment_id(number, n)}"
            for kind, size in _SIZES.items():
                yield ObjectInfo(key=stem + kind, size=size, etag="e", modified_ms=0)


def segment_id(partition: int, n: int) -> Uuid:
    return Uuid(hashlib.blake2b(b"%d/%d" % (partition, n), digest_size=16).digest())


class Scale:
    """One run; each step tells what it took."""

    def __init__(self, folder: Path, segments: int, partitions: int) -> None:
        self._folder, self._each = folder, segments // partitions
        self._parts = [PartitionId(Uuid(os.urandom(16)), 0) for _ in range(partitions)]
        self._now_ms = SystemClock().now_ms()
        self._rows: list[tuple[str, ...]] = []
        self._store = Imagined(self._each)
        self._folders = [KEYS.partition_folder(f"t{n}", part.topic_id, 0) for n, part in enumerate(self._parts)]
        self._store.folders = {folder: n for n, folder in enumerate(self._folders)}

    async def run(self) -> list[tuple[str, ...]]:
        first = self._tierer()
        await first.open(self._request({}))  # the archive begins
        await first.close()
        self._fill()
        tierer = self._tierer()
        request = self._request({part: self._view(part, n) for n, part in enumerate(self._parts)})
        await self._measured("start: claim, views, what the bucket has of each partition", lambda: tierer.open(request))
        await self._measured(f"{LOOKUPS:,} look-ups of an offset", lambda: self._look_up(tierer.state.catalog))
        await self._measured("retention pass, with the daily look at each segment", tierer.retention.tick)
        await self._measured("retention pass", tierer.retention.tick)
        await self._measured("status", tierer.status)
        parts = self._parts[:HEADS]
        await self._measured(f"{HEADS} heads written the first time", lambda: tierer.publisher.heads(parts))
        await self._measured(f"{HEADS} heads written again", lambda: tierer.publisher.heads(parts))
        await tierer.close()
        return self._rows

    def _tierer(self) -> Tierer:
        options = TiererOptions(remote=REMOTE, state_dir=self._folder)
        bucket = Bucket(self._store, KEYS, "memory:", NO_KEYS)
        return Tierer(options, SystemClock(), bucket, Catalog.open(self._folder / CATALOG), FolderTier())

    def _request(self, views: Mapping[PartitionId, PartitionView]) -> OpenRequest:
        return OpenRequest(
            views=tuple(views.values()), topics=(), local_epoch=0, identity=who(), recover=False, claimed=None
        )

    def _fill(self) -> None:
        catalog = Catalog.open(self._folder / CATALOG)
        rows = (row for n, part in enumerate(self._parts) for row in self._segments(part, n))
        while some := list(islice(rows, A_COMMIT)):
            catalog.finished(*some)
        catalog.close()

    def _segments(self, part: PartitionId, number: int) -> Iterator[CatalogSegment]:
        for n in range(self._each):
            own_id = segment_id(number, n)
            since_ms = self._now_ms - (self._each - n) * DAY_MS
            remote = RemoteSegment(
                part=part, topic=f"t{number}", base=n * RECORDS, next_base=(n + 1) * RECORDS, segment_id=own_id,
                stem=f"{self._folders[number]}{n * RECORDS:020d}-{own_id}",
                size_bytes=_SIZES[ObjectKind.LOG], indexes_bytes=_SIZES[ObjectKind.INDEXES],
                layout=NO_LAYOUT, largest_timestamp_ms=since_ms, largest_timestamp_offset=n * RECORDS,
                append_ms=since_ms, epochs=(EpochStart(1, 0),),
                log_etag="e", indexes_etag="e", log_crc=n, indexes_crc=n,
            )  # fmt: skip
            yield CatalogSegment(
                remote=remote,
                state=CopyState.COPY_FINISHED,
                manifest_bytes=_SIZES[ObjectKind.MANIFEST],
                records=RECORDS,
            )

    def _view(self, part: PartitionId, number: int) -> PartitionView:
        """Nothing of it is on the disk but an empty active segment."""
        end = self._each * RECORDS
        return PartitionView(
            name=TopicPartition(f"t{number}", 0), id=part, directory=self._folder / f"t{number}-0", settings=SETTINGS,
            log_start=0, local_start=end, log_end=end, last_stable=end, recovery_point=end, leader_epoch=1, closed=(),
            active_base=end, active_bytes=0, active_append_ms=None,
        )  # fmt: skip

    async def _look_up(self, catalog: Catalog) -> None:
        dice = random.Random(1)
        for _ in range(LOOKUPS):
            assert catalog.covering(dice.choice(self._parts), dice.randrange(self._each * RECORDS)) is not None

    async def _measured(self, what: str, work: Callable[[], Awaitable[object]]) -> None:
        """With the longest time for which nothing else could run on the loop."""
        longest, stop = 0.0, asyncio.Event()

        async def watch() -> None:
            nonlocal longest
            while not stop.is_set():
                begun = time.perf_counter()
                await asyncio.sleep(_LOOK_S)
                longest = max(longest, time.perf_counter() - begun - _LOOK_S)

        watching = asyncio.create_task(watch())
        requests, begun, cpu_s = self._store.requests, time.perf_counter(), time.process_time()
        await work()
        took_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu_s
        stop.set()
        await watching
        asked = self._store.requests - requests
        self._rows.append(
            (what, f"{took_s:.2f}", f"{cpu_s:.2f}", f"{longest * 1000:.0f}", f"{asked:,}", f"{_memory_mib():.0f}")
        )
        click.echo(f"{what}: {took_s:.2f} s", err=True)


def _memory_mib() -> float:
    """Of this process, the bucket in memory included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
