"""Random logs cleaned by a real Kafka and by us, three times: the same batches are left, record for record."""

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kit.compaction import COMPACTED, batches, clean, markers, records, shapes
from kit.kafka import opened
from kit.keyed import History
from kit.logs import TOPIC_ID, Place
from tierd.base.ids import TopicPartition
from tierd.config.topic import HOUR_MS, MIB
from tierd.storage import names
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.compression import Codec
from tierd.storage.directory import LogDirectory
from tierd.storage.txnindex import parse_txn_index

pytestmark = pytest.mark.kafka

TOPIC = "t"
EACH = tuple(Codec)
CODECS: Sequence[tuple[Codec, ...]] = ((Codec.NONE,), (Codec.NONE,), *((codec,) for codec in EACH[1:]), EACH, EACH)
"""Of each partition's batches."""
SETTINGS = replace(COMPACTED, delete_retention_ms=1)
GROUPED = replace(SETTINGS, internal_segment_bytes=None, segment_index_bytes=10 * MIB)
"""Kafka's own limits, by which neighbours are merged."""
KAFKA = {
    "log.cleaner.enable": "true",
    "log.cleanup.policy": "compact",
    "log.cleaner.min.cleanable.ratio": "0.0",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.delete.retention.ms": "1",
    "log.index.interval.bytes": "256",
    "log.segment.delete.delay.ms": "0",
}
WAIT_S = 60


@pytest.mark.timeout(300)
def test_three_cleanings(tmp_path: Path) -> None:
    histories = [
        History(Random(number), keys=5 + 4 * number, codecs=codecs, clock_ms=now_ms() - HOUR_MS, large=0.2)
        for number, codecs in enumerate(CODECS)
    ]
    theirs: Path | None = None
    for cleaning in range(3):
        ours = Place(tmp_path / f"ours-{cleaning}", SETTINGS)
        if theirs is not None:
            # Both go on with what Kafka left: horizons, emptied batches and indexes as it writes them.
            take_over(theirs, ours.data)
        write(ours, histories, 10 * cleaning)
        theirs = cleaned_by_kafka(tmp_path / f"kafka-{cleaning}", ours.data)
        cleaned_by_us(ours)
        compare(ours.data, theirs, histories)
    assert theirs is not None
    left = [header for tp in _partitions(theirs) for header, _ in batches(theirs / names.partition_directory(tp))]
    assert any(header.delete_horizon for header in left)
    assert any(not header.count for header in left)
    assert sum(header.control for header in left) < sum(history.markers for history in histories)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write(place: Place, histories: list[History], epoch: int) -> None:
    with _opened(place) as directory:
        for number, history in enumerate(histories):
            tp = TopicPartition(TOPIC, number)
            log = directory.logs.get(tp) or directory.create(tp, TOPIC_ID, SETTINGS)
            log.begin(epoch, 0)
            history.write(log, 60)
            history.settle(log)


@contextmanager
def _opened(place: Place) -> Iterator[LogDirectory]:
    directory = place.open()
    yield directory
    directory.close(clean=True)


def cleaned_by_us(place: Place) -> None:
    with _opened(place) as directory:
        for log in directory.logs.values():
            log.settings = GROUPED
            assert clean(log, now_ms()) is not None
            assert log.compaction.plan(None, now_ms()) is None


def cleaned_by_kafka(home: Path, source: Path) -> Path:
    stops = {tp: _active_base(source / names.partition_directory(tp)) for tp in _partitions(source)}
    with opened(home, source, [TOPIC], KAFKA) as kafka:
        deadline = time.monotonic() + WAIT_S
        while _checkpoint(kafka.data) != stops:
            assert time.monotonic() < deadline, (stops, _checkpoint(kafka.data))
            threading.Event().wait(0.1)
    return kafka.data


def _partitions(data: Path) -> list[TopicPartition]:
    found = (names.parse_partition_directory(path.name) for path in data.iterdir() if path.is_dir())
    return sorted(tp for tp in found if tp is not None and tp.topic == TOPIC)


def _active_base(directory: Path) -> int:
    return max(int(path.stem) for path in directory.glob("*.log"))


def _checkpoint(data: Path) -> dict[TopicPartition, int]:
    raw = (data / names.CLEANER_CHECKPOINT).read_bytes()
    return parse_checkpoint(raw) if raw else {}


def take_over(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for tp in _partitions(source):
        shutil.copytree(source / names.partition_directory(tp), target / names.partition_directory(tp))
    for name in (names.RECOVERY_POINT_CHECKPOINT, names.CLEANER_CHECKPOINT, names.CLEAN_SHUTDOWN):
        shutil.copy(source / name, target / name)


def compare(ours: Path, theirs: Path, histories: list[History]) -> None:
    for tp, history in zip(_partitions(ours), histories, strict=True):
        one, other = (data / names.partition_directory(tp) for data in (ours, theirs))
        assert records(one) == records(other), tp
        assert markers(one) == markers(other), tp
        assert shapes(one) == shapes(other), tp
        for record in records(one):
            assert record == history.written[record.offset]
        assert _segments(one) == _segments(other), tp
        assert _aborted(one) == _aborted(other), tp


def _segments(directory: Path) -> dict[str, int]:
    """Files below the active segment; sizes where both write the same bytes."""
    active = f"{_active_base(directory):020d}"
    plain = all(header.codec == Codec.NONE for header, _ in batches(directory))
    sized = (".log", ".index", ".timeindex") if plain else ()
    return {
        path.name: path.stat().st_size if path.suffix in sized else 0
        for path in directory.glob("0*")
        if path.stem < active and path.suffix != ".deleted"
    }


def _aborted(directory: Path) -> dict[str, list[object]]:
    return {path.name: [*parse_txn_index(path.read_bytes())] for path in directory.glob("*.txnindex")}
