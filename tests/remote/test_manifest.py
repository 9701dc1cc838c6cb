"""Manifests that lie, and those of other writers."""

import contextlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.chunks import decode_sizes, encode_sizes, plain_chunks
from tierd.remote.indexes import IndexFiles, join_indexes, split_indexes
from tierd.remote.manifest import EpochStart, Manifest, encode_manifest, parse_manifest

LAYOUT = join_indexes(IndexFiles(offset=b"12345678", timestamp=b"", producer_snapshot=b"snap", leader_epoch=b"0\n0\n"))[
    1
]

uuids = st.binary(min_size=16, max_size=16).map(Uuid)
offsets = st.integers(0, 2**62)


@st.composite
def made_manifests(draw: st.DrawFn) -> Manifest:
    base = draw(offsets)
    return Manifest(
        topic=draw(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)),
        topic_id=draw(uuids),
        partition=draw(st.integers(0, 2**31 - 1)),
        segment_id=draw(uuids),
        base=base,
        next_base=base + draw(st.integers(1, 2**31)),
        largest_timestamp_ms=draw(st.none() | st.integers(0, 2**48)),
        node_id=draw(st.integers(0, 2**31 - 1)),
        written_ms=draw(st.integers(0, 2**48)),
        epochs=tuple(EpochStart(e, base) for e in sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=4)))),
        chunks=plain_chunks(draw(st.integers(0, 2**33)), draw(st.integers(1, 2**31 - 1))),
        layout=LAYOUT,
        transactions_empty=draw(st.none() | st.booleans()),
    )


@given(made_manifests())
def test_round_trip(manifest: Manifest) -> None:
    assert parse_manifest(encode_manifest(manifest), "x") == manifest


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40).map(tuple))
def test_sizes_round_trip(sizes: tuple[int, ...]) -> None:
    assert decode_sizes(encode_sizes(sizes), "x") == sizes


def sample() -> bytes:
    return encode_manifest(
        Manifest(
            topic="t",
            topic_id=Uuid(bytes(16)),
            partition=0,
            segment_id=Uuid(bytes(range(16))),
            base=10,
            next_base=20,
            largest_timestamp_ms=None,
            node_id=1,
            written_ms=5,
            epochs=(EpochStart(3, 10),),
            chunks=plain_chunks(5000),
            layout=LAYOUT,
            transactions_empty=True,
        )
    )


def test_ten_thousand_mutations_are_parsed_or_refused() -> None:
    chance = random.Random(3)
    whole = sample()
    for _ in range(10_000):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        with contextlib.suppress(CorruptFile):  # any other error fails the test
            parse_manifest(bytes(raw), "x")


def test_unknown_fields_are_tolerated() -> None:
    document = json.loads(sample())
    document["later"] = {"a": 1}
    document["segmentIndexes"]["bloom"] = {"position": 0, "size": 1}
    assert parse_manifest(json.dumps(document).encode(), "x") == parse_manifest(sample(), "x")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["version"], "2", "version '2'"),
        (["chunkIndex", "type"], "striped", "striped"),
        (["chunkIndex", "finalTransformedChunkSize"], None, "finalTransformedChunkSize"),
        (["chunkIndex", "originalChunkSize"], 0, "chunkIndex.originalChunkSize"),
        (["segmentIndexes", "offset", "position"], -1, "segmentIndexes.offset.position"),
        (["remoteLogSegmentMetadata", "endOffset"], 9, "before their start"),
        (["remoteLogSegmentMetadata", "remoteLogSegmentId", "id"], "short", "22 characters"),
        (["remoteLogSegmentMetadata", "segmentLeaderEpochs"], {"x": 1}, "x"),
    ],
)
def test_what_is_wrong_is_named(path: list[str], value: object, said: str) -> None:
    document = json.loads(sample())
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(CorruptFile, match=said):
        parse_manifest(json.dumps(document).encode(), "x")


@given(*[st.binary(max_size=50)] * 4, st.none() | st.binary(max_size=50))
def test_indexes_round_trip(offset: bytes, timestamp: bytes, snapshot: bytes, epochs: bytes, txn: bytes | None) -> None:
    files = IndexFiles(
        offset=offset, timestamp=timestamp, producer_snapshot=snapshot, leader_epoch=epochs, transaction=txn
    )
    raw, layout = join_indexes(files)
    assert split_indexes(raw, layout, "x") == files
    assert layout.size_bytes == len(raw)
