"""The buckets that Kafka 4.3.1 with Aiven's plugin wrote: codecs give back the recorded bytes."""

from dataclasses import replace

import pytest
import zstandard

from kit.aiven import VARIANTS, local_segment, manifests
from kit.golden import golden
from tierd.base.errors import CorruptFile
from tierd.remote.chunks import Chunk, FixedChunks, VariableChunks, chunks_over, plain_chunks
from tierd.remote.indexes import join_indexes, split_indexes
from tierd.remote.keys import Keys, ObjectKind, SegmentName, SegmentObject
from tierd.remote.manifest import encode_manifest, parse_manifest

PLAIN = ("plain", "plain-chunks", "txn")


@pytest.mark.parametrize("variant", VARIANTS)
def test_manifests_come_back_byte_for_byte(variant: str) -> None:
    for path in manifests(variant):
        raw = path.read_bytes()
        assert encode_manifest(parse_manifest(raw, path.name)) == raw


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_key_is_understood_and_made_again(variant: str) -> None:
    root = golden("aiven") / f"bucket-{variant}"
    keys = Keys("tier/")
    for path in root.rglob("*"):
        if path.is_file():
            key = path.relative_to(root).as_posix()
            parsed = keys.parse(key)
            assert isinstance(parsed, SegmentObject)
            assert keys.segment(parsed.name, parsed.kind) == key


@pytest.mark.parametrize("variant", VARIANTS)
def test_manifest_agrees_with_its_key_and_its_objects(variant: str) -> None:
    root = golden("aiven") / f"bucket-{variant}"
    for path in manifests(variant):
        manifest = parse_manifest(path.read_bytes(), path.name)
        parsed = Keys("tier/").parse(path.relative_to(root).as_posix())
        assert isinstance(parsed, SegmentObject)
        name = SegmentName(manifest.topic, manifest.topic_id, manifest.partition, manifest.base, manifest.segment_id)
        assert parsed == SegmentObject(name, ObjectKind.MANIFEST)
        assert manifest.chunks.stored_bytes == path.with_suffix(".log").stat().st_size
        assert manifest.layout.size_bytes == path.with_suffix(".indexes").stat().st_size
        assert manifest.size_bytes == local_segment(variant, name, ".log").stat().st_size
        assert (manifest.encryption is not None) == ("enc" in variant)


@pytest.mark.parametrize("variant", PLAIN)
def test_plain_objects_are_the_source_files(variant: str) -> None:
    for path in manifests(variant):
        manifest = parse_manifest(path.read_bytes(), path.name)
        name = SegmentName(manifest.topic, manifest.topic_id, manifest.partition, manifest.base, manifest.segment_id)
        after = replace(name, base=manifest.next_base)
        raw = path.with_suffix(".indexes").read_bytes()
        files = split_indexes(raw, manifest.layout, path.name)
        assert path.with_suffix(".log").read_bytes() == local_segment(variant, name, ".log").read_bytes()
        assert files.offset == local_segment(variant, name, ".index").read_bytes()
        assert files.timestamp == local_segment(variant, name, ".timeindex").read_bytes()
        assert files.producer_snapshot == local_segment(variant, after, ".snapshot").read_bytes()
        assert files.leader_epoch.startswith(b"0\n")
        if variant == "txn":
            assert files.transaction == local_segment(variant, name, ".txnindex").read_bytes()
        assert join_indexes(files) == (raw, manifest.layout)
        assert isinstance(manifest.chunks, FixedChunks)
        assert manifest.chunks == plain_chunks(manifest.size_bytes, manifest.chunks.original_chunk_bytes)
        assert manifest.chunks.stored_bytes == manifest.size_bytes


def test_chunks_of_a_compressed_segment_give_its_bytes() -> None:
    for path in manifests("zstd"):
        manifest = parse_manifest(path.read_bytes(), path.name)
        assert isinstance(manifest.chunks, VariableChunks)
        stored = path.with_suffix(".log").read_bytes()

        def original(chunk: Chunk, stored: bytes = stored) -> bytes:
            return zstandard.ZstdDecompressor().decompress(stored[chunk.stored.start : chunk.stored.stop])

        name = SegmentName(manifest.topic, manifest.topic_id, manifest.partition, manifest.base, manifest.segment_id)
        source = local_segment("zstd", name, ".log").read_bytes()
        assert b"".join(map(original, chunks_over(manifest.chunks, 0, len(source)))) == source
        middle = chunks_over(manifest.chunks, 70_000, 140_000)
        assert b"".join(map(original, middle)) == source[middle[0].original.start : middle[-1].original.stop]
        assert (middle[0].original.start, middle[-1].original.stop) == (65_536, 196_608)


def test_every_truncation_of_a_manifest_is_a_clear_error() -> None:
    raw = manifests("txn-enc")[0].read_bytes()
    for size in range(len(raw)):
        with pytest.raises(CorruptFile, match=r"^the-manifest: byte "):
            parse_manifest(raw[:size], "the-manifest")


def test_indexes_shorter_than_the_layout_are_refused() -> None:
    path = manifests("plain")[0]
    layout = parse_manifest(path.read_bytes(), path.name).layout
    with pytest.raises(CorruptFile):
        split_indexes(path.with_suffix(".indexes").read_bytes()[:-1], layout, "x.indexes")
