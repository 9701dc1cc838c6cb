"""What Kafka's cleaner left of three recorded topics is what ours leaves of the same input, made again here."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.compaction import clean, markers, records
from kit.golden import golden
from kit.logs import T0, Place, golden_settings
from tierd.base.ids import TopicPartition, Uuid
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch
from tierd.storage.compression import Codec
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.log import Log
from tierd.storage.records import Record

ID = Uuid(bytes(range(16)))
LATER = T0 + 1000 * 86_400_000
"""The broker's clock when it was recorded, about."""


def _value(i: int) -> bytes:
    """As the program that made the recordings does."""
    rest = "".join(f"{i * 31 + j}," for j in range(i % 23))
    return f'{{"id":{i},"name":"sensor-{i % 17}","v":[{rest}0]}}'.encode()


def _plain(count: int, keys: int, codec: Codec) -> Iterator[bytes]:
    """Batches of 25 records by one idempotent producer, every 37th a tombstone."""
    for first in range(0, count, 25):
        rows = [
            Record(i - first, T0 + i * 1000, f"k{i * 7 % keys}".encode(), None if i % 37 == 36 else _value(i))
            for i in range(first, first + 25)
        ]
        yield encode_batch(rows, codec=codec, producer_id=9, producer_epoch=0, base_sequence=first)


def _transactions() -> Iterator[bytes]:
    """40 transactions of 8 records, every fourth aborted; each raises the producer's epoch."""
    for number in range(40):
        rows = [
            Record(k, T0 + i * 1000, f"k{i % 30}".encode(), _value(i))
            for k, i in enumerate(range(number * 8, number * 8 + 8))
        ]
        yield encode_batch(rows, producer_id=17, producer_epoch=number, base_sequence=0, attributes=TRANSACTIONAL)
        yield encode_control_batch(
            0,
            ControlType.ABORT if number % 4 == 3 else ControlType.COMMIT,
            producer_id=17,
            producer_epoch=number + 1,
            timestamp_ms=LATER,
            coordinator_epoch=0,
        )


def _written(place: Place, topic: str, source: Iterator[bytes], rolls: list[int]) -> Log:
    """The input in a log whose segments begin where the recorded ones do, or at *rolls*."""
    directory = place.open()
    log = directory.create(TopicPartition(topic, 0), ID, golden_settings(topic))
    log.begin(0, 0)
    for batch in source:
        if log.log_end in rolls:
            log.roll()
        log.append(memoryview(bytearray(batch)), now_ms=LATER, internal=True)
    return log


CASES: list[tuple[str, Callable[[], Iterator[bytes]]]] = [
    ("compacted", lambda: _plain(600, 50, Codec.NONE)),
    ("compacted-zstd", lambda: _plain(900, 60, Codec.ZSTD)),
    ("compacted-txn", _transactions),
]


@pytest.mark.parametrize(("topic", "source"), CASES, ids=[topic for topic, _ in CASES])
def test_the_same_records_survive(topic: str, source: Callable[[], Iterator[bytes]], tmp_path: Path) -> None:
    recorded = golden("kafka") / "clean" / f"{topic}-0"
    bases = [int(path.stem) for path in sorted(recorded.glob("*.log"))]
    log = _written(Place(tmp_path), topic, source(), bases)
    assert clean(log, LATER) is not None
    assert records(log.directory) == records(recorded)
    assert markers(log.directory) == markers(recorded)
