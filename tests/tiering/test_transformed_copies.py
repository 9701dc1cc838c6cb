"""Segments that are compressed or encrypted on their way into the bucket: what lands there, and who reads it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kit import aiven_decoder
from kit.aiven import TRANSFORMED, VARIANTS, manifests
from kit.clock import FakeClock
from kit.folder_tier import view_of
from kit.golden import golden
from kit.remote_log import FAR, content
from kit.tierer_bench import KEYS, REMOTE, SETTINGS, Bench, drive, who
from tierd.base.errors import CorruptFile
from tierd.config.model import Remote
from tierd.config.topic import KIB, MIB
from tierd.remote.crc import crc32c
from tierd.remote.extras import from_metadata
from tierd.remote.keyring import KeyRing
from tierd.remote.manifest import parse_manifest
from tierd.storage import names
from tierd.storage.batch import encode_batch
from tierd.storage.compression import Codec
from tierd.storage.index import IndexEntry, encode_index
from tierd.storage.records import Record
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.buffers import PartBuffers
from tierd.tiering.copier import Copier, Ownership
from tierd.tiering.intake import entry_of, list_segments, row_of
from tierd.tiering.losses import faults
from tierd.tiering.reader import ReaderOptions, RemoteReader
from tierd.tiering.storing import is_worth_compressing

ZSTD = Remote(url="file:/memory", compression="zstd", chunk_bytes=64 * KIB, part_bytes=5 * MIB)
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OWNER = Ownership(epoch=5, incarnation=None)
OPTIONS = ReaderOptions(first_bytes=1024, stretch_bytes=2048, range_bytes=8192, read_ahead=3)


def decoded(bench: Bench, stem: str) -> aiven_decoder.Decoded:
    store = bench.store
    return aiven_decoder.decode(
        store.get(stem + ".rsm-manifest"), store.get(stem + ".log"), store.get(stem + ".indexes"), {}
    )


async def read_back(bench: Bench, view: PartitionView, directory: Path) -> bytes:
    """All that is committed, through the reader."""
    reader = RemoteReader(bench.store, bench.catalog, directory, FakeClock(), OPTIONS, bench.tierer.state.bucket.ring)
    data, offset = b"", view.closed[0].base
    try:
        while (slice := await reader.read(view.id, offset, max_bytes=20_000, stop=FAR, committed=True)).length:
            data += content(slice)
            offset = slice.stop or 0
    finally:
        await reader.close()
    return data


def logs(view: PartitionView) -> list[bytes]:
    return [(view.directory / names.log_file(one.base)).read_bytes() for one in view.closed]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_decoder_reads_the_recordings(variant: str) -> None:
    keys = {"key1": aiven_decoder.private_key(golden("aiven") / "keys" / "private.pem")}
    for path in manifests(variant):
        stem = path.with_suffix("")
        raw = path.read_bytes(), stem.with_suffix(".log").read_bytes(), stem.with_suffix(".indexes").read_bytes()
        found = aiven_decoder.decode(*raw, keys)
        topic = found.manifest["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]
        local = golden("aiven") / f"local-{variant}" / f"{topic['topic']}-{topic['partition']}"
        assert found.log == (local / f"{stem.name[:20]}.log").read_bytes()
        assert ("encryption" in found.manifest or found.manifest["compression"]) == (variant in TRANSFORMED)


@pytest.mark.parametrize("name", ["codec-none-0", "txn-0", "idempotent-0", "timestamps-0"])
def test_compressed_segments_are_smaller_and_come_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt(name)
        await bench.open(who())
        await bench.copy()
        rows = [row for row in bench.catalog.segments(view.id) if row.remote.size_bytes]
        assert len(rows) == len(view.closed)
        for row, segment in zip(rows, view.closed, strict=True):
            remote, base = row.remote, segment.base
            found = decoded(bench, remote.stem)
            assert found.manifest["compression"] is True
            assert found.log == (view.directory / names.log_file(base)).read_bytes()
            assert found.indexes["offset"] == (view.directory / names.index_file(base)).read_bytes()
            assert remote.size_bytes == segment.size_bytes
            assert remote.stored_bytes is not None
            assert remote.stored_bytes < remote.size_bytes
            info = bench.store.head(remote.manifest_key)
            assert from_metadata(info.metadata).log_crc == remote.log_crc == crc32c(bench.store.get(remote.log_key))
        assert faults(bench.store, KEYS, rows) == {}
        assert await read_back(bench, view, tmp_path / "cache") == b"".join(logs(view))
        assert bench.catalog.remote_partition(view.id).size_bytes == sum(map(len, logs(view)))
        listed = list_segments(bench.store, KEYS, "p/")
        for named in ({}, {row.remote.segment_id: entry_of(row) for row in rows}):
            taken = [row_of(bench.store, KEYS, found, named) for found in listed]
            assert [one.remote.stored_bytes for one in taken if one] == [row.remote.stored_bytes for row in rows]

    drive(tmp_path, work, ZSTD)


@pytest.mark.parametrize("name", ["codec-zstd-0", "codec-lz4-0", "codec-gzip-0", "codec-snappy-0"])
def test_what_producers_compressed_is_stored_as_it_is(tmp_path: Path, name: str) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt(name)
        await bench.open(who())
        await bench.copy()
        for row in bench.catalog.segments(view.id):
            assert row.remote.stored_bytes is None
            assert (
                bench.store.get(row.remote.log_key) == (view.directory / names.log_file(row.remote.base)).read_bytes()
            )
            assert decoded(bench, row.remote.stem).manifest["compression"] is False

    drive(tmp_path, work, ZSTD)


@pytest.mark.parametrize("remote", [REMOTE, ZSTD], ids=["plain", "compressed"])
@pytest.mark.parametrize("name", ["txn-0", "codec-zstd-0"])
def test_encrypted_segments_come_back_byte_for_byte_to_who_has_the_key(
    tmp_path: Path, name: str, remote: Remote
) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt(name)
        await bench.open(who())
        await bench.copy()
        seen = []
        for row in bench.catalog.segments(view.id):
            stem = row.remote.stem
            raw = (
                bench.store.get(stem + ".rsm-manifest"),
                bench.store.get(stem + ".log"),
                bench.store.get(stem + ".indexes"),
            )
            found = aiven_decoder.decode(*raw, {"k": KEY})
            assert found.log == (view.directory / names.log_file(row.remote.base)).read_bytes()
            assert found.manifest["compression"] is (remote is ZSTD and name == "txn-0")
            snapshot = view.directory / names.snapshot_file(row.remote.next_base)
            assert found.indexes["producerSnapshot"] == snapshot.read_bytes()
            assert (row.remote.key_id, row.remote.stored_bytes) == ("k", len(raw[1]))
            assert from_metadata(bench.store.head(row.remote.manifest_key).metadata).log_crc == crc32c(raw[1])
            seen.append((found.manifest["encryption"]["dataKey"], found.manifest["encryption"]["aad"], raw[1][:12]))
        assert all(len(set(column)) == len(view.closed) for column in zip(*seen, strict=True))
        assert await read_back(bench, view, tmp_path / "cache") == b"".join(logs(view))
        seed = await bench.tierer.seed(view.id)
        assert seed.snapshot == (view.directory / names.snapshot_file(view.active_base)).read_bytes()

    drive(tmp_path, work, remote, KeyRing({"k": KEY}, "k"))


def test_without_the_setting_nothing_is_looked_at_or_changed(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        assert [row.remote.stored_bytes for row in bench.catalog.segments(view.id)] == [None] * len(view.closed)

    drive(tmp_path, work)


def made(directory: Path, sizes: list[tuple[int, Codec]], *, indexed: bool = True) -> tuple[PartitionView, SegmentView]:
    """A partition of which the closed segment has one batch per (bytes of its value, codec)."""
    view = view_of(golden("kafka") / "clean" / "codec-none-0", SETTINGS)
    directory.mkdir()
    raw, entries = b"", []
    for offset, (value_bytes, codec) in enumerate(sizes):
        entries.append(IndexEntry(offset, len(raw)))
        text = (b"%d words " % offset) * (value_bytes // 8)
        raw += encode_batch([Record(offset, 1000 + offset, b"k", text + os.urandom(value_bytes // 4))], codec=codec)
    (directory / names.log_file(0)).write_bytes(raw)
    if indexed:
        (directory / names.index_file(0)).write_bytes(encode_index(entries[1:], 0))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    segment = replace(view.closed[0], base=0, next_base=len(sizes), size_bytes=len(raw))
    return replace(view, directory=directory, closed=(segment,), active_base=len(sizes), log_end=len(sizes)), segment


@pytest.mark.parametrize("indexed", [True, False])
def test_the_batches_decide_not_the_first_one(tmp_path: Path, indexed: bool) -> None:
    plain, packed = (100, Codec.NONE), (100, Codec.ZSTD)
    cases = {
        (plain,) * 20: True,
        (packed,) * 20: False,
        (plain, *(packed,) * 20): False,
        (packed, *(plain,) * 20): True,
    }
    for number, (sizes, worth) in enumerate(cases.items()):
        view, segment = made(tmp_path / str(number), list(sizes), indexed=indexed)
        assert is_worth_compressing(view.directory, segment) is worth
    index = view.directory / names.index_file(0)
    index.write_bytes(b"\0\0\0\1\0\0\0\3")  # leads nowhere
    assert is_worth_compressing(view.directory, segment)


def test_parts_are_cut_wherever_they_are_full(tmp_path: Path) -> None:
    """An object of several parts whose size nobody knew before; its CRC-32C is that of the whole."""
    view, segment = made(tmp_path / "t-0", [(30 * KIB, Codec.NONE)] * 40)

    async def work(bench: Bench) -> None:
        await bench.open(who())
        for part_bytes in (100_000, 64 * MIB):
            row = Copier(
                replace(bench.tierer.copying._parts(), buffers=PartBuffers(part_bytes)), OWNER, view, segment
            ).run()
            remote = row.remote
            assert remote.stored_bytes is not None
            assert 3 * 100_000 < remote.stored_bytes < segment.size_bytes
            stored = bench.store.get(remote.log_key)
            assert (len(stored), crc32c(stored)) == (remote.stored_bytes, remote.log_crc)
            assert decoded(bench, remote.stem).log == (view.directory / names.log_file(0)).read_bytes()
            manifest = parse_manifest(bench.store.get(remote.manifest_key), "m")
            assert manifest.chunks.count == -(-segment.size_bytes // (64 * KIB))

    drive(tmp_path, work, ZSTD)


def test_a_rotten_segment_is_not_committed(tmp_path: Path) -> None:
    view, segment = made(tmp_path / "t-0", [(10 * KIB, Codec.NONE)] * 30)
    path = view.directory / names.log_file(0)
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)

    async def work(bench: Bench) -> None:
        await bench.open(who())
        with pytest.raises(CorruptFile):
            Copier(bench.tierer.copying._parts(), OWNER, view, segment).run()
        assert not [key for key in bench.objects() if key.endswith(".rsm-manifest")]

    drive(tmp_path, work, ZSTD)
