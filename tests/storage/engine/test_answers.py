"""Kafka's 3,812 answers about its own files, asked of our logs over the same files (all of them local).

What may differ is what tests of the whole daemon allow, too: reads end at batch boundaries and may go on into later
segments; aborted lists may reach further or less far beyond the bytes; a record is found by time where Kafka gives up
because compaction emptied the first segment.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from kit.golden import golden
from kit.logs import Place, by_time, largest_timestamp, log_bytes, slice_bytes
from tierd.base.ids import TopicPartition
from tierd.storage.batch import walk
from tierd.storage.directory import LogDirectory
from tierd.storage.errors import OffsetOutOfRange
from tierd.storage.log import Log
from tierd.storage.txnindex import ENTRY_BYTES

Row = dict[str, Any]


def rows() -> list[Row]:
    path = golden("kafka") / "final.answers.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def final(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogDirectory]:
    directory = Place(tmp_path_factory.mktemp("final")).adopt("final")
    yield directory
    directory.close(clean=False)


def list_offset(log: Log, row: Row) -> tuple[int, int]:
    """(offset, timestamp) as the broker would answer."""
    wanted, committed = row["timestamp"], row["isolation"] == 1
    if wanted == -1:
        return (log.last_stable if committed else log.high_watermark), -1
    if wanted in (-2, -4):
        return (log.log_start if wanted == -2 else log.local_start), -1
    found = largest_timestamp(log, committed=committed) if wanted == -3 else by_time(log, wanted, committed=committed)
    return (-1, -1) if found is None else (found.offset, found.timestamp_ms)


def list_offset_differs(log: Log, row: Row) -> str | None:
    if row["timestamp"] == -5:
        return None  # the bucket's business
    got, want = list_offset(log, row), (row["offset"], row["ts"])
    if got != want and not (row["timestamp"] >= 0 and want == (-1, -1) and got[1] >= row["timestamp"]):
        return f"{got}, Kafka says {want}"
    if row["timestamp"] != -1 and got == want and (log.epoch_at(got[0]) if got[0] >= 0 else -1) != row["leader_epoch"]:
        return f"epoch {log.epoch_at(got[0])}, Kafka says {row['leader_epoch']}"
    return None


def fetch_differs(log: Log, row: Row, known: set[tuple[int, int]]) -> str | None:
    committed = row["isolation"] == 1
    limit = min(row["partition_max_bytes"], row["max_bytes"])
    try:
        found = log.read(row["fetch_offset"], limit, committed=committed)
    except OffsetOutOfRange:
        return None if row["error"] == 1 else "out of range"
    found.release()
    if row["error"]:
        return f"no error, Kafka says {row['error']}"
    raw = slice_bytes(log, row["fetch_offset"], limit, committed=committed)
    assert len(raw) == found.length
    if (log.high_watermark, log.last_stable, log.log_start) != (
        row["high_watermark"], row["last_stable_offset"], row["log_start_offset"]
    ):  # fmt: skip
        return "watermarks"
    whole = row["whole_bytes"]
    if not row["bytes"]:
        return "bytes where Kafka has none" if raw else None
    if not whole <= len(raw) <= max(limit, row["batches"][0][1]):
        return f"{len(raw)} bytes, Kafka has {row['bytes']}"
    if hashlib.sha256(raw[:whole]).hexdigest() != row["whole_sha256"]:
        return "other bytes"
    return aborted_differ(row, [(a.producer_id, a.first_offset) for a in found.aborted], known, raw)


def aborted_differ(row: Row, got: list[tuple[int, int]], known: set[tuple[int, int]], raw: bytes) -> str | None:
    last = max(header.last_offset for _, header in walk(raw))
    want = [tuple(pair) for pair in row["aborted"] or []]
    missing = [pair for pair in want if pair[1] <= last and pair not in got]
    strange = [pair for pair in got if pair not in known]
    return f"aborted: missing {missing}, strange {strange}" if missing or strange else None


def test_our_answers_are_kafkas(final: LogDirectory) -> None:
    known: dict[str, set[tuple[int, int]]] = defaultdict(set)
    wrong: list[str] = []
    asked = 0
    for row in rows():
        known[row["topic"]].update(tuple(pair) for pair in row.get("aborted") or [])
    for row in rows():
        if row["api"] == "AbortedTransactions":
            continue
        asked += 1
        log = final.logs[TopicPartition(row["topic"], 0)]
        if row["api"] == "ListOffsets":
            why = list_offset_differs(log, row)
        else:
            why = fetch_differs(log, row, known[row["topic"]])
        if why is not None:
            wrong.append(f"{row}: {why}")
    assert asked == 3812
    assert wrong == []


def test_aborted_transactions_of_a_range(final: LogDirectory) -> None:
    log = final.logs[TopicPartition("txn", 0)]
    everything = log.aborted(0, log.log_end)
    files = (golden("kafka") / "final" / "txn-0").glob("*.txnindex")
    assert len(everything) == sum(path.stat().st_size for path in files) // ENTRY_BYTES
    first = everything[0]
    assert first in log.aborted(first.first_offset, first.first_offset + 1)
    assert log.aborted(log.log_end, log.log_end) == ()


def test_reading_on_and_on_gives_the_files(final: LogDirectory) -> None:
    for tp, log in final.logs.items():
        if tp.topic == "delrec":
            continue  # its first segment begins below log start
        files = sorted((golden("kafka") / "final" / f"{tp}").glob("*.log"))
        assert log_bytes(log) == b"".join(path.read_bytes() for path in files), tp
