"""What a real Kafka answered to the same requests and over the same files (tests/golden/PROVENANCE.md)."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from broker.client import Client, batch, offsets_of
from broker.file_tier import FileTier
from broker.running import running
from kit.answers import check
from kit.golden import golden
from tierd.wire.errors import ErrorCode

OUR_OWN = {
    "null records": ErrorCode.INVALID_RECORD,
    "unknown codec 7": ErrorCode.INVALID_RECORD,
    "gzip claimed, plain payload": ErrorCode.INVALID_RECORD,
    "records garbage": ErrorCode.INVALID_RECORD,
}
"""Kafka never answers the first and says UNKNOWN_SERVER_ERROR to the others."""
ACCEPTED_UNLESS_FULL = {"gzip claimed, plain payload", "records garbage"}
_RECORDED_ID = 0x177A
_HEADER = 61


def test_answers_over_kafkas_own_files(tmp_path: Path) -> None:
    shutil.copytree(golden("kafka") / "final", tmp_path / "data")
    with running(tmp_path) as broker:
        host, port = broker.address
        report = check(f"{host}:{port}", golden("kafka") / "final.answers.jsonl")
        assert report.agreed == report.asked, report


def test_a_marker_that_is_still_local_aborts_records_that_are_only_in_the_bucket(tmp_path: Path) -> None:
    shutil.copytree(golden("kafka") / "final", tmp_path / "data")
    with running(tmp_path, FileTier(tmp_path / "bucket")) as broker:
        broker.give_to_tier("txn", 15)  # the transaction that began at 1 is aborted at 16
        with Client(broker.address) as client:
            got = client.fetch("txn", 0, isolation_level=1)
        assert offsets_of(got.records)[-1] < 16
        assert [(aborted.producer_id, aborted.first_offset) for aborted in got.aborted_transactions] == [(15, 1)]


def test_aborts_that_cannot_be_read_are_the_error_of_their_partition_alone(tmp_path: Path) -> None:
    shutil.copytree(golden("kafka") / "final", tmp_path / "data")
    with running(tmp_path, FileTier(tmp_path / "bucket")) as broker:
        broker.give_to_tier("txn", 15)
        for index in (tmp_path / "data" / "txn-0").glob("*.txnindex"):
            index.write_bytes(b"torn")
            with index.with_suffix(".log").open("r+b") as segment:  # else the index could be made again from it
                segment.seek(16)
                segment.write(b"\xff")
        with Client(broker.address) as client:
            client.create("other")
            client.produce("other", batch())
            wanted = [("txn", 0, 0, 1 << 20), ("other", 0, 0, 1 << 20)]
            broken, other = client.fetch_many(wanted, isolation_level=1)
            while not broken.error_code:  # a thread still tries to repair it
                assert not broken.records
                broken, other = client.fetch_many(wanted, isolation_level=1)
        assert (broken.error_code, broken.records or b"") == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert offsets_of(other.records) == [0, 1, 2]


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (golden("kafka") / "produce-cases.jsonl").read_text().splitlines()]


def with_producer_id(records: bytes, producer_id: int) -> bytes:
    """The recorded batches under an id of this broker, with new CRCs."""
    raw, at = bytearray(records), 0
    while at + _HEADER <= len(raw):
        stop = at + 12 + int.from_bytes(raw[at + 8 : at + 12], "big")
        if stop <= len(raw) and int.from_bytes(raw[at + 43 : at + 51], "big") == _RECORDED_ID:
            raw[at + 43 : at + 51] = producer_id.to_bytes(8, "big")
            raw[at + 17 : at + 21] = crc32c(bytes(raw[at + 21 : stop])).to_bytes(4, "big")
        at = stop
    return bytes(raw)


def records_of(case: dict[str, Any], producer_id: int) -> bytes | None:
    match case["case"]:
        case "null records":
            return None
        case "too large":
            return batch(1, size=30_000)
        case "two batches one too large":
            return batch() + batch(1, size=30_000)
        case "future timestamp":
            return batch(3, t0=int(time.time() * 1000) + 7_200_000)
        case _:
            return with_producer_id(bytes.fromhex(case["records"]), producer_id)


@pytest.mark.parametrize("validate", ["full", "batch"])
def test_every_recorded_produce_case(tmp_path: Path, validate: str) -> None:
    differ = []
    overrides = {"tierd.validate.records": validate}
    with running(tmp_path, set_overrides=overrides) as broker, Client(broker.address) as client:
        producer_id = client.call(22, 4, transactional_id=None, transaction_timeout=60_000).producer_id
        for case in cases():
            if "create" in case:
                topic = client.create(case["create"], **case["cfg"])
                got, want = (topic.error_code, topic.error_message), (case["error"], case["msg"])
            elif "case" in case:
                fields = {"acks": case["acks"]} if "acks" in case else {}
                answer = client.produce(
                    case["topic"],
                    records_of(case, producer_id),
                    case.get("part", 0),
                    version=case.get("v", 9),
                    **fields,
                )
                got, want = _compared(case, answer, validate)
            else:
                continue
            if got != want:
                differ.append((case.get("case", case.get("create")), want, got))
    assert not differ


def _compared(case: dict[str, Any], answer: Any, validate: str) -> tuple[object, object]:
    name = case["case"]
    errors = [[error.batch_index, error.batch_index_error_message] for error in getattr(answer, "record_errors", ())]
    if validate == "batch":
        # Offsets run ahead by the two batches that only `full` refuses.
        want = 0 if name in ACCEPTED_UNLESS_FULL else OUR_OWN.get(name, case.get("error"))
        return answer.error_code, want
    if name in OUR_OWN:
        return (answer.error_code, answer.base_offset), (OUR_OWN[name], -1)
    numbers = [index for index, _ in case["record_errors"]]
    if name == "future timestamp":
        return (answer.error_code, [index for index, _ in errors]), (case["error"], numbers)
    return (answer.error_code, answer.base_offset, errors), (case["error"], case["base_offset"], case["record_errors"])
