"""Batch by batch, record by record and entry by entry, tierd reads what Kafka's own DumpLogSegments reads."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.golden import golden
from tierd.storage.batch import BatchHeader, parse_control
from tierd.storage.compression import Codec
from tierd.storage.index import parse_index
from tierd.storage.names import Suffix, parse_segment_file
from tierd.storage.records import Record, iter_records
from tierd.storage.scan import scan_segment
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.timeindex import parse_time_index
from tierd.storage.txnindex import parse_txn_index

CLEAN = golden("kafka") / "clean"
PARTITIONS = sorted(path.name for path in CLEAN.iterdir() if path.is_dir())


@pytest.mark.parametrize("partition", PARTITIONS)
def test_batches_and_records(partition: str) -> None:
    for path, lines in _sections(partition, "log"):
        ours = list(_log_lines(path))
        theirs = [line for line in lines if line.startswith(("baseOffset: ", "| offset: "))]  # values may span lines
        assert len(ours) == len(theirs)
        for mine, kafkas in zip(ours, theirs, strict=True):
            missing = [fact for fact in mine if fact not in kafkas]
            assert not missing, kafkas


@pytest.mark.parametrize("partition", PARTITIONS)
def test_indexes_and_snapshots(partition: str) -> None:
    for path, lines in _sections(partition, "indexes"):
        assert list(_entry_lines(path)) == [re.sub(r" firstSequence: \S+", "", line) for line in lines]


def _sections(partition: str, kind: str) -> Iterator[tuple[Path, list[str]]]:
    """What Kafka printed for each file."""
    text = (golden("kafka") / "dump" / f"{partition}.{kind}.txt").read_text()
    parts = re.split(r"^Dumping clean/(\S+)\n", text, flags=re.MULTILINE)
    assert len(parts) > 1
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        yield CLEAN / name, [line for line in body.splitlines() if line and not line.endswith(" is empty.")]


def _log_lines(path: Path) -> Iterator[list[str]]:
    """For each line of Kafka's the parts of it that we know."""
    raw = path.read_bytes()
    base = int(path.stem)
    for position, header in scan_segment(lambda at, length: raw[at : at + length], len(raw), base, path.name):
        yield _batch_facts(position, header)
        for record in iter_records(raw[position : position + header.size_bytes], header):
            yield _record_facts(record, header)


def _batch_facts(position: int, header: BatchHeader) -> list[str]:
    horizon = f"OptionalLong[{header.base_timestamp_ms}]" if header.delete_horizon else "OptionalLong.empty"
    time_kind = "LogAppendTime" if header.log_append_time else "CreateTime"
    return [
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count} "
        f"baseSequence: {header.base_sequence} ",
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {str(header.transactional).lower()} "
        f"isControl: {str(header.control).lower()} deleteHorizonMs: {horizon} position: {position} "
        f"{time_kind}: {header.max_timestamp_ms} size: {header.size_bytes} magic: {header.magic} "
        f"compresscodec: {Codec(header.codec).name.lower()} crc: {header.crc} isvalid: true",
    ]


def _record_facts(record: Record, header: BatchHeader) -> list[str]:
    time_kind = "LogAppendTime" if header.log_append_time else "CreateTime"
    sizes = [-1 if field is None else len(field) for field in (record.key, record.value)]
    facts = [
        f"| offset: {record.offset} {time_kind}: {record.timestamp_ms} keySize: {sizes[0]} valueSize: {sizes[1]} ",
        f"headerKeys: [{','.join(name for name, _ in record.headers)}]",
    ]
    if header.control:
        kind, epoch = parse_control(record)
        return [*facts, f"endTxnMarker: {('ABORT', 'COMMIT')[kind]} coordinatorEpoch: {epoch}"]
    if record.key is not None and record.key.isascii() and record.key.decode().isprintable():
        facts.append(f" key: {record.key.decode()}")
    if record.value is not None and record.value.isascii() and record.value.decode().isprintable():
        facts.append(f" payload: {record.value.decode()}")
    return facts


def _entry_lines(path: Path) -> Iterator[str]:
    raw, parsed = path.read_bytes(), parse_segment_file(path.name)
    assert parsed is not None
    match parsed.suffix:
        case Suffix.INDEX:
            for entry in parse_index(raw, parsed.offset):
                yield f"offset: {entry.offset} position: {entry.position}"
        case Suffix.TIME_INDEX:
            for time in parse_time_index(raw, parsed.offset):
                yield f"timestamp: {time.timestamp_ms} offset: {time.offset}"
        case Suffix.TXN_INDEX:
            for txn in parse_txn_index(raw):
                yield (
                    f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
                    f"lastOffset: {txn.marker_offset} lastStableOffset: {txn.last_stable}"
                )
        case Suffix.SNAPSHOT:
            yield from _snapshot_lines(raw)


def _snapshot_lines(raw: bytes) -> Iterator[str]:
    for entry in parse_snapshot(raw):
        txn = "OptionalLong.empty" if entry.txn_first_offset is None else f"OptionalLong[{entry.txn_first_offset}]"
        coordinator = -1 if entry.coordinator_epoch is None else entry.coordinator_epoch
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {coordinator} "
            f"currentTxnFirstOffset: {txn} lastTimestamp: {entry.timestamp_ms}"
        )
        if entry.last_offset is not None:
            line += (
                f" lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
                f"offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp_ms}"
            )
        yield line
