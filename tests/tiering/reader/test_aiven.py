"""The buckets that Kafka with Aiven's plugin wrote: every byte of the source segments comes back."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kit.aiven import KEYS, TRANSFORMED, VARIANTS, recorded_bucket, recorded_ring
from kit.clock import FakeClock
from kit.golden import golden
from kit.remote_log import FAR, Rows, content, run
from tierd.base.errors import CorruptFile, StartRefused
from tierd.remote import crc
from tierd.remote.errors import KeyMissing
from tierd.remote.keyring import NO_KEYS, KeyRing
from tierd.remote.manifest import parse_manifest
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.storage.batch import walk
from tierd.storage.txnindex import parse_txn_index
from tierd.tiering.catalog import Catalog
from tierd.tiering.intake import entry_of, list_segments, row_of
from tierd.tiering.keys import check_keys
from tierd.tiering.losses import faults
from tierd.tiering.reader import ReaderOptions, RemoteReader
from tierd.tiering.seeds import seed_of

OPTIONS = ReaderOptions(first_bytes=1024, stretch_bytes=2048, range_bytes=8192, read_ahead=3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_byte_comes_back(variant: str, tmp_path: Path) -> None:
    store, rows = recorded_bucket(variant)
    first = rows.segments[0]
    local = golden("aiven") / f"local-{variant}" / f"{first.topic}-0"
    expected = b"".join((local / f"{row.base:020d}.log").read_bytes() for row in rows.segments)

    async def work() -> None:
        reader = RemoteReader(store, rows, tmp_path, FakeClock(), OPTIONS, recorded_ring())
        data, offset = b"", first.base
        while (slice := await reader.read(first.part, offset, max_bytes=4000, stop=FAR, committed=True)).length:
            data += content(slice)
            offset = slice.stop or 0
        assert data == expected
        await reader.close()

    run(work)


@pytest.mark.parametrize("variant", ["txn", "txn-enc"])
def test_aborted_transactions_of_a_recorded_bucket(variant: str, tmp_path: Path) -> None:
    store, rows = recorded_bucket(variant)
    first = rows.segments[0]
    local = golden("aiven") / f"local-{variant}" / f"{first.topic}-0"
    aborted = [
        entry
        for row in rows.segments
        if (path := local / f"{row.base:020d}.txnindex").exists()
        for entry in parse_txn_index(path.read_bytes())
    ]
    assert aborted

    async def work() -> None:
        reader = RemoteReader(store, rows, tmp_path, FakeClock(), OPTIONS, recorded_ring())
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


@pytest.mark.parametrize("variant", ["plain-chunks", "zstd", "enc", "enc-nocomp"])
def test_times_of_a_recorded_bucket(variant: str, tmp_path: Path) -> None:
    store, rows = recorded_bucket(variant)
    first = rows.segments[0]
    local = golden("aiven") / f"local-{variant}" / f"{first.topic}-0"
    headers = [h for row in rows.segments for _, h in walk((local / f"{row.base:020d}.log").read_bytes())]

    async def work() -> None:
        reader = RemoteReader(store, rows, tmp_path, FakeClock(), OPTIONS, recorded_ring())
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


# --- compressed and encrypted ones ---------------------------------------------------------------------------------
def damage(store: MemoryStore, key: str, at: int) -> None:
    raw = bytearray(store.get(key))
    raw[at] ^= 1
    store.put(key, raw, crc32c=crc.crc32c(raw))


async def first_bytes(store: MemoryStore, rows: Rows, directory: Path, ring: KeyRing, offset: int = 0) -> bytes:
    reader = RemoteReader(store, rows, directory, FakeClock(), OPTIONS, ring)
    try:
        part = rows.segments[0].part
        return content(await reader.read(part, offset, max_bytes=1, stop=FAR, committed=True))
    finally:
        await reader.close()


@pytest.mark.parametrize("variant", TRANSFORMED)
def test_a_read_fetches_the_chunks_that_it_needs(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, rows = recorded_bucket(variant)
    segment = rows.segments[1]
    key = segment.manifest_key
    chunks = parse_manifest(store.get(key), key).chunks
    asked: list[tuple[int | None, int | None]] = []
    get = store.get

    def watched(key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        if key == segment.log_key:
            asked.append((start, stop))
        return get(key, start, stop, if_match=if_match)

    monkeypatch.setattr(store, "get", watched)
    run(lambda: first_bytes(store, rows, tmp_path, recorded_ring(), segment.next_base - 1))
    ends = {chunks.chunk(number).stored.stop for number in range(chunks.count)}
    assert asked
    assert all(start in {0, *ends} and stop in ends for start, stop in asked)
    assert min(start or 0 for start, _ in asked) > segment.log_bytes // 4


@pytest.mark.parametrize("variant", ["enc", "enc-nocomp", "txn-enc"])
def test_without_the_key_a_read_says_which_one_is_missing(
    variant: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, rows = recorded_bucket(variant)
    assert {segment.key_id for segment in rows.segments} == {"key1"}
    with pytest.raises(KeyMissing, match="key 'key1'"):
        run(lambda: first_bytes(store, rows, tmp_path, NO_KEYS))
    assert "is encrypted under key 'key1'" in caplog.text


@pytest.mark.parametrize("variant", TRANSFORMED)
def test_a_damaged_object_gives_no_byte(variant: str, tmp_path: Path) -> None:
    store, rows = recorded_bucket(variant)
    for at in (0, 5, 1000):
        damage(store, rows.segments[0].log_key, at)
        rows.segments[0] = replace(rows.segments[0], log_etag=None)
        with pytest.raises(CorruptFile):
            run(lambda at=at: first_bytes(store, rows, tmp_path / str(at), recorded_ring()))  # type: ignore[misc]
        damage(store, rows.segments[0].log_key, at)


@pytest.mark.parametrize("variant", TRANSFORMED)
def test_what_was_damaged_on_the_way_is_fetched_once_more(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, rows = recorded_bucket(variant)
    expected = run(lambda: first_bytes(store, rows, tmp_path / "whole", recorded_ring()))
    get, seen = store.get, set[str]()

    def damaged_once(
        key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None
    ) -> bytes:
        raw = get(key, start, stop, if_match=if_match)
        if key in seen or key.endswith(".rsm-manifest"):
            return raw
        seen.add(key)
        return bytes(len(raw))

    monkeypatch.setattr(store, "get", damaged_once)
    assert run(lambda: first_bytes(store, rows, tmp_path / "again", recorded_ring())) == expected
    assert rows.segments[0].log_key in seen


def test_indexes_that_do_not_decrypt_are_done_without_but_for_aborted_transactions(tmp_path: Path) -> None:
    store, rows = recorded_bucket("txn-enc")
    segment = rows.segments[0]
    expected = run(lambda: first_bytes(store, rows, tmp_path / "whole", recorded_ring(), segment.next_base - 1))
    for part in (segment.layout.offset, segment.layout.timestamp):
        damage(store, segment.indexes_key, part.start)
    rows.segments[0] = replace(segment, indexes_etag=None, layout=replace(segment.layout, transaction=None))
    found = run(lambda: first_bytes(store, rows, tmp_path / "without", recorded_ring(), segment.next_base - 1))
    assert found == expected
    assert segment.layout.transaction is not None
    damage(store, segment.indexes_key, segment.layout.transaction.start)
    rows.segments[0] = replace(segment, indexes_etag=None)
    with pytest.raises(CorruptFile):
        run(lambda: first_bytes(store, rows, tmp_path / "aborted", recorded_ring()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_heads_and_lists_know_stored_sizes(variant: str) -> None:
    store, _ = recorded_bucket(variant)
    listed = list_segments(store, KEYS, "tier/")
    rows = [row for found in listed if (row := row_of(store, KEYS, found, {})) is not None]
    named = {row.remote.segment_id: entry_of(row) for row in rows}
    assert [row_of(store, KEYS, found, named) for found in listed] == rows
    assert faults(store, KEYS, rows) == {}
    assert all((row.remote.stored_bytes is None) == (variant not in TRANSFORMED) for row in rows)
    damage(store, rows[0].remote.log_key, 0)
    store.put(rows[-1].remote.log_key, b"", crc32c=0)
    assert set(faults(store, KEYS, rows)) == {rows[-1].remote.segment_id}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_producers_did_comes_out_of_the_last_segment(variant: str) -> None:
    store, rows = recorded_bucket(variant)
    last = rows.segments[-1]
    local = golden("aiven") / f"local-{variant}" / f"{last.topic}-0"
    seed = seed_of(Bucket(store, KEYS, "memory:", recorded_ring()), rows.segments)
    assert seed.snapshot == (local / f"{last.next_base:020d}.snapshot").read_bytes()
    assert seed.leader_epochs.startswith(b"0\n")


def test_no_start_without_a_key_that_segments_use(tmp_path: Path) -> None:
    store, _ = recorded_bucket("enc")
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    rows = [row for found in list_segments(store, KEYS, "tier/") if (row := row_of(store, KEYS, found, {}))]
    catalog.finished(*rows)
    assert catalog.key_uses() == {"key1": (3, sum(row.remote.log_bytes for row in rows))}
    check_keys(catalog, recorded_ring())
    with pytest.raises(StartRefused, match="3 segments under 'key1'"):
        check_keys(catalog, NO_KEYS)
    catalog.deleting(*rows)
    check_keys(catalog, NO_KEYS)
    catalog.close()
