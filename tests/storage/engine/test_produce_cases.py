"""The 62 hand-made Produce requests that Kafka answered, as far as the engine decides them (under `full`)."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kit.golden import golden
from kit.logs import Place
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage.appending import Appended
from tierd.storage.batch import encode_batch
from tierd.storage.errors import (
    AppendRefused,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionRefused,
)
from tierd.storage.records import Record

FULL = TopicSettings(tierd_validate_records="full", remote_storage_enable=False)
TOPICS = {
    "pc": replace(FULL, max_message_bytes=20000),
    "pcl": replace(FULL, message_timestamp_type="LogAppendTime"),
    "pcc": replace(FULL, cleanup_policy=frozenset({"compact"})),
    "pcz": replace(FULL, compression_type="zstd"),
}
CODES: dict[type[AppendRefused], int] = {
    CorruptBatch: 2,
    BatchTooLarge: 10,
    InvalidTimestamp: 32,
    OutOfOrderSequence: 45,
    ProducerFenced: 47,
    TransactionRefused: 53,
}
NOT_THE_ENGINES = {"acks 2", "unknown topic", "unknown partition", "bad topic name", "zstd on v6", "null records"}
SAFER = {"unknown codec 7", "gzip claimed, plain payload", "records garbage"}
"""Kafka answers -1 UNKNOWN_SERVER_ERROR, we say what is wrong."""
CUT_SHORT = "<"
"""The recording gives the size of two long requests instead of their bytes."""
NOW_MS = 1796032328414 - 3_600_000
"""The recorder's clock, as the text of an answer names it."""


def cases() -> list[dict[str, Any]]:
    lines = (golden("kafka") / "produce-cases.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "case" in row]


def code(refused: AppendRefused) -> int:
    return CODES.get(type(refused), 87)


def test_kafkas_verdicts(tmp_path: Path) -> None:
    directory = Place(tmp_path).open()
    logs = {}
    for i, (name, settings) in enumerate(TOPICS.items()):
        logs[name] = directory.create(TopicPartition(name, 0), Uuid(bytes([i] * 16)), settings)
        logs[name].begin(0, 0)
    logs["pc"].roll()
    asked = 0
    for row in cases():
        if row["case"] in NOT_THE_ENGINES or row["records"].startswith(CUT_SHORT):
            continue
        asked += 1
        raw = memoryview(bytearray.fromhex(row["records"]))
        want = 87 if row["case"] in SAFER else row["error"]
        if want == 0:
            check_done(row, logs[row["topic"]].append(raw, now_ms=NOW_MS))
            continue
        with pytest.raises(AppendRefused) as refused:
            logs[row["topic"]].append(raw, now_ms=NOW_MS)
        assert code(refused.value) == want, (row["case"], str(refused.value))
        check_texts(row, refused.value)
    assert asked == 54


@pytest.mark.parametrize("validate", ["batch", "full"])
@pytest.mark.parametrize(("count", "fits"), [(60, True), (61, False), (2**31 - 1, False)])
def test_more_records_than_a_plain_payload_can_hold(validate: str, count: int, fits: bool, tmp_path: Path) -> None:
    """Kafka finds too few records when it decodes them ("count mismatch"); their number alone says it, too."""
    settings = replace(FULL, tierd_validate_records=validate)
    log = Place(tmp_path).open().create(TopicPartition("t", 0), Uuid(bytes(16)), settings)
    log.begin(0, 0)
    raw = bytearray(encode_batch([Record(i, NOW_MS, None, None) for i in range(60)]))
    struct.pack_into(">i", raw, 23, count - 1)
    struct.pack_into(">i", raw, 57, count)
    struct.pack_into(">I", raw, 17, crc32c(raw[21:]))
    if fits:
        assert log.append(memoryview(raw), now_ms=NOW_MS).next_offset == count
    else:
        with pytest.raises(InvalidRecord):
            log.append(memoryview(raw), now_ms=NOW_MS)


def check_done(row: dict[str, Any], done: Appended) -> None:
    assert done.first_offset == row["base_offset"], row["case"]
    assert (done.log_append_time_ms is None) == (row["log_append_time"] == -1), row["case"]


def check_texts(row: dict[str, Any], refused: AppendRefused) -> None:
    if row["record_errors"] and isinstance(refused, InvalidRecord | InvalidTimestamp):
        assert [[e.batch_index, e.message] for e in refused.record_errors] == row["record_errors"]
        assert refused.message == row["message"]
