"""Hold a broker's ListOffsets and Fetch answers against those of a real Kafka (tests/golden/PROVENANCE.md).

    report = check("127.0.0.1:9092", golden("kafka") / "final.answers.jsonl")
    assert report.agreed == report.asked, report

Or from a shell, in tests/: `python -m kit.answers HOST:PORT [--evicted]`. What a broker may do differently:

- A Fetch may end at a batch boundary where Kafka cuts the last batch off, and may go on into later segments
  within the byte limits.
- The list of aborted transactions must name all that begin at or before the last batch returned, and none that
  was never aborted; how far beyond the bytes it reaches depends on how dense an index is, in Kafka too.
- A look-up by time may find a record that Kafka misses because compaction emptied the first segment.
- The leader epoch of the log end (-1) and the latest tiered offset (-5) are the broker's own; so is the earliest
  local offset (-4) once segments have left the disk (*evicted*).
"""

import argparse
import hashlib
import json
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

from kio.index import load_response_schema
from kio.schema.fetch.v12 import request as fetch_v12
from kio.schema.list_offsets.v8 import request as list_offsets_v8
from kio.schema.list_offsets.v9 import request as list_offsets_v9
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i32, i32Timedelta, i64

from kit.golden import golden

LATEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -4, -5
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Offsets:
    """A ListOffsets answer as it comes (-1: none)."""

    error: int
    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A Fetch answer as it comes (-1: none)."""

    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: tuple[tuple[int, int], ...] | None
    """(producer id, first offset) of each aborted transaction."""
    records: bytes

    @property
    def last_base(self) -> int:
        """Base offset of the last whole batch; -1 without one."""
        at, base = 0, -1
        while at + 12 <= len(self.records):
            size = 12 + int.from_bytes(self.records[at + 8 : at + 12], "big")
            if at + size > len(self.records):
                break
            base = int.from_bytes(self.records[at : at + 8], "big")
            at += size
        return base


class Asker:
    """One connection that asks about a topic's partition, 0 unless told."""

    def __init__(self, address: str, timeout_s: float = 30) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._stream = self._socket.makefile("rb")
        self._correlation_id = 0

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def list_offsets(self, topic: str, timestamp: int, isolation: int = 0, partition: int = 0) -> Offsets:
        """*timestamp* may be one of the special values -1 to -5."""
        api = list_offsets_v9 if timestamp == LATEST_TIERED else list_offsets_v8
        part = api.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(timestamp))
        request = api.ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(isolation),
            topics=(api.ListOffsetsTopic(name=TopicName(topic), partitions=(part,)),),
        )
        got = self._call(request).topics[0].partitions[0]
        return Offsets(int(got.error_code), got.offset, got.timestamp, got.leader_epoch)

    def fetch(
        self, topic: str, offset: int, partition_max_bytes: int, isolation: int = 0, max_bytes: int = 52428800
    ) -> Fetched:
        part = fetch_v12.FetchPartition(
            partition=i32(0), fetch_offset=i64(offset), partition_max_bytes=i32(partition_max_bytes)
        )
        request = fetch_v12.FetchRequest(
            max_wait=i32Timedelta.parse(timedelta(0)),
            min_bytes=i32(1),
            max_bytes=i32(max_bytes),
            isolation_level=i8(isolation),
            session_epoch=i32(-1),
            topics=(fetch_v12.FetchTopic(topic=TopicName(topic), partitions=(part,)),),
            forgotten_topics_data=(),
        )
        got = self._call(request).responses[0].partitions[0]
        aborted = got.aborted_transactions
        return Fetched(
            error=int(got.error_code),
            high_watermark=got.high_watermark,
            last_stable=got.last_stable_offset,
            log_start=got.log_start_offset,
            aborted=None if aborted is None else tuple((txn.producer_id, txn.first_offset) for txn in aborted),
            records=bytes(got.records or b""),
        )

    def _call(self, request: Any) -> Any:
        kind = type(request)
        self._correlation_id += 1
        header = kind.__header_schema__(
            request_api_key=kind.__api_key__,
            request_api_version=kind.__version__,
            correlation_id=i32(self._correlation_id),
            client_id="answers",
        )
        body = BytesIO()
        entity_writer(type(header))(body, header)
        entity_writer(kind)(body, request)
        frame = body.getvalue()
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        reply = self._read(int.from_bytes(self._read(4), "big"))
        response = load_response_schema(kind.__api_key__, kind.__version__)
        got_header, size = entity_reader(response.__header_schema__)(reply, 0)
        assert got_header.correlation_id == self._correlation_id
        answer, _ = entity_reader(response)(reply, size)
        return answer

    def _read(self, size: int) -> bytes:
        found = self._stream.read(size)
        if len(found) < size:
            raise ConnectionError("the broker closed the connection")
        return found


@dataclass(frozen=True, slots=True)
class Difference:
    question: Mapping[str, Any]
    why: str

    def __str__(self) -> str:
        asked = ("api", "topic", "timestamp", "fetch_offset", "partition_max_bytes", "max_bytes", "isolation")
        return f"{ {key: self.question[key] for key in asked if key in self.question} }: {self.why}"


@dataclass(slots=True)
class Report:
    by_topic: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(agreed, asked) of each topic."""
    differences: list[Difference] = field(default_factory=list)
    repeats: int = 0
    """Fetches that came back empty at first while the broker was still reading (only with *evicted*)."""

    @property
    def asked(self) -> int:
        return sum(asked for _, asked in self.by_topic.values())

    @property
    def agreed(self) -> int:
        return sum(agreed for agreed, _ in self.by_topic.values())

    def __str__(self) -> str:
        topics = [f"{topic:20} {agreed} of {asked}" for topic, (agreed, asked) in sorted(self.by_topic.items())]
        shown = [str(difference) for difference in self.differences[:20]]
        return "\n".join([*topics, *shown, f"agree {self.agreed} of {self.asked}, {self.repeats} repeated"])


def check(address: str, recording: Path, *, evicted: bool = False, topics: Collection[str] | None = None) -> Report:
    """Ask everything that *recording* asked (only about *topics* if given) and compare. Raises OSError.

    With *evicted* the closed segments lie in the bucket only: a fetch that comes back empty is asked again, as a
    client does, for at most 30 s.
    """
    rows = [json.loads(line) for line in recording.read_text().splitlines()]
    ever_aborted: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for row in rows:
        ever_aborted[row["topic"]].update(map(tuple, row.get("aborted") or []))
    report, tally = Report(), Counter[tuple[str, bool]]()
    with Asker(address) as asker:
        for row in rows:
            if row["api"] == "AbortedTransactions" or (topics is not None and row["topic"] not in topics):
                continue
            if row["api"] == "ListOffsets":
                why = _compare_offsets(asker, row, evicted)
            else:
                got, repeats = _fetch(asker, row, patient=evicted)
                report.repeats += repeats
                why = _compare_fetch(row, got) or _compare_aborted(row, got, ever_aborted[row["topic"]])
            if why is not None:
                report.differences.append(Difference(row, why))
            tally[row["topic"], why is None] += 1
    for topic in {topic for topic, _ in tally}:
        report.by_topic[topic] = (tally[topic, True], tally[topic, True] + tally[topic, False])
    return report


def _compare_offsets(asker: Asker, row: Mapping[str, Any], evicted: bool) -> str | None:
    timestamp, isolation = row["timestamp"], row["isolation"]
    if timestamp == LATEST_TIERED or (timestamp == EARLIEST_LOCAL and evicted):
        return None
    got = asker.list_offsets(row["topic"], timestamp, isolation)
    found_more = timestamp >= 0 and row["offset"] == -1 and got.error == 0 and got.timestamp_ms >= timestamp
    if found_more and got.offset < asker.list_offsets(row["topic"], LATEST, isolation).offset:
        return None
    pairs = [("error", got.error), ("offset", got.offset), ("ts", got.timestamp_ms)]
    if timestamp != LATEST:
        pairs.append(("leader_epoch", got.leader_epoch))
    return _unequal(row, pairs)


def _fetch(asker: Asker, row: Mapping[str, Any], patient: bool) -> tuple[Fetched, int]:
    deadline, repeats = time.monotonic() + _PATIENCE_S, 0
    while True:
        got = asker.fetch(
            row["topic"], row["fetch_offset"], row["partition_max_bytes"], row["isolation"], row["max_bytes"]
        )
        waiting = row["bytes"] and not got.records and not got.error
        if not (patient and waiting) or time.monotonic() > deadline:
            return got, repeats
        repeats += 1


def _compare_fetch(row: Mapping[str, Any], got: Fetched) -> str | None:
    wrong = _unequal(
        row,
        [
            ("error", got.error),
            ("high_watermark", got.high_watermark),
            ("last_stable_offset", got.last_stable),
            ("log_start_offset", got.log_start),
        ],
    )
    if wrong or row["bytes"] == 0:
        return wrong or _unequal(row, [("bytes", len(got.records))])
    first_batch_bytes = row["batches"][0][1] if row["batches"] else row["bytes"]
    most = max(min(row["partition_max_bytes"], row["max_bytes"]), first_batch_bytes)
    whole = row["whole_bytes"]
    if len(got.records) > most:
        return f"{len(got.records)} bytes, the limits allow {most}"
    if len(got.records) < whole:
        return f"{len(got.records)} bytes, Kafka gives {whole} in whole batches"
    if hashlib.sha256(got.records[:whole]).hexdigest() != row["whole_sha256"]:
        return f"other bytes than the {whole} of Kafka's whole batches"
    return None


def _compare_aborted(row: Mapping[str, Any], got: Fetched, ever_aborted: set[tuple[int, int]]) -> str | None:
    want = row["aborted"]
    if want is None or got.aborted is None:
        return None if want is got.aborted else f"aborted: {want} wanted, got {got.aborted}"
    have = set(got.aborted)
    missing = [txn for txn in want if txn[1] <= got.last_base and tuple(txn) not in have]
    strange = sorted(have - ever_aborted)
    return f"aborted: {missing} missing, {strange} never aborted" if missing or strange else None


def _unequal(row: Mapping[str, Any], pairs: list[tuple[str, int]]) -> str | None:
    wrong = [f"{key}: {row[key]} wanted, got {value}" for key, value in pairs if row[key] != value]
    return "; ".join(wrong) or None


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare a broker's answers with the recorded ones of Kafka.")
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--evicted", action="store_true", help="closed segments lie in the bucket only")
    options = parser.parse_args()
    report = check(options.address, golden("kafka") / "final.answers.jsonl", evicted=options.evicted)
    print(report)
    return int(report.agreed != report.asked)


if __name__ == "__main__":
    raise SystemExit(main())
