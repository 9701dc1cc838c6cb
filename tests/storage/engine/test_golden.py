"""The engine held against recordings: what it writes, and what it makes of what Kafka wrote."""

from pathlib import Path

import pytest

from kit.golden import golden
from kit.logs import Place, golden_batches, golden_settings
from tierd.base.ids import TopicPartition
from tierd.storage.batch import parse_header
from tierd.storage.metadata import parse_partition_metadata
from tierd.storage.snapshot import ProducerEntry, parse_snapshot

LOG_APPEND = {"logappend", "logappend-plain"}
WRITTEN = [
    "codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "logappend", "logappend-plain", "broker-lz4",
    "broker-uncompressed", "idempotent", "txn", "timestamps", "tiny", "big", "prealloc", "multi",
]  # fmt: skip


def compare(ours: Path, kafkas: Path) -> None:
    """Every file of a partition has the same bytes; snapshots the same entries (their order is a hash table's)."""
    paths = sorted(path for path in kafkas.iterdir() if path.suffix != ".deleted")
    assert sorted(path.name for path in ours.iterdir()) == [path.name for path in paths]
    for path in paths:
        got, want = (ours / path.name).read_bytes(), path.read_bytes()
        if path.suffix == ".snapshot":
            assert by_id(got) == by_id(want), path.name
        else:
            assert got == want, path.name


def by_id(raw: bytes) -> list[ProducerEntry]:
    return sorted(parse_snapshot(raw), key=lambda entry: entry.producer_id)


@pytest.mark.parametrize("topic", WRITTEN)
def test_appending_the_same_batches_gives_the_same_files(topic: str, tmp_path: Path) -> None:
    source = golden("kafka") / "clean" / f"{topic}-0"
    place = Place(tmp_path)
    directory = place.open()
    tp = TopicPartition(topic, 0)
    topic_id = parse_partition_metadata((source / "partition.metadata").read_bytes())
    log = directory.create(tp, topic_id, golden_settings(topic))
    log.begin(0, 0)
    for raw in golden_batches(source):
        want = parse_header(raw)
        raw[:8] = bytes(8)
        now_ms = want.max_timestamp_ms if topic in LOG_APPEND else place.clock.now_ms() + 10**12
        done = log.append(raw, now_ms=now_ms, internal=True)
        assert (done.first_offset, done.duplicate) == (want.base_offset, False)
    directory.close(clean=True)
    compare(place.data / f"{topic}-0", source)


@pytest.mark.parametrize("recording", ["clean", "final"])
def test_opening_and_closing_changes_nothing(recording: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.adopt(recording)
    assert directory.unidentified == {}
    assert directory.strange == []
    directory.close(clean=True)
    for path in (golden("kafka") / recording).iterdir():
        if path.is_dir():
            compare(place.data / path.name, path)
    meta = (golden("kafka") / recording / "meta.properties").read_bytes()
    assert (place.data / "meta.properties").read_bytes() == meta
