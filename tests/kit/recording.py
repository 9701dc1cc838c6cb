"""Ask a broker about its partitions and write its answers down, so that `answers.check` can hold another one to them.

The questions follow from what is there: every batch's edges, every kind of time, limits on both sides of a batch.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kit.answers import Asker, Fetched
from tierd.storage.header import BatchHeader, parse_header
from tierd.storage.txnindex import parse_txn_index

ALL = 50 * 1024 * 1024
SPECIAL_TIMES = (-1, -2, -3, -4, -5, 0, 2**62)
_PIECES = 14
"""About how many places of a log are asked about."""


def record(address: str, topics: Iterable[str], data: Path, into: Path) -> Path:
    """Ask about partition 0 of each topic; give the file with the answers, in the form of `final.answers.jsonl`.

    *data* is the broker's data directory: what it knows of aborted transactions is noted, too.
    """
    with Asker(address) as asker, into.open("w") as out:
        for topic in topics:
            headers = _headers(asker, topic)
            ever = {"api": "AbortedTransactions", "aborted": _aborted(data, topic)}
            for row in (ever, *_times(asker, topic, headers), *_fetches(asker, topic, headers)):
                out.write(json.dumps({"topic": topic, **row}) + "\n")
    return into


def _headers(asker: Asker, topic: str) -> list[BatchHeader]:
    """Every batch that the broker gives out, from log start on."""
    offset, found = asker.list_offsets(topic, -2).offset, []
    while batches := _batches(asker.fetch(topic, offset, ALL).records):
        found += batches
        offset = batches[-1].next_offset
    return found


def _aborted(data: Path, topic: str) -> list[tuple[int, int]]:
    files = sorted((data / f"{topic}-0").glob("*.txnindex"))
    entries = [entry for file in files for entry in parse_txn_index(file.read_bytes(), str(file))]
    return [(entry.producer_id, entry.first_offset) for entry in entries]


def _batches(records: bytes) -> list[BatchHeader]:
    """The whole ones."""
    at, found = 0, []
    while at + 61 <= len(records):
        header = parse_header(records, at)
        if at + header.size_bytes > len(records):
            break
        found.append(header)
        at += header.size_bytes
    return found


def _some(headers: list[BatchHeader]) -> list[BatchHeader]:
    """First and last, and some in between."""
    step = max(1, len(headers) // _PIECES)
    return [*headers[::step], *headers[-2:]]


def _times(asker: Asker, topic: str, headers: list[BatchHeader]) -> Iterator[dict[str, Any]]:
    times = {time for header in _some(headers) for time in (header.max_timestamp_ms, header.max_timestamp_ms + 1)}
    for timestamp in (*SPECIAL_TIMES, *sorted(times)):
        for isolation in (0, 1):
            got = asker.list_offsets(topic, timestamp, isolation)
            yield {
                "api": "ListOffsets",
                "timestamp": timestamp,
                "isolation": isolation,
                "error": got.error,
                "offset": got.offset,
                "ts": got.timestamp_ms,
                "leader_epoch": got.leader_epoch,
            }


def _fetches(asker: Asker, topic: str, headers: list[BatchHeader]) -> Iterator[dict[str, Any]]:
    end = asker.list_offsets(topic, -1).offset
    edges = {offset for header in _some(headers) for offset in (header.base_offset, header.last_offset)}
    for offset in sorted({-1, 0, *edges, end, end + 1}):
        for limit, most in ((1, ALL), (2500, ALL), (ALL, 6000), (ALL, ALL)):
            for isolation in (0, 1):
                asked = {"fetch_offset": offset, "partition_max_bytes": limit, "max_bytes": most}
                got = asker.fetch(topic, offset, limit, isolation, most)
                yield {"api": "Fetch", **asked, "isolation": isolation, **_facts(got)}


def _facts(got: Fetched) -> dict[str, Any]:
    batches = _batches(got.records)
    whole = sum(header.size_bytes for header in batches)
    return {
        "error": got.error,
        "high_watermark": got.high_watermark,
        "last_stable_offset": got.last_stable,
        "log_start_offset": got.log_start,
        "aborted": got.aborted,
        "bytes": len(got.records),
        "whole_bytes": whole,
        "whole_sha256": hashlib.sha256(got.records[:whole]).hexdigest(),
        "batches": [(header.base_offset, header.size_bytes) for header in batches],
    }
