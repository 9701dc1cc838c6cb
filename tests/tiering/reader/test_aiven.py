"""The plain buckets that Kafka with Aiven's plugin wrote: every byte of the source segments comes back."""

import asyncio
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.golden import golden
from kit.remote_log import FAR, Rows, content, run
from tierd.base.ids import PartitionId
from tierd.remote import crc
from tierd.remote.manifest import parse_manifest
from tierd.remote.memory import MemoryStore
from tierd.storage.batch import walk
from tierd.storage.txnindex import parse_txn_index
from tierd.tiering.reader import ReaderOptions, RemoteReader
from tierd.tiering.segments import RemoteSegment

OPTIONS = ReaderOptions(first_bytes=1024, range_bytes=8192, read_ahead=3)


def opened(variant: str) -> tuple[MemoryStore, Rows]:
    """The bucket in memory and its manifests as rows."""
    store, rows, root = MemoryStore(FakeClock()), Rows(), golden("aiven") / f"bucket-{variant}"
    for path in root.rglob("*.*"):
        data = path.read_bytes()
        store.put(path.relative_to(root).as_posix(), data, crc32c=crc.crc32c(data))
    for path in sorted(root.rglob("*.rsm-manifest")):
        manifest = parse_manifest(path.read_bytes(), path.name)
        stem = path.relative_to(root).with_suffix("").as_posix()
        rows.segments.append(
            RemoteSegment(
                part=PartitionId(manifest.topic_id, manifest.partition), topic=manifest.topic, base=manifest.base,
                next_base=manifest.next_base, segment_id=manifest.segment_id, stem=stem,
                size_bytes=manifest.size_bytes, indexes_bytes=manifest.layout.size_bytes,
                log_etag=store.head(stem + ".log").etag, indexes_etag=None, log_crc=None, indexes_crc=None,
                layout=manifest.layout, largest_timestamp_ms=manifest.largest_timestamp_ms,
                largest_timestamp_offset=None, append_ms=manifest.written_ms, epochs=manifest.epochs,
            )
        )  # fmt: skip
    return store, rows


@pytest.mark.parametrize("variant", ["plain", "plain-chunks", "txn"])
def test_every_byte_comes_back(variant: str, tmp_path: Path) -> None:
    store, rows = opened(variant)
    first = rows.segments[0]
    local = golden("aiven") / f"local-{variant}" / f"{first.topic}-0"
    expected = b"".join((local / f"{row.base:020d}.log").read_bytes() for row in rows.segments)

    async def work() -> None:
        reader = RemoteReader(store, rows, tmp_path, FakeClock(), OPTIONS)
        data, offset = b"", first.base
        while (slice := await reader.read(first.part, offset, max_bytes=4000, stop=FAR, committed=True)).length:
            data += content(slice)
            offset = slice.stop or 0
        assert data == expected
        await reader.close()

    run(work)


def test_aborted_transactions_of_a_recorded_bucket(tmp_path: Path) -> None:
    store, rows = opened("txn")
    first = rows.segments[0]
    local = golden("aiven") / "local-txn" / f"{first.topic}-0"
    aborted = [
        entry
        for row in rows.segments
        if (path := local / f"{row.base:020d}.txnindex").exists()
        for entry in parse_txn_index(path.read_bytes())
    ]
    assert aborted

    async def work() -> None:
        reader = RemoteReader(store, rows, tmp_path, FakeClock(), OPTIONS)
        for offset in range(first.base, rows.segments[-1].next_base):
            slice = await reader.read(first.part, offset, max_bytes=1, stop=FAR, committed=True)
            named = {(txn.producer_id, txn.first_offset) for txn in slice.aborted}
            stop = slice.stop or 0
            content(slice)
            assert named == {
                (entry.producer_id, entry.first_offset)
                for entry in aborted
                if entry.marker_offset >= offset and entry.first_offset < stop
            }
        await reader.close()

    run(work)


def test_times_of_a_recorded_bucket(tmp_path: Path) -> None:
    store, rows = opened("plain-chunks")
    first = rows.segments[0]
    local = golden("aiven") / "local-plain-chunks" / f"{first.topic}-0"
    headers = [h for row in rows.segments for _, h in walk((local / f"{row.base:020d}.log").read_bytes())]

    async def work() -> None:
        reader = RemoteReader(store, rows, tmp_path, FakeClock(), OPTIONS)
        found = await reader.largest_timestamp(first.part, start=0, stop=FAR)
        assert found is not None
        assert found.timestamp_ms == max(header.max_timestamp_ms for header in headers)
        jobs = [reader.by_time(first.part, h.max_timestamp_ms, start=0, stop=FAR) for h in headers[::7]]
        for header, at in zip(headers[::7], await asyncio.gather(*jobs), strict=True):
            assert at is not None
            assert at.timestamp_ms >= header.max_timestamp_ms
            assert at.offset <= header.last_offset
        await reader.close()

    run(work)
