"""Replicas close their segments at other offsets: what they hold twice is read once, with all that was aborted."""

import asyncio
from dataclasses import replace
from pathlib import Path

from kit.clock import FakeClock
from kit.golden import golden
from kit.remote_log import FAR, PART, SMALL, RemoteLog, content, indexed
from tierd.storage.txnindex import AbortedEntry, encode_txn_index, parse_txn_index
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.reader import RemoteReader
from tierd.tiering.rows import CatalogSegment

BASES, END = (0, 72, 144), 216


def source(base: int) -> tuple[bytes, list[AbortedEntry]]:
    """A segment that Kafka wrote, and the transactions whose abort lies in it."""
    path = golden("aiven") / "local-txn" / "txn-0" / f"{base:020d}.log"
    return path.read_bytes(), parse_txn_index(path.with_suffix(".txnindex").read_bytes())


def test_overlapping_segments_are_one_log(tmp_path: Path) -> None:
    logs, entries = zip(*map(source, BASES), strict=True)
    log, catalog = RemoteLog(), Catalog.open(tmp_path / "catalog.sqlite")
    for at, end in ((0, 144), (1, END)):  # the second begins in the middle of the first
        raw = logs[at] + logs[at + 1]
        indexes = replace(indexed(raw, BASES[at]), transaction=encode_txn_index([*entries[at], *entries[at + 1]]))
        segment = log.add(raw, BASES[at], end, indexes)
        catalog.finished(CatalogSegment(remote=segment, state=CopyState.COPY_FINISHED))
    aborted = [entry for some in entries for entry in some]

    async def work() -> None:
        reader = RemoteReader(log.store, catalog, tmp_path / "cache", FakeClock(), SMALL)
        data, offset = b"", 0
        while (found := await reader.read(PART, offset, max_bytes=2000, stop=FAR, committed=True)).length:
            stop = found.stop or 0
            named = {(txn.producer_id, txn.first_offset) for txn in found.aborted}
            data += content(found)
            assert named == {
                (entry.producer_id, entry.first_offset)
                for entry in aborted
                if entry.marker_offset >= offset and entry.first_offset < stop
            }
            offset = stop
        assert data == b"".join(logs)
        await reader.close()

    asyncio.run(work())
    catalog.close()
